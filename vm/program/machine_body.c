/* machine_body.c - the effect of a body on its rank, so that a call of it is one step of
 * the machine. Input: a body; output: merged byte ranges by slot, handles, use of
 * communicators. It reports nothing: an unusual body is left open, and the machine then
 * runs its instructions one by one and finds the exact place. */
#include "machine.h"

#include <stdlib.h>

typedef struct Flying {
  Access acc[COLL_OPERANDS]; /* the last one is the result */
  int n;
  int32_t handle;
  int comm;
  uint32_t pc;
  int64_t end;
} Flying;

typedef struct BodyWalk {
  const Program *p;
  Arena *a;
  BodySum *s;
  VEC(Flying) flying;
  const Machine *m;
  int pp;
  CommUse *use; /* per communicator */
  int *in_flight;
  int64_t now, *free; /* with costs: when each communicator is; last: when all are */
} BodyWalk;

static Access access_of(const Operand *o, bool write) {
  return (Access){o->off, o->off + operand_bytes(o), o->slot, write};
}

static bool same_apart(const Apart *x, const Access *a, const Access *b) {
  return x->a.slot == a->slot && x->b.slot == b->slot && x->a.lo == a->lo &&
         x->a.hi == a->hi && x->b.lo == b->lo && x->b.hi == b->hi;
}

/* `b` happens while `a` is in flight. False if they always collide; if that depends on
 * the bindings, every call has to look. */
static bool beside(BodyWalk *w, const Access *a, const Access *b) {
  if (!(a->write || b->write) || a->lo == a->hi || b->lo == b->hi) return true;
  if (a->slot == b->slot) return a->hi <= b->lo || b->hi <= a->lo;
  for (int i = 0; i < w->s->apart.n; i++)
    if (same_apart(&w->s->apart.at[i], a, b)) return true;
  *VEC_PUSH(w->a, w->s->apart) = (Apart){*a, *b};
  return true;
}

static bool touch(BodyWalk *w, const Access *b) {
  *VEC_PUSH(w->a, w->s->access) = *b;
  for (int i = 0; i < w->flying.n; i++)
    for (int j = 0; j < w->flying.at[i].n; j++)
      if (!beside(w, &w->flying.at[i].acc[j], b)) return false;
  return true;
}

static bool kernel(BodyWalk *w, const Instr *in) {
  const Operand *o = &w->p->operand[in->operand];
  for (int i = 0; i < instr_operands(in); i++) {
    Access b = access_of(&o[i], i >= in->nin);
    if (!touch(w, &b)) return false;
  }
  int64_t cost = w->m->costs ? w->m->costs->cost(w->m->costs->ud, w->pp, in) : 0;
  w->s->busy += cost;
  w->now += cost;
  return true;
}

/* When a collective that starts now ends, if only this body uses its communicator. Where
 * ranks are threads they move the data themselves, when they come to wait for it. */
static int64_t end_of(BodyWalk *w, const Instr *in) {
  if (!w->m->costs || w->m->costs->cores > 0) return 0;
  int64_t *all = &w->free[w->p->ncomm], *own = &w->free[in->comm];
  int64_t begin = MAX(w->now, w->m->in_order ? *all : *own);
  return *all = *own = begin + w->m->costs->cost(w->m->costs->ud, w->pp, in);
}

static void note_links(BodyWalk *w, const Instr *in) {
  LinkLoad l = {0};
  if (!machine_shares(w->m)) return;
  w->m->costs->load(w->m->costs->ud, w->pp, in, &l);
  for (int k = 0; k < LINK_KINDS; k++) w->s->link[k] |= l.link[k] > 0;
}

static void count(BodyWalk *w, const Instr *in, const Operand *o) {
  CommUse *use = &w->use[in->comm];
  int n = ++w->in_flight[in->comm];
  use->in_flight = MAX(use->in_flight, n);
  use->flow[in->coll].count++;
  use->flow[in->coll].bytes += coll_bytes(in, o);
  w->s->collectives++;
}

static void wait_until(BodyWalk *w, uint32_t pc, int64_t end) {
  if (end > w->now) *VEC_PUSH(w->a, w->s->wait) = (BodyWait){pc, end - w->now};
  w->now = MAX(w->now, end);
}

/* As hold() of machine.c. */
static void stand(BodyWalk *w, const Instr *in, const Flying *f) {
  const RunCosts *costs = w->m->costs;
  if (costs && costs->stands && costs->stands(costs->ud, w->pp, in))
    wait_until(w, f->pc, f->end);
}

