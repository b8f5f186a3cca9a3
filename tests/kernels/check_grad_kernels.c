/* check_grad_kernels.c - the backward ops of the reference against central differences of
 * its forward ops, in f64. So the gradients of the kernels stand on the forward formulas
 * alone. */
#include <check.h>
#include <math.h>
#include <stdlib.h>

#include "tests/reference/kernel_cases.h"

/* sum over outputs of d * y: the scalar whose gradient the backward op gives. For the
 * cross entropy it is the loss times its seed. */
static double objective(const Problem *f, const GradCase *g, const Problem *b) {
  RefArgs a = problem_ref(f, false);
  ref_ops[f->op](&a);
  if (g->op == OP_ce_dx) {
    double loss;
    RefArgs l = {.attr = &f->attr, .nin = 3, .nout = 1};
    l.in[0] = a.out[0];
    l.in[1] = a.in[1];
    l.in[2] = a.in[2];
    l.out[0] = (RefTensor){.v = &loss, .ndim = 1, .dim = {1}};
    ref_ops[OP_ce_loss](&l);
    return loss * b->in[4].v[0];
  }
  double sum = 0;
  int operand = 0, all = 0;
  for (const char *s = g->in; *s; s++) {
    if (*s == ' ') operand++;
    if (*s != 'd') continue;
    all = s[1] == '*';
    for (int k = all ? 0 : s[1] - '0'; k < (all ? f->nout : s[1] - '0' + 1); k++) {
      const double *d = b->in[operand + (all ? k : 0)].v;
      for (int64_t i = 0; i < ref_count(&a.out[k]); i++) sum += d[i] * a.out[k].v[i];
    }
  }
  return sum;
}

/* Whether an op has no slope at x, or nearer to it than h. */
static bool near_kink(int op, const OpAttr *a, double x, double h) {
  switch (op) {
  case OP_relu_dx: return fabs(x) < h;
  case OP_clamp_dx:
  case OP_clamped_swiglu_dx: return fabs(fabs(x) - (double)a->limit) < h;
  case OP_xielu_dx: return fabs(x) < h || fabs(x - (double)a->eps) < h;
  default: return false;
  }
}

/* Compares some 15 elements of the gradient of input x. */
static int check_input(const GradCase *g, Problem *f, const Problem *b, int x,
                       const RefTensor *grad) {
  int64_t n = ref_count(grad), step = n / 15 + 1;
  double scale = 0;
  int tried = 0;
  for (int64_t i = 0; i < n; i++) scale = fmax(scale, fabs(grad->v[i]));
  for (int64_t i = 0; i < n; i += step, tried++) {
    const double h = 1e-4;
    double *v = &f->in[x].v[i], old = *v;
    if (near_kink(g->op, &f->attr, old, 2 * h)) continue;
    *v = old + h;
    double up = objective(f, g, b);
    *v = old - h;
    double down = objective(f, g, b);
    *v = old;
    double slope = (up - down) / (2 * h);
    if (!(fabs(slope - grad->v[i]) <= 2e-6 * fmax(scale, 1)))
      ck_abort_msg("%s: gradient of input %d [%ld] is %.9g, differences give %.9g",
                   op_title(g->op), x, (long)i, grad->v[i], slope);
  }
  return tried;
}

START_TEST(gradient_is_the_slope) {
  const GradCase *g = &grad_case[_i];
  int tried = 0;
  for (int i = 0; i < kernel_cases; i++) {
    const KernelCase *c = &kernel_case[i];
    /* A slice of the vocabulary without any word has no loss of its own. */
    if (!grad_case_is_of(g, c) || (g->op == OP_ce_dx && c->index == 2)) continue;
    Problem f, b;
    problem_grad(&b, &f, g, c, DT_F64, 77 + (uint64_t)i);
    RefArgs a = problem_ref(&b, false);
    ref_ops[b.op](&a);
    int k = 0;
    for (const char *s = g->grad; *s; s++)
      if (*s != ' ') tried += check_input(g, &f, &b, *s - '0', &a.out[k++]);
    problem_free(&f);
    problem_free(&b);
  }
  ck_assert_int_gt(tried, 0);
}
END_TEST

/* ---- divergences ---- Their gradient is that through the statistics of the logits, too,
 * which the op gets as operands: here these are made of the same logits. */

enum { ROWS = 3, WORDS = 11 };

typedef struct Divergence {
  double x[ROWS * WORDS], y[ROWS * WORDS], labels[ROWS], g[ROWS], dx[ROWS * WORDS];
  double mx[ROWS], sx[2 * ROWS], my[ROWS], sy[2 * ROWS], d[2 * ROWS];
} Divergence;

