/* lower.c - writes the program of one pp rank: the main list and its calls with their
 * bindings, and the bodies (lower_bodies.c). */
#include "unsharded_buckets.h"

/* ---- emitting ---- */

static uint32_t what_index(Emit *e, const char *s) {
  for (int i = MAX(0, e->what.n - 64); i < e->what.n; i++)
    if (strcmp(e->what.at[i], s) == 0) return (uint32_t)i;
  *VEC_PUSH(e->scratch, e->what) = arena_str(e->scratch, s);
  return (uint32_t)e->what.n - 1;
}

static Instr *emit_named(Emit *e, InstrCode code, uint32_t what) {
  Instr *x = VEC_PUSH(e->scratch, e->code);
  *x = (Instr){.code = (uint8_t)code,
               .comm = -1,
               .handle = -1,
               .peer = -1,
               .operand = (uint32_t)e->operand.n,
               .what = what};
  return x;
}

Instr *emit_instr(Emit *e, InstrCode code, const char *what) {
  return emit_named(e, code, what_index(e, what));
}

uint32_t emit_operand(Emit *e, Extent at, DType dt) {
  *VEC_PUSH(e->scratch, e->operand) = (Operand){
      .off = at.off, .dtype = (uint8_t)dt, .ndim = 1, .shard = at.shard, .dim = {at.n}};
  return (uint32_t)e->operand.n - 1;
}

/* ---- calls ---- */

/* Names of transfer operands, kept by tensor and offset because they repeat with every
 * microbatch. */
typedef struct Transferred {
  int32_t edge; /* the edge + 1 */
  uint32_t what, operand;
  uint64_t off;
} Transferred;
enum { SEEN = 1021 };

/* What the emitters of all events need. */
typedef struct Main {
  const MainList *t;
  Bodies bodies;
  int *unit_at;  /* unit -> its number on this rank */
  bool *written; /* parameter -> its gradient buffer holds a value already */
  bool *fresh;   /* parameter of a call's unit -> the call is the first to write it */
  UnshardedNow unsharded;
  uint64_t area[AREA_N];        /* offset of each area */
  uint32_t phase[BODIES], none; /* indices of strings */
  Transferred seen[SEEN];
} Main;

static void number_units(Emit *e, int *unit_at) {
  for (int u = 0; u < e->u->n; u++) {
    if (unit_rank(e->st, u) != e->p->pp) continue;
    unit_at[u] = e->unit.n;
    *VEC_PUSH(e->scratch, e->unit) = e->u->at[u].name;
    *VEC_PUSH(e->scratch, e->number) = (uint32_t)u;
  }
}

/* The gradients of a bucket go to a new buffer, which holds no values. */
static void begin_gradients(const Emit *e, const Event *ev, bool *written) {
  const Block *b = &e->l->regions.block[e->unsharded->at[ev->unsharded].block];
  memset(&written[b->at], 0, sizeof *written * (size_t)b->n);
}

/* Zeroes the gradients of a bucket that nothing has written before its reduction: with
 * split wgrads some are written in I of other microbatches. */
static void clear_unwritten(Emit *e, const Main *m, const Event *ev) {
  const Regions *s = &e->l->regions;
  const Block *b = &s->block[e->unsharded->at[ev->unsharded].block];
  for (int i = b->at, n; i < b->at + b->n; i += n) {
    for (n = 0; i + n < b->at + b->n && !m->written[i + n]; n++) continue;
    if (n > 0)
      clear_stored(e, &s->param[i], n, m->unsharded.sum[ev->unsharded], b->first);
    n = MAX(n, 1);
  }
}

static void clear_gradient(Emit *e, const Main *m, const CompiledUnit *x, int i,
                           Phase ph) {
  const Stored *p = &e->l->regions.param[e->l->of[x->param[i]]];
  uint64_t at = bind_gradient(e, &m->unsharded, x, i, ph).off;
  emit_zeros(e, (DType)layout_gradients(e->l, p->block)->dtype, at, p->count,
             "gradients");
}

/* Clears the gradients of a unit that its body writes first but cannot overwrite: of
 * those that one kernel writes, others are written already, as they are reduced at other
 * times (buckets of groups of parameters, weights with several uses). */
static void clear_mixed(Emit *e, const Main *m, const CompiledUnit *x, Phase ph) {
  bool *fresh = m->fresh;
  const int16_t *bit = x->code->grad_bit + ph * x->code->nparam;
  for (int i = 0; i < x->code->nparam; i++) {
    if (bit[i] == i || (bit[i] != GRAD_CLEARED && fresh[bit[i]] == fresh[i])) continue;
    int first = bit[i] == GRAD_CLEARED ? i : bit[i];
    for (int k = 0; k < x->code->nparam; k++) {
      if (!fresh[k] || (k != first && bit[k] != first)) continue;
      clear_gradient(e, m, x, k, ph);
      fresh[k] = false;
    }
  }
}

/* A bit for each gradient that this call writes first, so that it must overwrite; marks
 * them as written. */
