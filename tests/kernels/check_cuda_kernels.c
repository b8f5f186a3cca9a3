/* check_cuda_kernels.c - every CUDA kernel, run on the CPU (emulate.h), against the
 * reference in f64, on the cases of the CPU kernels. */
#include <check.h>
#include <math.h>
#include <stdio.h>

#include "kernels/cpu/levels.h"
#include "kernels/cuda/gemm/cublaslt.h"
#include "tests/harness/emulated.h"
#include "tests/reference/kernel_sets.h"

#ifdef WEFT_EMULATED_CUDA

static const DType types[] = {DT_F32, DT_BF16};
static const char *const type_names[] = {"f32", "bf16"};

START_TEST(forward_case) {
  const KernelCase *c = &kernel_case[_i];
  for (int k = 0; k < 4; k++) { /* two types, overwriting and adding */
    Problem p;
    if (k % 2 && !op_adds(c->op)) continue;
    problem_make(&p, c, types[k / 2], problem_seed(c));
    kernel_agrees(&kernels_cuda, &p, k % 2, type_names[k / 2]);
    problem_free(&p);
  }
}
END_TEST

/* The kernels of attention that GPUs of 9.0 have, on the same cases. */
START_TEST(attention_by_warpgroups) {
  Problem p;
  problem_make(&p, &kernel_case[_i], DT_BF16, problem_seed(&kernel_case[_i]));
  if (kernels_hopper_have(&p)) kernel_agrees(&kernels_hopper, &p, false, "bf16");
  problem_free(&p);
}
END_TEST

START_TEST(most_cases_of_attention_are_those_of_warpgroups) {
  enum { DROPOUT_OR_WIDE = 12 };
  int all = 0, have = 0;
  for (int i = 0; i < kernel_cases; i++) {
    Problem p;
    problem_make(&p, &kernel_case[i], DT_BF16, problem_seed(&kernel_case[i]));
    all += p.op == OP_attention || p.op == OP_attention_part;
    have += kernels_hopper_have(&p);
    problem_free(&p);
  }
  ck_assert_int_ge(have, 30);
  ck_assert_int_le(all - have, DROPOUT_OR_WIDE);
}
END_TEST

START_TEST(results_lie_over_operands) {
  kernel_places_hold(&kernels_cuda, types, LEN(types));
}
END_TEST

START_TEST(backward_case) {
  const GradCase *g = &grad_case[_i];
  for (int i = 0; i < kernel_cases; i++) {
    if (!grad_case_is_of(g, &kernel_case[i])) continue;
    for (int k = 0; k < 4; k++) {
      Problem p;
      problem_grad(&p, NULL, g, &kernel_case[i], types[k / 2],
                   problem_seed(&kernel_case[i]));
      if (k % 2 == 0 || p.adds)
        kernel_agrees(&kernels_cuda, &p, k % 2, type_names[k / 2]);
      problem_free(&p);
    }
  }
}
END_TEST

/* Gradients of parameters in bf16, of ops in both types, through cuBLASLt where it has
 * such products. */
START_TEST(gradients_of_16_bits) {
  const GradCase *g = &grad_case[_i];
  const char *why;
  CudaContext c = {.lt = cuda_lt_open(&why)};
  KernelSet lt = kernels_cuda;
  lt.device = (Device){.ctx = &c};
  ck_assert_msg(c.lt != NULL, "%s", why);
  for (int i = 0; i < kernel_cases; i++) {
    if (!grad_case_is_of(g, &kernel_case[i])) continue;
    for (int k = 0; k < 4; k++) {
      Problem p;
      problem_grad(&p, NULL, g, &kernel_case[i], types[k / 2],
                   problem_seed(&kernel_case[i]));
      problem_narrow(&p, DT_BF16);
      if (p.adds) kernel_agrees(&lt, &p, k % 2, type_names[k / 2]);
      problem_free(&p);
    }
  }
  ck_assert_str_eq(c.refused, "");
  cuda_lt_close(c.lt);
}
END_TEST