static bool start(BodyWalk *w, const Instr *in) {
  if (comm_spans_pp(&w->m->c->mesh, &w->p->comm[in->comm])) return false;
  for (int i = 0; i < w->flying.n; i++)
    if (w->flying.at[i].handle == in->handle) return false;
  const Operand *o = &w->p->operand[in->operand];
  Flying f = {.n = in->nin + 1,
              .handle = in->handle,
              .comm = in->comm,
              .end = end_of(w, in),
              .pc = (uint32_t)(in - w->p->code)};
  note_links(w, in);
  Access *out = &f.acc[in->nin];
  for (int i = 0; i < f.n; i++) {
    f.acc[i] = access_of(&o[i], i == in->nin);
    if (!touch(w, &f.acc[i])) return false;
  }
  bool same = f.acc[0].slot == out->slot && f.acc[0].lo == out->lo;
  bool in_place = same && in->coll == COLL_ALL_REDUCE;
  for (int i = 0; i < in->nin && !in_place; i++)
    if (!beside(w, &f.acc[i], out)) return false;
  *VEC_PUSH(w->a, w->flying) = f;
  stand(w, in, &f);
  count(w, in, o);
  int i = 0;
  while (i < w->s->handle.n && w->s->handle.at[i] != in->handle) i++;
  if (i == w->s->handle.n) *VEC_PUSH(w->a, w->s->handle) = in->handle;
  return true;
}

static bool wait(BodyWalk *w, const Instr *in) {
  for (int i = 0; i < w->flying.n; i++)
    if (w->flying.at[i].handle == in->handle) {
      const Flying *f = &w->flying.at[i];
      const RunCosts *costs = w->m->costs;
      int64_t end = f->end;
      if (costs && costs->cores > 0)
        end = w->now + costs->cost(costs->ud, w->pp, &w->p->code[f->pc]);
      w->in_flight[f->comm]--;
      wait_until(w, f->pc, end);
      w->flying.at[i] = w->flying.at[--w->flying.n];
      return true;
    }
  return false;
}

/* ---- merging ---- */

static int by_slot(const void *x, const void *y) {
  const Access *a = x, *b = y;
  if (a->write != b->write) return a->write ? -1 : 1;
  if (a->slot != b->slot) return a->slot < b->slot ? -1 : 1;
  if (a->lo != b->lo) return a->lo < b->lo ? -1 : 1;
  return a->hi < b->hi ? -1 : a->hi > b->hi;
}

/* Writes first, then reads; ranges that touch become one, and reads that one written
 * range covers are dropped, because a write excludes everything that a read does. */
static void merge(BodySum *s) {
  Access *at = s->access.at;
  int n = 0, writes = 0;
  if (s->access.n) qsort(at, (size_t)s->access.n, sizeof *at, by_slot);
  for (int i = 0; i < s->access.n; i++) {
    Access x = at[i];
    bool covered = x.lo == x.hi;
    for (int j = 0; j < writes && !covered && !x.write; j++)
      covered = at[j].slot == x.slot && at[j].lo <= x.lo && x.hi <= at[j].hi;
    if (covered) continue;
    Access *last = n ? &at[n - 1] : NULL;
    if (last && last->write == x.write && last->slot == x.slot && x.lo <= last->hi)
      last->hi = MAX(last->hi, x.hi);
    else
      at[n++] = x;
    if (x.write) writes = n;
  }
  s->access.n = n;
}

void body_summary(const Machine *m, int pp, const Body *b, BodySum *out) {
  const Program *p = &m->c->prog[pp];
  *out = (BodySum){0};
  BodyWalk w = {.p = p, .a = m->a, .s = out, .m = m, .pp = pp};
  w.use = NEW_N(m->a, CommUse, p->ncomm);
  w.in_flight = NEW_N(m->a, int, p->ncomm);
  w.free = NEW_N(m->a, int64_t, p->ncomm + 1);
  for (uint32_t i = b->first; i < b->first + b->n; i++) {
    const Instr *in = &p->code[i];
    bool usual = in->code == I_KERNEL ? kernel(&w, in)
                 : in->code == I_COLL ? start(&w, in)
                 : in->code == I_WAIT ? wait(&w, in)
                                      : false;
    if (!usual) return;
  }
  out->closed = w.flying.n == 0;
  out->ticks = w.now;
  for (int i = 0; i < p->ncomm; i++) {
    if (w.use[i].in_flight == 0) continue;
    w.use[i].comm = i;
    *VEC_PUSH(m->a, out->comm) = w.use[i];
  }
  merge(out);
}
