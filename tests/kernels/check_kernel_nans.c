/* check_kernel_nans.c - a NaN that goes into a kernel comes out of it, on every device:
 * so a step stops where it arose, and none goes on with numbers that look right. */
#include <check.h>
#include <math.h>
#include <stdlib.h>

#include "tests/reference/kernel_sets.h"
#include "vm/base/dynamic8.h"
#include "vm/program/program.h"

/* Operands whose NaNs do not come out, as they choose or bound what other operands are,
 * which are a NaN then, too. */
static const struct {
  int op;
  const char *operands, *why;
} loses[] = {
    {OP_permute, "2", "weights choose which rows are dropped"},
    {OP_route, "1", "what is added to scores chooses experts"},
    {OP_bias_step, "1", "counts"},
    {OP_amax, "0", "after rounding the element is one"},
    {OP_linear_fp8, "23", "largest magnitudes are none"},
    {OP_linear_fp8_dx, "23", "largest magnitudes are none"},
    {OP_linear_fp8_dw, "23", "largest magnitudes are none"},
    {OP_ce_max, "0", "the sum of exponentials is one"},
    {OP_relu_dx, "0", "where the result is 0 or not finite; PyTorch's is 0, too"},
    {OP_clamp_dx, "0", "where the result is at a limit or not finite; likewise"},
};

static bool may_lose(int op, int operand) {
  for (int i = 0; i < LEN(loses); i++)
    if (loses[i].op == op && strchr(loses[i].operands, '0' + operand)) return true;
  return false;
}

static int64_t count(const Value *x) {
  KTensor t = kernel_tensor(x);
  return kernel_count(&t);
}

/* In a result that does not lie over operand k. */
static bool has_nan(const Problem *p, const KernelArgs *a, int k) {
  for (int i = 0; i < a->nout; i++)
    for (int64_t j = 0; p->out[i].alias != k && j < kernel_count(&a->out[i]); j++)
      if (isnan(kernel_element(a->out[i].p, a->out[i].dtype, j))) return true;
  return false;
}

/* Whether such a result hangs on operand k: it is not, say, of a step that is held. */
static bool is_used(Problem *p, int k) {
  Value *x = &p->in[k];
  bool used = false;
  double *kept = x->v;
  int64_t n = count(x);
  KernelArgs was = kernel_run(&kernels_cpu, p, 1, false);
  x->v = malloc((size_t)n * sizeof *x->v);
  for (int64_t i = 0; i < n; i++) x->v[i] = 0.25 - 1.5 * kept[i];
  KernelArgs is = kernel_run(&kernels_cpu, p, 1, false);
  for (int i = 0; i < p->nout; i++)
    used |= p->out[i].alias != k &&
            memcmp(was.out[i].p, is.out[i].p, kernel_bytes(&was.out[i])) != 0;
  kernel_free(p, &was);
  kernel_free(p, &is);
  free(x->v);
  x->v = kept;
  return used;
}

/* Large ones on the CPU alone, which takes no time for them. */
static void check_operand(const Problem *p, int k) {
  enum { LARGE = 1 << 14 };
  int64_t all = 0;
  for (int i = 0; i < p->nin; i++) all += count(&p->in[i]);
  for (int s = 0; s < (all > LARGE ? 1 : KERNEL_SETS); s++) {
    KernelArgs got = kernel_run(kernel_sets[s], p, 1, false);
    ck_assert_msg(has_nan(p, &got, k), "%s: %s: NaNs of operand %d are lost",
                  kernel_sets[s]->name, op_title(p->op), k);
    kernel_free(p, &got);
  }
}

/* With each operand of numbers in turn all NaN. */
static void check_problem(Problem *p) {
  for (int k = 0; k < p->nin; k++) {
    Value *x = &p->in[k];
    int64_t n = count(x);
    double *kept = x->v;
    if (x->type != DT_F32 || may_lose(p->op, k) || !is_used(p, k)) continue;
    x->v = malloc((size_t)n * sizeof *x->v);
    for (int64_t i = 0; i < n; i++) x->v[i] = NAN;
    check_operand(p, k);
    free(x->v);
    x->v = kept;
  }
}

START_TEST(forward_case) {
  const KernelCase *c = &kernel_case[_i];
  Problem p;
  problem_make(&p, c, DT_F32, problem_seed(c));
  check_problem(&p);
  problem_free(&p);
}
END_TEST

START_TEST(backward_case) {
  const GradCase *g = &grad_case[_i];
  for (int i = 0; i < kernel_cases; i++) {
    if (!grad_case_is_of(g, &kernel_case[i])) continue;
    Problem p;
    problem_grad(&p, NULL, g, &kernel_case[i], DT_F32, problem_seed(&kernel_case[i]));
    check_problem(&p);
    problem_free(&p);
  }
}
END_TEST

/* ---- one among numbers ---- */

/* One NaN in the middle of an operand shows in the first result. */
static const struct {
  int op, operand;
} shows[] = {{OP_route, 0}, {OP_lion, 1}, {OP_lion, 2}};