static RefTensor of_rows(double *v, int64_t width) {
  return (RefTensor){.v = v, .ndim = width ? 2 : 1, .dim = {ROWS, width}};
}

static void stats(double *l, double *labels, double *m, double *s, const OpAttr *attr) {
  RefArgs a = {.attr = attr, .nin = 1, .nout = 1};
  a.in[0] = of_rows(l, WORDS), a.out[0] = of_rows(m, 0);
  ref_ops[OP_ce_max](&a);
  a.in[1] = of_rows(labels, 0), a.in[2] = of_rows(m, 0), a.out[0] = of_rows(s, 2);
  ref_ops[OP_ce_sum](&a);
}

/* The sum of the divergences of all rows, times their gradients. */
static double divergence(Divergence *v, const OpAttr *attr, bool backward) {
  RefArgs a = {.attr = attr, .nin = 7, .nout = 1};
  stats(v->x, v->labels, v->mx, v->sx, attr);
  stats(v->y, v->labels, v->my, v->sy, attr);
  a.in[0] = of_rows(v->x, WORDS), a.in[1] = of_rows(v->y, WORDS);
  a.in[2] = of_rows(v->labels, 0);
  a.in[3] = of_rows(v->mx, 0), a.in[4] = of_rows(v->sx, 2);
  a.in[5] = of_rows(v->my, 0), a.in[6] = of_rows(v->sy, 2);
  a.out[0] = of_rows(v->d, 2);
  ref_ops[OP_divergence_sums](&a);
  a.in[7] = of_rows(v->d, 2), a.in[8] = of_rows(v->g, 0);
  a.out[0] = of_rows(v->dx, WORDS);
  if (backward) ref_ops[OP_divergence_dx](&a);
  double sum = 0;
  for (int r = 0; r < ROWS; r++) sum += v->g[r] * v->d[2 * r];
  return sum;
}

START_TEST(gradient_of_a_divergence_is_the_slope) {
  const double betas[] = {0, 0.25, 0.5, 1};
  const OpAttr attr = {.vocab = WORDS - 2, .beta = betas[_i]};
  const double h = 1e-4;
  Divergence v = {.labels = {4, -100, 0}, .g = {0.7, 2, -1.3}};
  for (int i = 0; i < ROWS * WORDS; i++)
    v.x[i] = 2 * sin(3.7 * i), v.y[i] = 2 * cos(1.9 * i);
  ck_assert_double_gt(divergence(&v, &attr, true), -10);
  Divergence at = v;
  for (int i = 0; i < ROWS * WORDS; i++) {
    at.x[i] = v.x[i] + h;
    double up = divergence(&at, &attr, false);
    at.x[i] = v.x[i] - h;
    double down = divergence(&at, &attr, false);
    at.x[i] = v.x[i];
    ck_assert_double_eq_tol((up - down) / (2 * h), v.dx[i], 1e-6);
  }
}
END_TEST

/* Adding is the same for all: what was there plus the gradient. */
START_TEST(gradients_of_parameters_add) {
  const GradCase *g = &grad_case[_i];
  for (int i = 0; i < kernel_cases; i++) {
    if (!grad_case_is_of(g, &kernel_case[i])) continue;
    Problem once, twice;
    problem_grad(&once, NULL, g, &kernel_case[i], DT_F64, 5);
    problem_grad(&twice, NULL, g, &kernel_case[i], DT_F64, 5);
    if (once.adds) {
      RefArgs a = problem_ref(&once, false), b = problem_ref(&twice, false);
      ref_ops[once.op](&a);
      ref_ops[twice.op](&b);
      b.accumulate = true;
      ref_ops[twice.op](&b);
      for (int k = 0; k < a.nout; k++)
        for (int64_t j = 0; j < ref_count(&a.out[k]); j++)
          if (!(fabs(b.out[k].v[j] - 2 * a.out[k].v[j]) < 1e-9))
            ck_abort_msg("%s: result %d [%ld] is %g, not twice %g", op_title(g->op), k,
                         (long)j, b.out[k].v[j], a.out[k].v[j]);
    }
    problem_free(&once);
    problem_free(&twice);
  }
}
END_TEST

Suite *grad_kernels_suite(void) {
  Suite *s = suite_create("grad_kernels");
  TCase *tc = tcase_create("reference");
  tcase_set_timeout(tc, 300);
  tcase_add_loop_test(tc, gradient_is_the_slope, 0, grad_cases);
  tcase_add_loop_test(tc, gradient_of_a_divergence_is_the_slope, 0, 4);
  tcase_add_loop_test(tc, gradients_of_parameters_add, 0, grad_cases);
  suite_add_tcase(s, tc);
  return s;
}