static uint64_t fresh_mask(Emit *e, const Main *m, int u, Phase ph) {
  const CompiledUnit *x = &e->u->at[u];
  uint64_t mask = 0;
  for (int i = 0; i < x->code->nparam; i++) {
    bool *written = &m->written[e->l->of[x->param[i]]],
         writes = x->code->grad_use[i] >> ph & 1;
    m->fresh[i] = writes && !*written;
    *written |= writes;
  }
  clear_mixed(e, m, x, ph);
  for (int i = 0, bit = -1; i < x->code->nparam; i++) {
    bit += !e->u->param[x->param[i]].frozen; /* as in unit_buffers.c */
    if (m->fresh[i]) mask |= 1ull << bit;
  }
  return mask;
}

/* Adds an instruction that belongs to an action of the schedule. */
static Instr *emit_for(Emit *e, const Event *ev, InstrCode code, uint32_t what) {
  Instr *x = emit_named(e, code, what);
  x->line = ev->line;
  x->action = ev->action;
  return x;
}

static uint64_t buffer_at(const Main *m, Area area, int32_t buffer) {
  return m->area[area] + m->t->buffer[area].at[buffer].off;
}

static void bind_buffer(Emit *e, const Main *m, int32_t buffer) {
  *VEC_PUSH(e->scratch, e->dyn) = buffer < 0 ? 0 : buffer_at(m, AREA_ACTIVATIONS, buffer);
}

static void emit_call(Emit *e, const Event *ev, Main *m) {
  const UnitCode *code = e->u->at[ev->unit].code;
  int first = e->code.n;
  uint64_t fresh = fresh_mask(e, m, ev->unit, (Phase)ev->phase);
  for (int i = first; i < e->code.n; i++)
    e->code.at[i].line = ev->line, e->code.at[i].action = ev->action;
  Call call = {.body = (uint32_t)m->bodies.of[ev->unit][ev->phase],
               .unit = (uint32_t)m->unit_at[ev->unit],
               .chunk = (uint16_t)e->st->chunk[e->st->of_unit[ev->unit]],
               .mb = ev->mb,
               .bind = bind_unsharded(e, &m->unsharded, ev->unit, (Phase)ev->phase),
               .nbind = (uint16_t)(2 * code->nparam),
               .dyn = (uint32_t)e->dyn.n,
               .ndyn = (uint16_t)unit_dyn(code),
               .fresh = fresh};
  const int32_t *buf = &m->t->call_buffer.at[ev->edges];
  for (int k = 0; k < 3; k++) bind_buffer(e, m, buf[k]);
  if (ev->unit == e->u->loss && e->u->context)
    e->p->logits = e->dyn.at[call.dyn + DYN_FI] + e->u->logits_at;
  uint64_t mb_bytes = (uint64_t)(e->u->micro * e->u->tokens * 4);
  for (int i = 0; i < IN_SEED; i++)
    *VEC_PUSH(e->scratch, e->dyn) =
        e->l->input[i] == UINT64_MAX ? 0 : e->l->input[i] + (uint64_t)ev->mb * mb_bytes;
  for (int k = 0; k < code->nedge; k++) bind_buffer(e, m, buf[3 + k]);
  if (code->sums) *VEC_PUSH(e->scratch, e->dyn) = e->l->sums_of[ev->unit];
  Instr *x = emit_for(e, ev, I_CALL, m->phase[ev->phase]);
  x->call = (uint32_t)e->call.n;
  *VEC_PUSH(e->scratch, e->call) = call;
}

static const Transferred *transferred(Emit *e, Main *m, int32_t t, uint64_t off) {
  Transferred *k = &m->seen[((uint64_t)t * 31 + off / ALIGN) % SEEN];
  if (k->edge == t + 1 && k->off == off) return k;
  const UnitEdge *x = &e->u->edge[t];
  k->what = what_index(e, x->label);
  k->edge = t + 1;
  k->off = off;
  k->operand = (uint32_t)e->operand.n;
  Operand *o = VEC_PUSH(e->scratch, e->operand);
  *o = (Operand){.off = off, .dtype = x->dtype, .ndim = x->ndim};
  for (int d = 0; d < x->ndim; d++) o->dim[d] = x->dim[d];
  return k;
}

static void emit_transfer(Emit *e, const Event *ev, Main *m) {
  uint64_t off = buffer_at(m, AREA_ACTIVATIONS, ev->buffer);
  const Transferred *k = transferred(e, m, ev->edge, off);
  Instr *i = emit_for(e, ev, ev->kind == EV_SEND ? I_SEND : I_RECV, k->what);
  i->peer = ev->peer;
  i->handle = ev->handle;
  i->operand = k->operand;
  i->nin = ev->kind == EV_SEND, i->nout = !i->nin;
}

static void emit_reduce(Emit *e, const Event *ev) {
  int first = e->code.n;
  bucket_start(e, ev->bucket, 0, ev->handle);
  for (int i = first; i < e->code.n; i++)
    e->code.at[i].line = ev->line, e->code.at[i].action = ev->action;
}

static uint64_t bucket_at(const Emit *e, const Main *m, const Event *ev) {
  return buffer_at(m, e->unsharded->at[ev->unsharded].area, ev->buffer);
}

