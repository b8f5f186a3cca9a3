/* check_reduce_dtype.c - gradients that are summed over data-parallel ranks in bf16: what
 * is rounded where, against sums made by hand; the same bits whatever is cut; half of the
 * bytes; and one rank that rounds nothing. */
#include <check.h>

#include "tests/harness/gradient_sums.h"
#include "vm/base/f16.h"
#include "vm/storage/memory_plan.h"
#include "vm/weights/param_gather.h"

/* ---- sums by hand ---- */

/* Each rank's gradients are rounded once, a sum is made in f32 and rounded once; that of
 * the second step, over copies of shards, again. `each`: of each microbatch, whose sums
 * add up in f32. A step that knows a part of its labels divides by their number, which
 * is by a power of two more than it is, so that its gradients are so much larger. */
static void sum_by_hand(Run *r, Toy *t, int copies, bool each, float *sum) {
  int n = (int)t->compiled->params_total, group = SUM_RANKS / copies;
  int parts = each ? SUM_MICROBATCHES : 1;
  float *half[SUM_RANKS] = {0};
  for (int c = 0; c < copies; c++) {
    half[c] = NEW_N(t->arena, float, n);
    for (int p = 0; p < parts; p++) {
      float *one = NEW_N(t->arena, float, n);
      for (int k = 0; k < group; k++) {
        const float *x = gradients_of_part(r, t, c * group + k, each ? p : -1);
        for (int i = 0; i < n; i++)
          one[i] += rounded_to_bf16(x[i] / (float)(SUM_RANKS * parts));
      }
      for (int i = 0; i < n; i++) half[c][i] += rounded_to_bf16(one[i]);
    }
  }
  memcpy(sum, half[0], sizeof *sum * (size_t)n);
  for (int i = 0; i < n && copies > 1; i++)
    sum[i] = rounded_to_bf16(rounded_to_bf16(half[0][i]) + rounded_to_bf16(half[1][i]));
}

static void is_the_sum_by_hand(int stage, int copies, bool defer) {
  ToyOptions o = sum_options(stage, copies, defer);
  Toy one;
  Run *r;
  sum_open_one(&one, &r);
  float *want = NEW_N(one.arena, float, one.compiled->params_total);
  sum_by_hand(r, &one, copies, stage >= 2 && !defer, want);
  run_close(r);
  o.reduce = DT_BF16;
  sum_is(&o, want);
  toy_free(&one);
}

START_TEST(rounded_once_for_each_sum) {
  for (int copies = 1; copies <= 2; copies++) is_the_sum_by_hand(_i, copies, true);
  if (_i >= 2)
    for (int copies = 1; copies <= 2; copies++) is_the_sum_by_hand(_i, copies, false);
}
END_TEST

/* ---- whole runs ---- */

static const int reduced_meshes[][4] = {
    {1, 1, 2, 1}, {2, 1, 2, 1}, {1, 2, 4, 2}, {2, 2, 2, 1}, {2, 1, 4, 2}};

static ToyOptions of_mesh(int i, int stage) {
  ToyOptions o = sum_on_mesh(reduced_meshes[i], i, stage);
  o.dtype = i % 2 ? DT_BF16 : DT_F32, o.reduce = DT_BF16;
  return o;
}

START_TEST(agrees_with_one_rank) { sum_agrees_with_one_rank(of_mesh, _i, 2e-2); }
END_TEST

START_TEST(shards_change_no_bit) { sum_changes_no_bit(of_mesh, _i); }
END_TEST

/* ---- bytes ---- */

/* That the ranks of pp rank 0 give to sums of gradients over dp. */
static uint64_t summed(const Toy *t) {
  const Compiled *c = t->compiled;
  uint64_t bytes = 0;
  for (int i = 0; i < c->prog->ncomm; i++) {
    const CommDesc *d = &c->prog->comm[i];
    if (!(d->axes & AXES_DP) || d->axes & AXIS_BIT(AXIS_PP)) continue;
    bytes += flow_of(c, 0, i, COLL_REDUCE_SCATTER)->bytes;
    bytes += flow_of(c, 0, i, COLL_ALL_REDUCE)->bytes;
  }
  return bytes;
}

static uint64_t bytes_of(const Toy *t, const char *class) {
  const Program *p = &t->compiled->prog[0];
  for (int i = 0; i < p->nmem; i++)
    if (strcmp(p->mem[i].name, class) == 0) return p->mem[i].bytes;
  return 0;
}

/* The most that one sum outside of bodies takes, of those in bf16. All are over dp; where
 * several follow each other they take turns in two places. */
static uint64_t largest_sum(const Toy *t) {
  const Program *p = &t->compiled->prog[0];
  uint64_t most = 0, last = 0;
  int sums = 0, moved = 0;
  for (uint32_t i = 0; i < p->nmain; i++) {
    const Instr *x = &p->code[i];
    const Operand *o = &p->operand[x->operand];
    if (x->code != I_COLL || x->coll == COLL_ALL_GATHER || o->dtype != DT_BF16) continue;
    ck_assert(p->comm[x->comm].axes & AXES_DP);
    moved += sums++ > 0 && o->off != last;
    last = o->off;
    most = MAX(most, operand_bytes(o));
  }
  ck_assert_int_eq(moved, MAX(sums - 1, 0));
  return most;
}

static void compiled_of(Toy *t, ToyOptions o, DType reduce) {
  o.reduce = reduce;
  weft_status st = toy_compile(t, &o, NULL);
  ck_assert_msg(st == WEFT_OK, "%d: %s%s", st, t->err.text, toy_diags(t));
}

/* On the wire half of the bytes but for the norm and the loss; in the arena two places
 * for the largest bucket, or what the whole gradients of a block leave. */
START_TEST(half_of_the_bytes) {
  for (int i = 0; i < LEN(reduced_meshes); i++) {
    Toy wide, half;
    compiled_of(&wide, of_mesh(i, _i), DT_F32);
    compiled_of(&half, of_mesh(i, _i), DT_BF16);
    uint64_t scalars = 2 * summed(&half) - summed(&wide);
    ck_assert_uint_gt(summed(&wide), 4096);
    ck_assert_uint_le(scalars, 8 * SC_N);
    uint64_t more = bytes_of(&half, "gather buffers") - bytes_of(&wide, "gather buffers");
    uint64_t most = largest_sum(&half);
    if (_i < 2) ck_assert_uint_eq(more, 2 * align_up(most));
    ck_assert_uint_eq(half.compiled->prog[0].arena_bytes,
                      wide.compiled->prog[0].arena_bytes + more);
    toy_free(&wide);
    toy_free(&half);
  }
}
END_TEST

Suite *reduce_dtype_suite(void);
Suite *reduce_dtype_suite(void) {
  Suite *s = suite_create("reduce_dtype");
  TCase *c = tcase_create("reduce_dtype");
  tcase_add_loop_test(c, rounded_once_for_each_sum, 0, SUM_STAGES);
  tcase_add_loop_test(c, agrees_with_one_rank, 0, LEN(reduced_meshes));
  tcase_add_loop_test(c, shards_change_no_bit, 0, LEN(reduced_meshes));
  tcase_add_loop_test(c, half_of_the_bytes, 0, SUM_STAGES);
  suite_add_tcase(s, c);
  return s;
}