/* The reference's results with the absolute values of some operands. */
static void of_absolutes(Problem *p, const char *operands) {
  for (const char *c = operands; *c; c++) {
    Value *x = &p->in[*c - '0'];
    RefTensor shape = {.ndim = x->ndim};
    memcpy(shape.dim, x->dim, sizeof shape.dim);
    for (int64_t i = 0; *c - '0' < p->nin && i < ref_count(&shape); i++)
      x->v[i] = fabs(x->v[i]);
  }
  RefArgs ref = problem_ref(p, false);
  ref_ops[p->op](&ref);
}

/* What rounding the probabilities to bf16 may do to each element of o, and no more: half
 * of a unit in the last place of each (2^-8) times |v|, summed; and o is rounded once, if
 * it is bf16. lse is as exact as in f32. */
START_TEST(attention_rounds_probabilities) {
  const KernelCase *c = &kernel_case[_i];
  const double half = 0x1p-8, f32 = 4e-6;
  Problem p, sums;
  if (c->op != OP_attention && c->op != OP_attention_part) return;
  problem_make(&p, c, DT_BF16, problem_seed(c));
  problem_make(&sums, c, DT_BF16, problem_seed(c));
  RefArgs ref = problem_ref(&p, false);
  ref_ops[p.op](&ref);
  of_absolutes(&sums, c->attr.step > 0 ? "23" : "2");
  double rounded = p.out[0].type == DT_BF16 ? half : 0;
  for (int64_t i = 0; i < ref_count(&ref.out[0]); i++)
    sums.out[0].v[i] =
        (half + f32) * sums.out[0].v[i] * (1 + rounded) + rounded * fabs(p.out[0].v[i]);
  for (int64_t i = 0; i < ref_count(&ref.out[1]); i++)
    sums.out[1].v[i] = f32 * (1 + fabs(p.out[1].v[i]));
  double *want[] = {p.out[0].v, p.out[1].v}, *bound[] = {sums.out[0].v, sums.out[1].v};
  kernel_within(&kernels_cuda, &p, want, bound, c->in);
  if (kernels_hopper_have(&p)) kernel_within(&kernels_hopper, &p, want, bound, c->in);
  problem_free(&p);
  problem_free(&sums);
}
END_TEST

static Problem in_mode(const GradCase *g, const KernelCase *c, int i, RefMode mode) {
  Problem p;
  problem_grad(&p, NULL, g, c, DT_BF16, problem_seed(c));
  RefArgs ref = problem_ref(&p, false);
  ref.mode = mode;
  ref_ops[p.op](&ref);
  return p;
}

/* The same for gradients: probabilities are rounded before they are multiplied with do,
 * dS before k and q. So each element is within 2^-8 of the sum of the sizes of its terms,
 * apart from f32: dS is a difference of two sums, whose sizes count there. */
START_TEST(attention_rounds_its_gradients) {
  const GradCase *g = &grad_case[_i];
  const double half = 0x1p-8, f32 = 4e-6;
  if (g->op != OP_attention_dx && g->op != OP_attention_part_dx) return;
  for (int c = 0; c < kernel_cases; c++) {
    if (!grad_case_is_of(g, &kernel_case[c])) continue;
    Problem p = in_mode(g, &kernel_case[c], c, REF_SUMS);
    Problem sizes = in_mode(g, &kernel_case[c], c, REF_SIZES);
    Problem parts = in_mode(g, &kernel_case[c], c, REF_PARTS);
    double *want[3], *bound[3];
    for (int k = 0; k < 3; k++) {
      RefArgs ref = problem_ref(&p, false);
      double once = p.out[k].type == DT_BF16 ? half : 0;
      want[k] = p.out[k].v, bound[k] = sizes.out[k].v;
      for (int64_t i = 0; i < ref_count(&ref.out[k]); i++)
        bound[k][i] = (half * bound[k][i] + f32 * parts.out[k].v[i]) * (1 + once) +
                      once * fabs(want[k][i]);
    }
    kernel_within(&kernels_cuda, &p, want, bound, kernel_case[c].in);
    problem_free(&p);
    problem_free(&sizes);
    problem_free(&parts);
  }
}
END_TEST