static void emit_event(Emit *e, const Event *ev, Main *m) {
  switch ((EventKind)ev->kind) {
  case EV_CALL: emit_call(e, ev, m); break;
  case EV_SEND:
  case EV_RECV: emit_transfer(e, ev, m); break;
  case EV_WAIT: emit_for(e, ev, I_WAIT, m->none)->handle = ev->handle; break;
  case EV_REDUCE: emit_reduce(e, ev); break;
  case EV_TAKE:
  case EV_GATHER:
  case EV_KEEP:
  case EV_FREE:
  case EV_SCATTER:
  case EV_ADD:
    if (ev->kind == EV_TAKE) begin_gradients(e, ev, m->written);
    if (ev->kind == EV_SCATTER) clear_unwritten(e, m, ev);
    emit_unsharded(e, &m->unsharded, ev, bucket_at(e, m, ev));
    break;
  }
}

static void emit_main(Emit *e, const Compiled *c, MainList *t, Main *m) {
  m->none = what_index(e, "");
  for (int ph = 0; ph < BODIES; ph++) m->phase[ph] = what_index(e, prog_phase_name[ph]);
  if (c->forward && !c->context)
    update_count(e, c);
  else if (!c->forward)
    update_prologue(e, c);
  for (int i = 0; i < t->ev.n; i++) emit_event(e, &t->ev.at[i], m);
  if (c->forward && !c->context) {
    update_loss(e);
    update_sources(e);
  } else if (!c->forward) {
    update_epilogue(e, c, t);
  }
  e->p->nmain = (uint32_t)e->code.n;
}

/* Allocates the table of calls, most of a program, at its final size and place. */
static void reserve_calls(Emit *e, const MainList *t, Arena *a) {
  size_t calls = 0, dyn = 0;
  for (int i = 0; i < t->ev.n; i++) {
    if (t->ev.at[i].kind != EV_CALL) continue;
    calls++;
    dyn += (size_t)unit_dyn(e->u->at[t->ev.at[i].unit].code);
  }
  e->call.at = arena_raw(a, sizeof *e->call.at * calls);
  e->dyn.at = arena_raw(a, sizeof *e->dyn.at * dyn);
  e->call.cap = (int)calls, e->dyn.cap = (int)dyn;
}

/* Copies a table from the compile's arena to that of the result. */
#define KEEP(field, count)                                                               \
  (p->field = arena_copy(c->arena, e.field.at, sizeof *p->field * (size_t)e.field.n),    \
   p->count = (__typeof__(p->count))e.field.n)

void lower(Emit *out, MainList *t, Compiled *c) {
  Emit e = *out;
  Program *p = e.p;
  const Layout *l = e.l;
  Main *m = NEW(e.scratch, Main);
  uint64_t temp_bytes = temp_of(e.st, p->pp);
  *m = (Main){.t = t,
              .unit_at = NEW_N(e.scratch, int, e.u->n),
              .written = NEW_N(e.scratch, bool, l->regions.nparam + 1),
              .fresh = NEW_N(e.scratch, bool, l->regions.nparam + 1)};
  uint64_t area[AREA_N], passes = l->end;
  for (int k = 0; k < AREA_N; k++) {
    m->area[k] = passes;
    passes += area[k] = offsets(e.scratch, t->buffer[k].at, t->buffer[k].n);
  }
  e.dead = MAX(passes + temp_bytes - l->end, l->kept);
  reserve_calls(&e, t, c->arena);
  bodies_number(&e, t, &m->bodies);
  number_units(&e, m->unit_at);
  unsharded_begin(&e, e.unsharded, m->unit_at, &m->unsharded);
  emit_main(&e, c, t, m);
  for (int k = 0; k < p->nbody; k++) body_write(&e, &m->bodies, k, passes, c->forward);
  p->nhandle = MAX(t->handles, 1);
  p->regions = l->regions;
  memory_report(&e, c, area, temp_bytes);
  KEEP(code, ncode);
  KEEP(body, nbody);
  KEEP(unit, nunit);
  KEEP(bind, nbind);
  p->call = e.call.at, p->ncall = (uint32_t)e.call.n;
  p->dyn = e.dyn.at, p->ndyn = (uint32_t)e.dyn.n;
  KEEP(operand, noperand);
  KEEP(attr, nattr);
  KEEP(what, nwhat);
  for (uint32_t i = 0; i < p->nwhat; i++) p->what[i] = arena_str(c->arena, p->what[i]);
  for (int i = 0; i < p->nbody; i++)
    p->body[i].name = arena_str(c->arena, p->body[i].name);
  p->number = arena_copy(c->arena, e.number.at, sizeof *p->number * (size_t)p->nunit);
  for (int i = 0; i < p->nunit; i++) p->unit[i] = arena_str(c->arena, p->unit[i]);
  memcpy(p->input, l->input, sizeof p->input);
  p->scalars = l->scalars;
  p->sums = l->sums_at;
  p->sums_bytes = l->sums_bytes;
  p->nscalar = scalar_count(e.u->sources);
}
