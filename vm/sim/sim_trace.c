/* sim_trace.c - the events of a simulated step, written as those of a run are; see
 * sim_trace.h. */
#include "sim_trace.h"

#include "vm/run/trace_json.h"

typedef struct Events {
  const Compiled *c;
  Arena *a;
  VEC(TraceEvent) * rank; /* [pp] */
} Events;

enum { TICKS_OF_NS = 1000 };

static void add(Events *v, int pp, TraceKind kind, const Instr *in, int64_t from,
                int64_t to) {
  *VEC_PUSH(v->a, v->rank[pp]) =
      (TraceEvent){.from = from / TICKS_OF_NS,
                   .to = to / TICKS_OF_NS,
                   .kind = kind,
                   .instr = (uint32_t)(in - v->c->prog[pp].code),
                   .call = TRACE_MAIN};
}

static void ran(void *ud, int pp, const Instr *in, int64_t from, int64_t to) {
  if ((in->code == I_CALL || in->code == I_KERNEL) && to > from)
    add(ud, pp, TRACE_RUN, in, from, to);
}

/* What calls wait for inside is a part of them. */
static void waited(void *ud, int pp, const RankWait *w) {
  const Events *v = ud;
  if (w->what >= v->c->prog[pp].code + v->c->prog[pp].nmain) return;
  if (w->ended > w->came) add(ud, pp, TRACE_WAIT, w->what, w->came, w->ended);
  add(ud, pp, TRACE_MOVE, w->what, w->began, w->ended);
}

weft_status sim_trace(const Compiled *c, const Plan *plan, const CostTable *t, Arena *a,
                      Text *out, weft_error *e) {
  int npp = c->mesh.size[AXIS_PP];
  Events v = {
      .c = c, .a = a, .rank = (void *)arena_alloc(a, sizeof *v.rank * (size_t)npp)};
  SimOptions o = {.rates = sheet_rates(RATES_USUAL),
                  .table = t,
                  .ran = ran,
                  .waited = waited,
                  .ud = &v};
  SimReport r;
  TRY(simulate(c, plan, &o, a, &r, e));
  TraceOut to = {.out = out, .c = c};
  text_add(out, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[");
  for (int pp = 0; pp < npp; pp++)
    TRY(trace_write(&to, rank_on_pp(&c->mesh, 0, pp), v.rank[pp].at,
                    (uint32_t)v.rank[pp].n, 0, e));
  text_add(out, "\n]}\n");
  return WEFT_OK;
}
