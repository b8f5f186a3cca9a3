/* check_step_precision.c - steps of parameters, gradients and states in bf16 are those of
 * the same values in f32, whose results are rounded once: to the bit, on each device. */
#include <check.h>
#include <math.h>

#include "kernels/cpu/levels.h"
#include "kernels/cuda/cuda.h"
#include "tests/reference/kernel_sets.h"
#include "vm/base/bf16.h"
#include "vm/plan/optimizer.h"
#include "vm/program/program.h"

static bool steps(int op) {
  bool is = false;
  for (int i = 0; i < OPTIMIZER_N; i++)
    is |= op == optimizer_info[i].step || op == optimizer_info[i].attempt;
  return is;
}

/* The same values, which are exact, in f32. */
static Problem widened(const Problem *p) {
  Problem q = *p;
  for (int i = 0; i < q.nin; i++)
    if (q.in[i].type == DT_BF16) q.in[i].type = DT_F32;
  for (int i = 0; i < q.nout; i++)
    if (q.out[i].type == DT_BF16) q.out[i].type = DT_F32;
  return q;
}

static int compare(const KernelSet *set, const Problem *p) {
  Problem q = widened(p);
  KernelArgs half = kernel_run(set, p, 1, false), wide = kernel_run(set, &q, 1, false);
  int rounded = 0;
  for (int k = 0; k < p->nout; k++) {
    bool rounds = p->out[k].type == DT_BF16;
    for (int64_t i = 0; i < kernel_count(&half.out[k]); i++) {
      double got = kernel_element(half.out[k].p, half.out[k].dtype, i);
      double want = kernel_element(wide.out[k].p, wide.out[k].dtype, i);
      if (rounds) want = bf16_to_f32(bf16_from_f32((float)want));
      if (got != want)
        ck_abort_msg("%s: %s: result %d [%ld] is %a, f32 rounded is %a", set->name,
                     op_title(p->op), k, (long)i, got, want);
    }
    rounded += rounds;
  }
  kernel_free(p, &half);
  kernel_free(&q, &wide);
  return rounded;
}

START_TEST(rounded_once) {
  int rounded = 0;
  for (int i = 0; i < kernel_cases; i++) {
    const KernelCase *c = &kernel_case[i];
    if (!steps(c->op) || c->attr.kind != 0) continue;
    Problem p;
    problem_make(&p, c, DT_BF16, problem_seed(c));
    rounded += compare(kernel_sets[_i], &p);
    problem_free(&p);
  }
  ck_assert_int_gt(rounded, 20);
}
END_TEST

/* By chance a parameter becomes one of its two neighbours, in proportion to its distance
 * from them. */
enum { DRAWS = 1 << 14 };

static double mean_after(const KernelSet *set, uint64_t seed) {
  static bf16 p[DRAWS];
  static float g[DRAWS], m[DRAWS];
  double scal[SC_N] = {[SC_LR] = 0x1p-10, [SC_CLIP] = 1, [SC_STEP] = 2}, sum = 0;
  OpAttr attr = {.kind = 1, .seed = seed};
  KTensor t = {.ndim = 1, .dim = {DRAWS}}, s = {.p = scal, .dtype = DT_F64, .ndim = 1};
  KernelArgs a = {.attr = &attr, .nin = 4, .nout = 3};
  Device dev = set->device;
  dev.threads = 1, s.dim[0] = SC_N;
  for (int i = 0; i < DRAWS; i++) p[i] = bf16_from_f32(1), g[i] = 1 + (float)i * 1e-6f;
  t.p = p, t.dtype = DT_BF16, a.in[0] = a.out[0] = a.out[2] = t;
  t.p = g, t.dtype = DT_F32, a.in[1] = t;
  t.p = m, a.in[2] = a.out[1] = t;
  a.in[3] = s;
  set->kernel(OP_sgd)->run(&dev, &a);
  for (int i = 0; i < DRAWS; i++) {
    float v = bf16_to_f32(p[i]);
    ck_assert_msg(v == 1 || v == 1 - 0x1p-8f, "%s: %a", set->name, (double)v);
    sum += v;
  }
  return sum / DRAWS;
}

START_TEST(rounded_by_chance) {
  for (uint64_t seed = 1; seed < 4; seed++) {
    double mean = mean_after(kernel_sets[_i], seed);
    ck_assert_msg(fabs(mean - (1 - 0x1p-10)) < 0x1p-14, "%s: 1 - 2^-10 becomes %.9g",
                  kernel_sets[_i]->name, mean);
  }
}
END_TEST

Suite *step_precision_suite(void);
Suite *step_precision_suite(void) {
  Suite *s = suite_create("step_precision");
  TCase *tc = tcase_create("steps");
  tcase_set_timeout(tc, 120);
  tcase_add_loop_test(tc, rounded_once, 0, KERNEL_SETS);
  tcase_add_loop_test(tc, rounded_by_chance, 0, KERNEL_SETS);
  suite_add_tcase(s, tc);
  return s;
}
