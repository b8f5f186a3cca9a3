/* sizing.c - what the field's rules of sizing say about a plan for GPUs: each with its
 * reason, and with what another setting would gain, by exact memory and by the clock. */
#include "bindings/schema/schema.h"
#include "job.h"
#include "vm/pipeline/timeline.h"

/* Below a gain of so much nothing is said. */
#define LEAST_GAIN 0.05
#define GIB        (1024.0 * 1024 * 1024)

static int dp_of(const Job *j) {
  return j->mesh.size[AXIS_DP_SHARD] * j->mesh.size[AXIS_DP_REPLICATE];
}

/* ---- microbatches ---- */

static void micro_of_one(Job *j) {
  j->microbatches *= (int)j->plan.batch.micro;
  j->plan.batch.micro = 1;
}

/* 1f1b and its like stand still for pp - 1 microbatches, in each round: few are fewer
 * than four for each rank, or another schedule that is as idle. */
static void few_microbatches(Job *j, double now) {
  enum { TIMES = 4 };
  int pp = j->mesh.size[AXIS_PP];
  Timeline t;
  if (pp == 1 || j->plan.batch.micro == 1) return;
  Schedule step = job_step_schedule(j, j->arena);
  if (timeline_run(&step, TIMELINE_UNIT, j->arena, &t, &j->e) != WEFT_OK) return;
  if (timeline_bubble(&t) <= (pp - 1.0) / (TIMES * pp + pp - 1)) return;
  WhatIf one;
  job_what_if(j, micro_of_one, true, &one);
  if (!one.compiles || !(one.seconds > 0) || one.seconds > (1 - LEAST_GAIN) * now) return;
  diag_warn(&j->d, "few-microbatches", "batch.micro",
            "%d microbatches on %d pipeline ranks leave %.0f %% of the step idle; with "
            "micro = 1 there are %lld, and by the clock a step takes %.3g s instead of "
            "%.3g s",
            step.microbatches, pp, 100 * timeline_bubble(&t),
            (long long)(step.microbatches * j->plan.batch.micro), one.seconds, now);
}

/* ---- types ---- */

static void says_precision(lua_State *L, void *ud) {
  Job *j = ((void **)ud)[0];
  bool *said = ((void **)ud)[1];
  static const char *const fields[] = {"precision", "strategy.mp_policy",
                                       "strategy.autocast_dtype"};
  int top = lua_gettop(L);
  for (int i = 0; i < LEN(fields); i++) {
    *said |= field_said(L, j->arena, fields[i]) != NULL;
    lua_settop(L, top);
  }
}

static void in_bf16(Job *j) { j->plan.dtype = DT_BF16; }

/* Whoever says no type computes in f32, at a fraction of what the GPU is bought for. */
static void f32_by_default(Job *j, double now) {
  bool said = false;
  void *of[] = {j, &said};
  WhatIf half;
  if (j->plan.dtype != DT_F32 || !(j->plan.cluster.bf16 > 2 * j->plan.cluster.f32))
    return;
  if (state_protect(j->lp->state, says_precision, of, &j->e) != WEFT_OK || said) return;
  job_what_if(j, in_bf16, true, &half);
  if (!half.compiles || !(half.seconds > 0) || half.seconds > now / 2) return;
  diag_warn(
      &j->d, "f32-by-default", "precision",
      "nothing says the type, so all is computed in f32; with \"bf16\" a step takes "
      "%.3g s by the clock instead of %.3g s",
      half.seconds, now);
}

/* ---- copies ---- */

static void cut_state(Job *j) {
  j->plan.strategy.kind = STRATEGY_ZERO;
  j->plan.strategy.stage = 1;
}

/* Reducing and gathering moves as many bytes as summing everywhere. */
static void all_copies(Job *j, double now) {
  enum { PART = 4 }; /* of the GPU's memory */
  const Strategy *s = &j->plan.strategy;
  bool copies = s->kind == STRATEGY_DDP || (s->kind == STRATEGY_ZERO && s->stage == 0);
  int pp;
  WhatIf cut;
  if (!copies || dp_of(j) == 1 || j->plan.opt.post_validation) return;
  double has = (double)job_worst_memory(j, &pp);
  job_what_if(j, cut_state, true, &cut);
  double saved = (has - cut.memory) / GIB;
  if (!cut.compiles || PART * saved < j->plan.cluster.memory_gib) return;
  if (!(cut.seconds > 0) || cut.seconds > (1 + LEAST_GAIN) * now) return;
  diag_warn(
      &j->d, "all-copies", "strategy",
      "each of %d data-parallel ranks keeps all states of the optimizer; \"zero\" "
      "with stage = 1 needs %.1f GiB less on a rank, and a step takes %.3g s by the "
      "clock, here %.3g s",
      dp_of(j), saved, cut.seconds, now);
}

/* ---- sequences ---- */

/* Activations grow with the tokens of a rank, which nothing but tp and cp cut. */
static void long_sequence(Job *j, double room) {
  enum { LONG = 32768 };
  int pp;
  uint64_t worst = job_worst_memory(j, &pp), most = 0;
  if (j->plan.batch.seq < LONG || j->mesh.size[AXIS_CP] > 1 || dp_of(j) == 1) return;
  const Program *p = &j->compiled->prog[pp];
  for (int i = 0; i < p->nmem; i++)
    if (str_eq(p->mem[i].name, "activations")) most = p->mem[i].bytes;
  if ((double)worst <= room || 2 * most < worst) return;
  diag_warn(&j->d, "long-sequence", "batch.seq",
            "activations of %lld tokens take %.1f of %.1f GiB on a rank: mesh.cp = 2 "
            "leaves half of the tokens to each",
            (long long)j->plan.batch.seq, (double)most / GIB, (double)worst / GIB);
}

void job_sizing(Job *j) {
  if (!j->plan.cluster.gpu) return;
  double now = job_step_seconds(j, j->arena);
  long_sequence(j, plan_memory_limit(&j->plan));
  if (!(now > 0)) return;
  few_microbatches(j, now);
  f32_by_default(j, now);
  all_copies(j, now);
}
