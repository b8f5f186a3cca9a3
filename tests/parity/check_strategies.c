/* check_strategies.c - what data-parallel ranks keep shards of: the same training as on
 * one rank whatever the mesh, the same bits as without any shard, and the bytes that a
 * rank is promised. `./dev fuzz` draws strategies for random plans, too. */
#include <check.h>
#include <math.h>

#include "tests/harness/run_bits.h"
#include "vm/weights/param_gather.h"

typedef struct Shape {
  int tp, pp, dp, replicate;
  bool sp;
} Shape;

static const Shape shape[] = {
    {1, 1, 2, 1, 0}, {1, 1, 4, 1, 0}, {1, 1, 4, 2, 0}, {1, 1, 3, 3, 0}, {1, 2, 2, 1, 0},
    {1, 2, 4, 2, 0}, {2, 1, 1, 1, 1}, {2, 1, 2, 1, 1}, {2, 1, 4, 2, 1}, {2, 2, 2, 1, 0},
    {2, 2, 2, 1, 1}, {2, 2, 3, 1, 1}, {2, 2, 4, 2, 1}, {2, 2, 4, 4, 0},
};

/* What is cut, and when it is whole. */
typedef struct Way {
  int stage;
  Reshard reshard;
  int prefetch[2];
  bool defer;
  int64_t persistence;
} Way;

static const Way way[] = {
    {0, RESHARD_BY_PP, {0, 0}, true, 0},  {1, RESHARD_BY_PP, {0, 0}, true, 0},
    {2, RESHARD_BY_PP, {0, 0}, true, 0},  {3, RESHARD_YES, {0, 0}, true, 0},
    {3, RESHARD_BY_PP, {1, 2}, true, 0},  {3, RESHARD_NO, {2, 1}, true, 0},
    {2, RESHARD_BY_PP, {1, 1}, false, 0}, {3, RESHARD_YES, {1, 2}, false, 0},
    {3, RESHARD_YES, {1, 1}, true, 100},  {3, RESHARD_NO, {0, 0}, false, 0},
    {3, RESHARD_BY_PP, {2, 2}, false, 0},
};

/* What else there is changes with the number of the shape. */
static ToyOptions toy_of(const Way *w, int i) {
  const Shape *s = &shape[i];
  ToyOptions o = meshed(s->tp, s->pp, s->dp);
  o.layers = 2, o.vocab = 51, o.bias = true;
  o.replicate = s->replicate, o.sp = s->sp;
  o.tied = i % 2, o.overlap = i / 2 % 3 > 0;
  o.bucket_bytes = i / 2 % 3 == 1 ? 1 : 16 << 10;
  o.strategy = (Strategy){.stage = w->stage,
                          .overlap_param_gather = i % 4 < 2,
                          .reshard = w->reshard,
                          .prefetch = {w->prefetch[0], w->prefetch[1]},
                          .defer_grad_sync = w->defer,
                          .persistence = w->persistence};
  return o;
}

/* What runs again goes round, too; the one rank keeps everything. */
static const Recompute again[] = {
    {0}, {.full = true}, {.selective = true}, {.cheap = true}};

/* Every third shape, others for the next way; the random plans of `./dev fuzz` have all
 * that goes together. */
START_TEST(agrees_with_one_rank) {
  for (int i = _i % 3; i < LEN(shape); i += 3) {
    ToyOptions o = toy_of(&way[_i], i);
    o.recompute = again[(i / 3 + _i) % LEN(again)];
    o.post_validation = i % 2;
    pair_agrees(&o);
  }
}
END_TEST

static void same_training(const Trace *a, Trace *b) {
  for (int k = 0; k < STEPS; k++)
    ck_assert_double_eq_tol(a->norm[k] / b->norm[k], 1, 1e-6);
  memcpy(b->norm, a->norm, sizeof a->norm);
  same_bits(a, b);
}

