/* run_bits.c - see run_bits.h. */
#include "run_bits.h"

#include <check.h>

#include "vm/base/rng.h"
#include "vm/weights/param_gather.h"

weft_error trace_err;

void open_toy(Toy *t, const ToyOptions *o, int threads, Run **r) {
  weft_status st = toy_compile(t, o, NULL);
  ck_assert_msg(st == WEFT_OK, "%d: %s%s", st, t->err.text, toy_diags(t));
  RunOptions options = {.world = world_kind("local", NULL), .threads = threads};
  OK(run_open(&t->plan, t->compiled, &options, r, &trace_err));
  OK(run_init(*r, &trace_err));
}

void random_ids(const Toy *t, int64_t k, int32_t *tokens, int32_t *labels) {
  Rng rng = rng_make(11, "ids");
  int64_t n = t->plan.batch.global * t->plan.batch.seq;
  for (int64_t i = 0; i < n; i++) {
    uint64_t at = (uint64_t)(k * n + i) * 2;
    tokens[i] = (int32_t)(rng_u32(&rng, at) % (uint32_t)t->compiled->vocab);
    labels[i] = (int32_t)(rng_u32(&rng, at + 1) % (uint32_t)t->compiled->vocab);
  }
}

void trace_step(Run *r, const Toy *t, int64_t k, StepResult *out) {
  size_t n = (size_t)(t->plan.batch.global * t->plan.batch.seq);
  int32_t *ids = NEW_N(t->arena, int32_t, 2 * n);
  random_ids(t, k, ids, ids + n);
  OK(run_step_tokens(r, ids, ids + n, k, out, &trace_err));
}

void read_state(Run *r, Toy *t, Trace *x) {
  const Compiled *c = t->compiled;
  for (int k = 0; k < kept_kinds(c); k++) {
    float *to = x->state[k] = NEW_N(t->arena, float, c->params_total);
    for (int i = 0; i < c->nparam; i++) {
      OK(run_get(r, kept_kind(k), i, to, &trace_err));
      to += param_count(&c->param[i]);
    }
    x->n = to - x->state[k];
  }
  ck_assert_int_eq(x->n, (int64_t)c->params_total);
  x->kinds = kept_kinds(c);
}

void trace(Toy *t, const ToyOptions *o, int threads, Trace *x) {
  Run *r;
  open_toy(t, o, threads, &r);
  for (int k = 0; k < STEPS; k++) {
    StepResult res;
    trace_step(r, t, k, &res);
    x->loss[k] = res.loss, x->norm[k] = res.grad_norm;
  }
  read_state(r, t, x);
  run_close(r);
}

void same_bits(const Trace *a, const Trace *b) {
  ck_assert_mem_eq(a->loss, b->loss, sizeof a->loss);
  ck_assert_mem_eq(a->norm, b->norm, sizeof a->norm);
  ck_assert_int_eq(a->n, b->n);
  ck_assert_int_eq(a->kinds, b->kinds);
  for (int k = 0; k < a->kinds; k++)
    ck_assert(memcmp(a->state[k], b->state[k], sizeof(float) * (size_t)a->n) == 0);
}

ToyOptions meshed(int tp, int pp, int dp) {
  ToyOptions o = toy_default();
  o.tp = tp, o.pp = pp, o.dp = dp, o.microbatches = 4;
  return o;
}