/* Shapes, layouts and leading dimensions as cuBLASLt is told; its stand-in multiplies. */
START_TEST(products_through_cublaslt) {
  const char *why;
  CudaContext c = {.lt = cuda_lt_open(&why)};
  const KernelSet lt = {.name = "cublaslt",
                        .like = &kernels_cpu,
                        .kernel = kernels_cuda.kernel,
                        .work = cuda_work,
                        .state = cuda_state,
                        .device = {.ctx = &c},
                        .threads = 1};
  int tried = 0;
  ck_assert_msg(c.lt != NULL, "%s", why);
  for (int i = 0; i < kernel_cases; i++) {
    if (kernel_case[i].op != OP_linear) continue;
    for (int k = 0; k < 2; k++) {
      Problem p;
      problem_make(&p, &kernel_case[i], types[k], problem_seed(&kernel_case[i]));
      kernel_agrees(&lt, &p, false, type_names[k]);
      problem_free(&p);
      for (int g = 0; g < grad_cases; g++) {
        if (grad_case[g].forward != OP_linear) continue;
        for (int add = 0; add < 2; add++) {
          problem_grad(&p, NULL, &grad_case[g], &kernel_case[i], types[k],
                       problem_seed(&kernel_case[i]));
          if (!add || p.adds) kernel_agrees(&lt, &p, add, type_names[k]), tried++;
          problem_free(&p);
        }
      }
    }
  }
  ck_assert_int_ge(tried, 30);
  ck_assert_str_eq(c.refused, "");
  cuda_lt_close(c.lt);
}
END_TEST

START_TEST(every_op_has_a_kernel) {
  ck_assert(device_kind("cuda", NULL)->fp8);
  for (int op = 0; op < OP_N; op++) {
    bool has = ref_ops[op] != NULL;
    ck_assert_msg((cuda_kernels[op].run != NULL) == has, "%s", op_title(op));
  }
}
END_TEST

START_TEST(too_wide_heads_are_an_error) {
  OpAttr attr = {.head_dim = 512};
  KernelArgs a = {.attr = &attr};
  weft_error e = {0};
  ck_assert_int_eq(cuda_kernels[OP_attention].prepare(NULL, &a, &e), WEFT_EPLAN);
  ck_assert_str_eq(e.text, "head_dim = 512: attention on a GPU takes at most 256");
}
END_TEST

Suite *cuda_kernels_suite(void) {
  Suite *s = suite_create("cuda_kernels");
  TCase *tc = tcase_create("emulated");
  tcase_set_timeout(tc, 120);
  tcase_add_loop_test(tc, forward_case, 0, kernel_cases);
  tcase_add_loop_test(tc, attention_by_warpgroups, 0, kernel_cases);
  tcase_add_test(tc, most_cases_of_attention_are_those_of_warpgroups);
  tcase_add_loop_test(tc, backward_case, 0, grad_cases);
  tcase_add_loop_test(tc, gradients_of_16_bits, 0, grad_cases);
  tcase_add_loop_test(tc, attention_rounds_probabilities, 0, kernel_cases);
  tcase_add_loop_test(tc, attention_rounds_its_gradients, 0, grad_cases);
  tcase_add_test(tc, products_through_cublaslt);
  tcase_add_test(tc, results_lie_over_operands);
  tcase_add_test(tc, every_op_has_a_kernel);
  tcase_add_test(tc, too_wide_heads_are_an_error);
  suite_add_tcase(s, tc);
  return s;
}

#else

Suite *cuda_kernels_suite(void) { return emulated_suite_without("cuda_kernels"); }

#endif
