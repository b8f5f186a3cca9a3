/* prove.c - prove(): the programs of all pp ranks end on the abstract machine; and
 * run_costs(), the same walk with costs.
 *
 * What is proven holds for two backends at once. Both have one FIFO per communicator and
 * one per ordered pair of ranks. The first runs collectives of different communicators
 * side by side; on the second, as with NCCL, they share the GPU: those of a rank run in
 * the order of their starts, so these need one order over all ranks (transfers between
 * two ranks are small and run beside them). Whatever ends on the second ends on the
 * first, and what touches which bytes when is the same; so only the second is walked, and
 * the first only to say whether a program that blocks would end there. */
#include "program_check.h"
#include "machine.h"

/* What closed bodies moved comes to what was counted one by one. */
static void add_flow(Machine *m) {
  for (int pp = 0; pp < m->npp; pp++) {
    const RankState *r = &m->rank[pp];
    for (int i = 0; i < r->p->nbody; i++) {
      const BodySum *s = &r->body[i];
      for (int j = 0; j < s->comm.n && s->runs; j++)
        for (CollKind k = COLL_ALL_REDUCE; k < COLL_PAIRS; k++) {
          Flow *f = &m->flow[flow_index(m->c, pp, s->comm.at[j].comm, k)];
          f->count += s->runs * s->comm.at[j].flow[k].count;
          f->bytes += (uint64_t)s->runs * s->comm.at[j].flow[k].bytes;
        }
    }
  }
}

static weft_status prove_in(const Compiled *c, Arena *a, Proof *p, weft_error *e) {
  Machine m, first;
  machine_begin(&m, c, NULL, machine_spans(c), a, e);
  TRY(machine_run(&m));
  if (walk_left(&m.walk) >= 0 && m.in_order) {
    machine_begin(&first, c, NULL, false, a, e);
    TRY(machine_run(&first));
    if (walk_left(&first.walk) >= 0) return report_blocked(&first);
  }
  if (walk_left(&m.walk) >= 0) return report_blocked(&m);
  add_flow(&m);
  m.proof.communicators = c->prog->ncomm;
  if (c->flow) memcpy(c->flow, m.flow, sizeof *m.flow * flow_room(c));
  if (p) *p = m.proof;
  return WEFT_OK;
}

/* What calls waited for that were one step each. */
static void tell_waits(const Machine *m) {
  for (int pp = 0; pp < m->npp && m->costs->waited; pp++) {
    const RankState *r = &m->rank[pp];
    for (int i = 0; i < r->p->nbody; i++)
      for (int j = 0; j < r->body[i].wait.n && r->body[i].runs; j++) {
        const BodyWait *w = &r->body[i].wait.at[j];
        m->costs->waited(m->costs->ud, pp,
                         &(RankWait){.what = &r->p->code[w->pc],
                                     .ended = w->ticks,
                                     .times = r->body[i].runs});
      }
  }
}

static weft_status costs_in(const Compiled *c, Arena *a, const RunCosts *costs,
                            RankTime *out, weft_error *e) {
  Machine m;
  machine_begin(&m, c, costs, costs->in_order, a, e);
  TRY(machine_run(&m));
  if (walk_left(&m.walk) >= 0) return report_blocked(&m);
  tell_waits(&m);
  for (int i = 0; i < m.npp; i++) {
    int64_t end = m.walk.rank[i].now, busy = m.rank[i].busy_ticks;
    int64_t shared = m.rank[i].shared_ticks;
    out[i] = (RankTime){end, busy, end - busy - shared, shared};
  }
  return WEFT_OK;
}

/* Of prove() or, if there are costs, of run_costs(). */
typedef struct Walking {
  const Compiled *c;
  Proof *p;
  const RunCosts *costs;
  RankTime *out;
} Walking;

static weft_status walk(Arena *a, void *ud, weft_error *e) {
  const Walking *w = ud;
  return w->costs ? costs_in(w->c, a, w->costs, w->out, e) : prove_in(w->c, a, w->p, e);
}

weft_status prove(const Compiled *c, Proof *p, weft_error *e) {
  TRY(program_check(c, e));
  return arena_scoped(arena_allocator(c->arena), walk, &(Walking){.c = c, .p = p}, e);
}

weft_status run_costs(const Compiled *c, const RunCosts *costs, RankTime *out,
                      weft_error *e) {
  Walking w = {.c = c, .costs = costs, .out = out};
  return arena_scoped(arena_allocator(c->arena), walk, &w, e);
}