/* All gradients in one sum a step, and nothing scaled by a norm. */
START_TEST(shards_change_no_bit) {
  for (int i = _i % 4; i < LEN(shape) && way[_i].defer; i += 4) {
    ToyOptions o = toy_of(&way[0], i), flat = toy_of(&way[_i], i);
    o.clip = flat.clip = 0, o.dtype = flat.dtype = i % 2 ? DT_BF16 : DT_F32;
    Toy whole, cut;
    Trace a, b;
    trace(&whole, &o, 1, &a);
    trace(&cut, &flat, 1, &b);
    same_training(&a, &b);
    toy_free(&whole);
    toy_free(&cut);
  }
}
END_TEST

/* What a group keeps from forward to backward is the same bits as what all ranks keep. */
START_TEST(groups_change_no_bit) {
  static const Shape grouped[] = {
      {1, 1, 4, 1, 0}, {2, 1, 4, 1, 1}, {1, 2, 4, 1, 0}, {1, 1, 8, 2, 0}};
  ToyOptions all = meshed(grouped[_i].tp, grouped[_i].pp, grouped[_i].dp), some;
  all.layers = 2, all.vocab = 51, all.tied = _i % 2, all.sp = grouped[_i].sp;
  all.replicate = grouped[_i].replicate, all.overlap = true;
  all.dtype = _i % 2 ? DT_BF16 : DT_F32;
  all.strategy = (Strategy){.stage = 3,
                            .reshard = RESHARD_YES,
                            .prefetch = {_i % 3, _i},
                            .defer_grad_sync = _i < 2};
  some = all;
  some.strategy.reshard_to = 2;
  Toy a, b;
  Trace x, y;
  trace(&a, &all, 1, &x);
  trace(&b, &some, 1, &y);
  same_bits(&x, &y);
  int groups = 0;
  for (int i = 0; i < b.compiled->prog->ncomm; i++)
    if (b.compiled->prog->comm[i].axes == AXIS_BIT(AXIS_DP_INNER)) {
      ck_assert_int_eq(comm_size(&b.compiled->mesh, &b.compiled->prog->comm[i]), 2);
      ck_assert_int_gt(flow_of(b.compiled, 0, i, COLL_ALL_GATHER)->count, 1);
      groups++;
    }
  ck_assert_int_eq(groups, 1);
  toy_free(&a);
  toy_free(&b);
}
END_TEST

/* A value that is no number, in the shard of one rank, ends the run on all of them, which
 * says where it began. */
START_TEST(one_nan_stops_all) {
  ToyOptions o = toy_of(&way[_i], 4);
  Toy t;
  Run *r;
  StepResult res;
  open_toy(&t, &o, 1, &r);
  int last = t.compiled->nparam - 1;
  int64_t n = param_count(&t.compiled->param[last]);
  float *x = NEW_N(t.arena, float, n);
  OK(run_get(r, STATE_PARAM, last, x, &trace_err));
  x[n - 1] = NAN;
  OK(run_set(r, STATE_PARAM, last, x, &trace_err));
  int32_t *ids = NEW_N(t.arena, int32_t, 2 * t.plan.batch.global * t.plan.batch.seq);
  random_ids(&t, 0, ids, ids + t.plan.batch.global * t.plan.batch.seq);
  weft_status st = run_step_tokens(r, ids, ids + t.plan.batch.global * t.plan.batch.seq,
                                   0, &res, &trace_err);
  ck_assert_int_eq(st, WEFT_ERUN);
  ck_assert_msg(strstr(trace_err.text, "is nan; first seen on rank"), "%s",
                trace_err.text);
  run_close(r);
  toy_free(&t);
}
END_TEST

/* ---- bytes ---- */

enum { LAST_STAGE = 3 };

typedef struct Kept {
  uint64_t bytes, params, padding; /* padding: elements at most */
} Kept;

static Kept kept(const Program *p, int ways) {
  Kept k = {0};
  for (int i = 0; i < p->regions.nregion; i++)
    k.bytes += region_bytes(&p->regions.region[i]);
  for (int i = 0; i < p->regions.nparam; i++)
    k.params += (uint64_t)p->regions.param[i].count;
  k.padding = 128 * (uint64_t)(p->regions.nparam + p->regions.nblock * ways);
  return k;
}

