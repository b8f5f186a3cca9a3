/* expect.c - checks the limits of plan.expect against the compiled plan. */
#include "job.h"

#include <math.h>

#include "vm/pipeline/timeline.h"
#include "vm/sim/step_clock.h"

static const struct {
  const char *name;
  bool whole;
} expect_info[EXPECT_N] = {
#define EXPECT(name, whole, doc) {#name, whole},
#include "vm/plan/expect.def"
};

#define GIB (1024.0 * 1024 * 1024)

static int most(const int *v, int n) {
  int best = 0;
  for (int i = 0; i < n; i++) best = MAX(best, v[i]);
  return best;
}

static void schedule_values(const Timeline *t, double value[EXPECT_N]) {
  value[EXPECT_bubble] = timeline_bubble(t);
  value[EXPECT_bubble_own] = timeline_bubble_own(t);
  value[EXPECT_peak_in_flight] = most(t->peak, t->ranks);
}

static void compiled_values(const Job *j, double value[EXPECT_N]) {
  const Compiled *c = j->compiled;
  const RankTraffic *t = traffic(c, j->arena);
  uint64_t sent = 0, collective = 0;
  int worst;
  for (int r = 0; r < c->mesh.size[AXIS_PP]; r++) {
    sent = MAX(sent, t[r].sent);
    collective = MAX(collective, t[r].collective);
  }
  value[EXPECT_collective_gib] = (double)collective / GIB;
  value[EXPECT_dp] = mesh_size(&c->mesh, AXES_DP);
  value[EXPECT_microbatches] = c->microbatches;
  value[EXPECT_p2p_gib] = (double)sent / GIB;
  value[EXPECT_parameters] = (double)params_of_model(c);
  value[EXPECT_peak_gib] = (double)job_worst_memory(j, &worst) / GIB;
  value[EXPECT_ranks] = c->mesh.world;
  value[EXPECT_stages] = j->schedule.ranks * j->schedule.virtual_stages;
}

/* Figures of the clock, if one of them is limited. */
static weft_status clock_values(Job *j, double value[EXPECT_N]) {
  const ExpectRange *step = &j->plan.expect[EXPECT_step_ms];
  const ExpectRange *mfu = &j->plan.expect[EXPECT_mfu];
  const char *why, *lacks = sim_lacks(&j->plan, &j->mesh, &why);
  SimReport r;
  if (!step->given && !mfu->given) return WEFT_OK;
  if (lacks) {
    diag_error(&j->d, "required", lacks, "%s, for expect.%s", why,
               step->given ? "step_ms" : "mfu");
    lang_locate(j->lp, &j->d);
    return WEFT_EPLAN;
  }
  SimOptions o = {.rates = sheet_rates(RATES_USUAL), .table = j->costs};
  TRY(simulate(j->compiled, &j->plan, &o, j->arena, &r, &j->e));
  value[EXPECT_step_ms] = r.seconds * 1e3;
  value[EXPECT_mfu] = (r.flops - r.recomputed) / r.seconds / r.peak;
  return WEFT_OK;
}

/* A limit of one number allows 1 % for figures that are not whole numbers. */
static bool met(const ExpectRange *r, bool whole, double value) {
  double room = r->low == r->high && !whole ? EXPECT_TOLERANCE * fabs(r->low) : 0;
  return value >= r->low - room && value <= r->high + room;
}

static const char *wanted(Arena *a, const ExpectRange *r, bool whole) {
  if (r->low == r->high)
    return arena_printf(a, whole ? "%.15g" : "%.15g (within 1 %%)", r->low);
  if (isinf(r->low)) return arena_printf(a, "at most %.15g", r->high);
  if (isinf(r->high)) return arena_printf(a, "at least %.15g", r->low);
  return arena_printf(a, "%.15g to %.15g", r->low, r->high);
}

weft_status job_expect(Job *j, int *n) {
  double value[EXPECT_N];
  Timeline t;
  int given = 0, errors = j->d.errors;
  for (int k = 0; k < EXPECT_N; k++) given += j->plan.expect[k].given;
  if (n) *n = given;
  if (!given) return WEFT_OK;
  Schedule step = job_step_schedule(j, j->arena);
  TRY(timeline_run(&step, TIMELINE_UNIT, j->arena, &t, &j->e));
  schedule_values(&t, value);
  compiled_values(j, value);
  TRY(clock_values(j, value));
  for (int k = 0; k < EXPECT_N; k++) {
    const ExpectRange *r = &j->plan.expect[k];
    bool whole = expect_info[k].whole;
    if (!r->given || met(r, whole, value[k])) continue;
    diag_error(&j->d, "expect", arena_printf(j->arena, "expect.%s", expect_info[k].name),
               "is %.*g, expected %s", whole ? 15 : 6, value[k],
               wanted(j->arena, r, whole));
  }
  if (j->d.errors == errors) return WEFT_OK;
  lang_locate(j->lp, &j->d);
  return WEFT_EPLAN;
}
