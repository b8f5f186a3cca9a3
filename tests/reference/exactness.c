/* exactness.c - see exactness.h. */
#include "exactness.h"

#include "tests/harness/emulated.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef WEFT_EMULATED_CUDA

#include "kernel_sets.h"
#include "kernels/cpu/levels.h"
#include "kernels/cuda/cuda.h"

enum { SEEDS = 3 };

/* The worst case of an op. */
typedef struct Worst {
  double cuda, cpu; /* f32, norm-wise from f64 */
  double roundings; /* bf16, between them, or less than 0: no result is bf16 */
} Worst;

/* Relative to the norm of finite numbers; 0 if that is 0. */
static double norm_wise(const KTensor *t, const double *want, int64_t n) {
  double diff = 0, norm = 0;
  for (int64_t i = 0; i < n; i++) {
    double d = kernel_element(t->p, t->dtype, i) - want[i];
    if (isfinite(want[i])) diff += d * d, norm += want[i] * want[i];
  }
  return norm > 1e-24 ? sqrt(diff / norm) : 0;
}

static void look(Problem *p, bool adds, DType type, Worst *w) {
  KernelArgs a = kernel_run(&kernels_cuda, p, 1, adds),
             b = kernel_run(&kernels_cpu, p, 1, adds);
  RefArgs ref = problem_ref(p, adds);
  ref_ops[p->op](&ref);
  for (int i = 0; i < p->nout; i++) {
    const double *want = ref.out[i].v;
    int64_t n = ref_count(&ref.out[i]);
    if (type == DT_F32 && p->out[i].type == DT_F32) {
      w->cuda = fmax(w->cuda, norm_wise(&a.out[i], want, n));
      w->cpu = fmax(w->cpu, norm_wise(&b.out[i], want, n));
    } else if (p->out[i].type == DT_BF16) {
      w->roundings = fmax(w->roundings, kernel_roundings(&a.out[i], &b.out[i]));
    }
  }
  kernel_free(p, &a);
  kernel_free(p, &b);
}

/* Overwriting and accumulating, in both types, with several seeds. */
static void case_of(const KernelCase *c, const GradCase *g, uint64_t seed, Worst *all) {
  static const DType types[] = {DT_F32, DT_BF16};
  for (int k = 0; k < 4 * SEEDS; k++) {
    Problem p;
    bool adds = k % 2;
    DType type = types[k / 2 % 2];
    uint64_t at = seed + 1000 * (uint64_t)(k / 4);
    if (g)
      problem_grad(&p, NULL, g, c, type, at);
    else
      problem_make(&p, c, type, at);
    if (!adds || (g ? p.adds : op_adds(p.op))) look(&p, adds, type, &all[p.op]);
    problem_free(&p);
  }
}

START_TEST(table) {
  Worst all[OP_N];
  for (int op = 0; op < OP_N; op++) all[op] = (Worst){-1, -1, -1};
  for (int i = 0; i < kernel_cases; i++) {
    case_of(&kernel_case[i], NULL, 1 + (uint64_t)i, all);
    for (int g = 0; g < grad_cases; g++)
      if (grad_case_is_of(&grad_case[g], &kernel_case[i]))
        case_of(&kernel_case[i], &grad_case[g], 1 + (uint64_t)i, all);
  }
  printf("%-20s %10s %10s %16s\n", "op", "f32: cuda", "cpu", "bf16: roundings");
  for (int op = 0; op < OP_N; op++) {
    const Worst *w = &all[op];
    if (w->cuda < 0 && w->roundings < 0) continue;
    printf("%-20s %10.1e %10.1e", op_title(op), fmax(w->cuda, 0), fmax(w->cpu, 0));
    if (w->roundings >= 0)
      printf(" %16.3g\n", w->roundings);
    else
      printf(" %16s\n", "-");
  }
}
END_TEST

/* Runs as a suite of its own, because Check verifies the margins of buffers. */
int exactness(void) {
  Suite *s = suite_create("exactness");
  TCase *tc = tcase_create("table");
  tcase_set_timeout(tc, 600);
  tcase_add_test(tc, table);
  suite_add_tcase(s, tc);
  SRunner *sr = srunner_create(s);
  srunner_run_all(sr, CK_SILENT);
  int failed = srunner_ntests_failed(sr);
  if (failed) srunner_print(sr, CK_NORMAL);
  srunner_free(sr);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

#else

int exactness(void) {
  printf(EMULATED_SKIPPED);
  return EXIT_SUCCESS;
}

#endif