/* Bytes of a parameter by Megatron's table: work and gradients, master and moments. */
static double promised(DType t, int stage, double d) {
  double work = dtype_size(t), grad = 4, state = t == DT_F32 ? 8 : 12;
  return (stage > 2 ? work / d : work) + (stage > 1 ? grad / d : grad) +
         (stage > 0 ? state / d : state);
}

START_TEST(bytes_of_a_parameter) {
  static const int ranks[] = {1, 2, 4, 8};
  for (int i = 0; i < LEN(ranks); i++)
    for (DType t = DT_F32; t <= DT_BF16; t++) {
      ToyOptions o = meshed(1, 1, ranks[i]);
      Toy toy;
      o.hidden = 256, o.ffn = 512, o.vocab = 512, o.dtype = t;
      o.strategy.stage = _i;
      ck_assert_int_eq(toy_compile(&toy, &o, NULL), WEFT_OK);
      Kept k = kept(&toy.compiled->prog[0], ranks[i]);
      double each = promised(t, _i, ranks[i]);
      ck_assert_double_ge((double)k.bytes, each * (double)k.params);
      ck_assert_double_le((double)k.bytes, each * (double)(k.params + k.padding));
      ck_assert_double_le((double)k.padding, 0.02 * (double)k.params);
      toy_free(&toy);
    }
}
END_TEST

/* With copies over dp_replicate only what is left of dp cuts. */
START_TEST(copies_are_no_shards) {
  ToyOptions o = meshed(1, 1, 4), half = meshed(1, 1, 2);
  o.replicate = 2;
  o.strategy.stage = half.strategy.stage = _i;
  Toy a, b;
  ck_assert_int_eq(toy_compile(&a, &o, NULL), WEFT_OK);
  ck_assert_int_eq(toy_compile(&b, &half, NULL), WEFT_OK);
  ck_assert_uint_eq(kept(&a.compiled->prog[0], 2).bytes,
                    kept(&b.compiled->prog[0], 2).bytes);
  toy_free(&a);
  toy_free(&b);
}
END_TEST

/* Ranks of cp have other tokens of the same sequences, and keep what those of dp would.
 */
START_TEST(cp_cuts_as_dp_does) {
  for (int copies = 1; copies <= 2; copies++) {
    ToyOptions o = meshed(1, 1, copies), dp = meshed(1, 1, 4 * copies);
    o.cp = 4, o.seq = 16, dp.seq = 4;
    o.replicate = dp.replicate = copies;
    o.strategy.stage = dp.strategy.stage = _i;
    Toy a, b;
    ck_assert_int_eq(toy_compile(&a, &o, NULL), WEFT_OK);
    ck_assert_int_eq(toy_compile(&b, &dp, NULL), WEFT_OK);
    ck_assert_uint_eq(kept(&a.compiled->prog[0], 4).bytes,
                      kept(&b.compiled->prog[0], 4).bytes);
    toy_free(&a);
    toy_free(&b);
  }
}
END_TEST

Suite *strategies_suite(void);
Suite *strategies_suite(void) {
  Suite *s = suite_create("strategies");
  TCase *c = tcase_create("training");
  tcase_set_timeout(c, 120);
  tcase_add_loop_test(c, agrees_with_one_rank, 0, LEN(way));
  tcase_add_loop_test(c, shards_change_no_bit, 1, LEN(way));
  tcase_add_loop_test(c, groups_change_no_bit, 0, 4);
  tcase_add_loop_test(c, one_nan_stops_all, 0, LEN(way));
  suite_add_tcase(s, c);
  c = tcase_create("bytes");
  tcase_add_loop_test(c, bytes_of_a_parameter, 0, LAST_STAGE + 1);
  tcase_add_loop_test(c, copies_are_no_shards, 0, LAST_STAGE + 1);
  tcase_add_loop_test(c, cp_cuts_as_dp_does, 0, LAST_STAGE + 1);
  suite_add_tcase(s, c);
  return s;
}
