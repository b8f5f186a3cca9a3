/* check_strategies.c - what data-parallel ranks keep shards of: the same training as on one
 * rank whatever the mesh, the same bits as without any shard, and the bytes that a rank is
 * promised. `./dev fuzz` draws strategies for random plans, too. */
#include <check.h>

#include "tests/lib/trace.h"

typedef struct Shape {
  int tp, pp, dp, replicate;
  bool sp;
} Shape;

static const Shape shape[] = {
    {1, 1, 2, 1, 0}, {1, 1, 4, 1, 0}, {1, 1, 4, 2, 0}, {1, 1, 3, 3, 0}, {1, 2, 2, 1, 0},
    {1, 2, 4, 2, 0}, {2, 1, 1, 1, 1}, {2, 1, 2, 1, 1}, {2, 1, 4, 2, 1}, {2, 2, 2, 1, 0},
    {2, 2, 2, 1, 1}, {2, 2, 3, 1, 1}, {2, 2, 4, 2, 1}, {2, 2, 4, 4, 0},
};

/* What goes with a shape changes with its number. */
static ToyOptions toy_of(int stage, int i) {
  const Shape *s = &shape[i];
  ToyOptions o = meshed(s->tp, s->pp, s->dp);
  o.layers = 2, o.vocab = 51, o.bias = true;
  o.replicate = s->replicate, o.sp = s->sp;
  o.tied = i % 2, o.overlap = i % 3 > 0;
  o.bucket_bytes = i % 3 == 1 ? 1 : 16 << 10;
  o.strategy.stage = stage;
  o.strategy.overlap_param_gather = i % 4 < 2;
  return o;
}

enum { LAST_STAGE = 3 };

START_TEST(agrees_with_one_rank) {
  for (int i = 0; i < LEN(shape); i++) {
    ToyOptions o = toy_of(_i, i);
    o.post_validation = i % 2;
    pair_agrees(&o);
  }
}
END_TEST

/* All gradients in one sum a step, and nothing scaled by a norm. */
START_TEST(shards_change_no_bit) {
  for (int i = 0; i < LEN(shape); i++) {
    ToyOptions o = toy_of(0, i);
    o.clip = 0, o.dtype = i % 2 ? DT_BF16 : DT_F32;
    Toy whole, cut;
    Trace a, b;
    trace(&whole, &o, 1, &a);
    o.strategy.stage = _i;
    trace(&cut, &o, 1, &b);
    for (int k = 0; k < STEPS; k++)
      ck_assert_double_eq_tol(a.norm[k] / b.norm[k], 1, 1e-6);
    memcpy(b.norm, a.norm, sizeof a.norm);
    same_bits(&a, &b);
    toy_free(&whole);
    toy_free(&cut);
  }
}
END_TEST

/* ---- bytes ---- */

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

Suite *strategies_suite(void);
Suite *strategies_suite(void) {
  Suite *s = suite_create("strategies");
  TCase *c = tcase_create("training");
  tcase_set_timeout(c, 120);
  tcase_add_loop_test(c, agrees_with_one_rank, 0, LAST_STAGE + 1);
  tcase_add_loop_test(c, shards_change_no_bit, 1, 2); /* later stages: a sum a microbatch */
  suite_add_tcase(s, c);
  c = tcase_create("bytes");
  tcase_add_loop_test(c, bytes_of_a_parameter, 0, LAST_STAGE + 1);
  tcase_add_loop_test(c, copies_are_no_shards, 0, LAST_STAGE + 1);
  suite_add_tcase(s, c);
  return s;
}