START_TEST(one_shows) {
  int k = shows[_i].operand, tried = 0;
  for (int i = 0; i < kernel_cases; i++) {
    Problem p;
    if (kernel_case[i].op != shows[_i].op) continue;
    problem_make(&p, &kernel_case[i], DT_F32, problem_seed(&kernel_case[i]));
    bool keys = p.op == OP_route && p.nin == 2 && p.in[1].ndim == 2;
    if (!keys && is_used(&p, k)) {
      p.in[k].v[count(&p.in[k]) / 2] = NAN;
      for (int s = 0; s < KERNEL_SETS; s++, tried++) {
        KernelArgs got = kernel_run(kernel_sets[s], &p, 1, false);
        got.nout = 1;
        ck_assert_msg(has_nan(&p, &got, k), "%s: case %d of %s, operand %d",
                      kernel_sets[s]->name, i, op_title(p.op), k);
        kernel_free(&p, &got);
      }
    }
    problem_free(&p);
  }
  ck_assert_int_gt(tried, 0);
}
END_TEST

/* A choice whose weight is a NaN of either sign keeps its row. */
START_TEST(rows_of_nans_are_kept) {
  enum { WEIGHTS = 2, ROWS = 2, MOST = 40 };
  for (int i = 0; i < kernel_cases; i++) {
    const KernelCase *c = &kernel_case[i];
    Problem p;
    if (c->op != OP_permute || c->attr.drop != DROP_PROBS) continue;
    problem_make(&p, c, DT_F32, problem_seed(c));
    double *w = p.in[WEIGHTS].v;
    int64_t n = count(&p.in[WEIGHTS]);
    for (int64_t k = 0; k < n && k < MOST; k++) {
      double was = w[k];
      w[k] = k % 2 ? -NAN : NAN;
      for (int s = 0; s < KERNEL_SETS; s++) {
        KernelArgs got = kernel_run(kernel_sets[s], &p, 1, false);
        ck_assert_msg(((int32_t *)got.out[ROWS].p)[k] != ROW_DROPPED,
                      "%s: case %d, choice %ld", kernel_sets[s]->name, i, (long)k);
        kernel_free(&p, &got);
      }
      w[k] = was;
    }
    problem_free(&p);
  }
}
END_TEST

/* A norm that is a NaN clips to one, and the step is left out. */
START_TEST(a_norm_clips_to_one) {
  const KernelSet *set = kernel_sets[_i];
  double scal[SC_N] = {[SC_SCALE] = 1, [SC_TOKENS] = 5, [SC_NORM2] = NAN};
  OpAttr attr = {.clip = 1};
  KTensor t = {.p = scal, .dtype = DT_F64, .ndim = 1, .dim = {SC_N}};
  KernelArgs a = {.attr = &attr, .nin = 1, .nout = 1, .in = {t}, .out = {t}};
  Device dev = set->device;
  dev.threads = 1;
  set->kernel(OP_clip_coef)->run(&dev, &a);
  ck_assert(isnan(scal[SC_CLIP]) && scal[SC_SKIP] == 1 && scal[SC_HOLD] == 1);
}
END_TEST

/* Averages in 8 bits of a block that had none stay so. */
START_TEST(blocks_stay) {
  enum { N = DYNAMIC8_BLOCK };
  const KernelSet *set = kernel_sets[_i];
  float p[N] = {0}, g[N] = {0};
  Dynamic8 m = {.largest = NAN}, v = {.largest = 0};
  double scal[SC_N] = {[SC_LR] = 1e-3, [SC_CLIP] = 1, [SC_STEP] = 1};
  scal[SC_BC1] = 0.1, scal[SC_BC2] = 0.001;
  OpAttr attr = {.beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8};
  KTensor f = {.p = p, .dtype = DT_F32, .ndim = 1, .dim = {N}}, of_g = f;
  KTensor of_m = {.p = &m, .dtype = DT_Q8, .ndim = 1, .dim = {1}}, of_v = of_m;
  KTensor of_scal = {.p = scal, .dtype = DT_F64, .ndim = 1, .dim = {SC_N}};
  of_g.p = g, of_v.p = &v, of_v.dtype = DT_UQ8;
  KernelArgs a = {.attr = &attr,
                  .nin = 5,
                  .nout = 4,
                  .in = {f, of_g, of_m, of_v, of_scal},
                  .out = {f, of_m, of_v, f}};
  Device dev = set->device;
  dev.threads = 1;
  set->kernel(OP_adamw_8bit)->run(&dev, &a);
  ck_assert(!isfinite(m.largest) && v.largest == 0);
}
END_TEST

Suite *kernel_nans_suite(void);
Suite *kernel_nans_suite(void) {
  Suite *s = suite_create("kernel_nans");
  TCase *tc = tcase_create("nans");
  tcase_set_timeout(tc, 120);
  tcase_add_loop_test(tc, forward_case, 0, kernel_cases);
  tcase_add_loop_test(tc, backward_case, 0, grad_cases);
  tcase_add_loop_test(tc, one_shows, 0, LEN(shows));
  tcase_add_test(tc, rows_of_nans_are_kept);
  tcase_add_loop_test(tc, a_norm_clips_to_one, 0, KERNEL_SETS);
  tcase_add_loop_test(tc, blocks_stay, 0, KERNEL_SETS);
  suite_add_tcase(s, tc);
  return s;
}
