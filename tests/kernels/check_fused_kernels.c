/* check_fused_kernels.c - ops on operands that lie side by side in one give the bits of
 * those on operands of their own: swiglu those of silu_mul, rope_qkv those of rope_pair.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/cpu/levels.h"
#include "kernels/cuda/cuda.h"
#include "tests/reference/kernel_sets.h"

static const DType types[] = {DT_F32, DT_BF16, DT_F16};

static int64_t last_of(const Value *x) { return x->dim[x->ndim - 1]; }

/* A copy of `n` columns of x from `column` on. */
static Value columns(const Value *x, int64_t column, int64_t n) {
  Value y = *x;
  KTensor whole = kernel_tensor(x);
  int64_t width = last_of(x), rows = kernel_count(&whole) / width;
  y.dim[y.ndim - 1] = n;
  y.v = calloc((size_t)(rows * n), sizeof(double));
  for (int64_t i = 0; i < rows * n; i++) y.v[i] = x->v[i / n * width + column + i % n];
  return y;
}

static void same_columns(const KTensor *whole, int64_t column, const KTensor *part,
                         const char *what) {
  size_t es = (size_t)dtype_size(part->dtype);
  int64_t width = whole->dim[whole->ndim - 1], n = part->dim[part->ndim - 1];
  int64_t rows = kernel_count(part) / n, r = 0;
  ck_assert_int_eq(whole->dtype, part->dtype);
  while (r < rows && memcmp((char *)whole->p + (size_t)(r * width + column) * es,
                            (char *)part->p + (size_t)(r * n) * es, (size_t)n * es) == 0)
    r++;
  ck_assert_msg(r == rows, "%s: columns from %ld on, row %ld", what, (long)column,
                (long)r);
}

/* ---- the ops on parts; operands and results of both are freed ---- */

static void of_swiglu(const KernelSet *set, Problem *p, int threads, const char *what) {
  int64_t c = last_of(&p->out[0]);
  Problem one = {.op = OP_silu_mul,
                 .nin = 2,
                 .nout = 1,
                 .out = {p->out[0]},
                 .in = {columns(&p->in[0], c, c), columns(&p->in[0], 0, c)}};
  KernelArgs got = kernel_run(set, p, threads, false),
             want = kernel_run(set, &one, 1, false);
  same_columns(&got.out[0], 0, &want.out[0], what);
  kernel_free(p, &got), kernel_free(&one, &want);
  for (int i = 0; i < one.nin; i++) free(one.in[i].v);
}

static void of_swiglu_dx(const KernelSet *set, Problem *p, int threads,
                         const char *what) {
  int64_t c = last_of(&p->in[1]);
  Problem one = {.op = OP_silu_mul_dx,
                 .nin = 3,
                 .nout = 2,
                 .in = {columns(&p->in[0], c, c), columns(&p->in[0], 0, c), p->in[1]},
                 .out = {p->in[1], p->in[1]}};
  for (int i = 0; i < one.nout; i++) one.out[i].alias = -1;
  KernelArgs got = kernel_run(set, p, threads, false),
             want = kernel_run(set, &one, 1, false);
  same_columns(&got.out[0], c, &want.out[0], what);
  same_columns(&got.out[0], 0, &want.out[1], what);
  kernel_free(p, &got), kernel_free(&one, &want);
  for (int i = 0; i < 2; i++) free(one.in[i].v);
}

static void of_rope_qkv(const KernelSet *set, Problem *p, int threads, const char *what) {
  int64_t q = last_of(&p->out[0]), k = last_of(&p->out[1]), v = last_of(&p->out[2]);
  Value same = columns(&p->in[0], 0, v);
  Problem one = {.op = OP_rope_pair,
                 .attr = p->attr,
                 .nin = 3,
                 .nout = 2,
                 .in = {columns(&p->in[0], v + k, q), columns(&p->in[0], v, k), p->in[1]},
                 .out = {p->out[0], p->out[1]}};
  KernelArgs got = kernel_run(set, p, threads, false),
             want = kernel_run(set, &one, 1, false);
  KTensor kept = kernel_tensor(&same);
  kept.p = kernel_typed(&same);
  same_columns(&got.out[0], 0, &want.out[0], what);
  same_columns(&got.out[1], 0, &want.out[1], what);
  same_columns(&got.out[2], 0, &kept, what);
  kernel_free(p, &got), kernel_free(&one, &want);
  for (int i = 0; i < 2; i++) free(one.in[i].v);
  free(same.v), free(kept.p);
}

static void of_rope_qkv_dx(const KernelSet *set, Problem *p, int threads,
                           const char *what) {
  int64_t k = last_of(&p->in[1]), v = last_of(&p->in[2]);
  Problem one = {.op = OP_rope_pair,
                 .attr = p->attr,
                 .nin = 3,
                 .nout = 2,
                 .in = {p->in[0], p->in[1], p->in[3]},
                 .out = {p->in[0], p->in[1]}};
  for (int i = 0; i < one.nout; i++) one.out[i].alias = -1;
  KernelArgs got = kernel_run(set, p, threads, false),
             want = kernel_run(set, &one, 1, false);
  same_columns(&got.out[0], v + k, &want.out[0], what);
  same_columns(&got.out[0], v, &want.out[1], what);
  same_columns(&got.out[0], 0, &got.in[2], what);
  kernel_free(p, &got), kernel_free(&one, &want);
}

static void check_problem(const KernelSet *set, Problem *p, int threads) {
  char what[128];
  snprintf(what, sizeof what, "%s: %s %s, %d thread(s)", set->name, op_title(p->op),
           dtype_name(p->in[0].type), threads);
  switch (p->op) {
  case OP_swiglu: of_swiglu(set, p, threads, what); break;
  case OP_swiglu_dx: of_swiglu_dx(set, p, threads, what); break;
  case OP_rope_qkv: of_rope_qkv(set, p, threads, what); break;
  case OP_rope_qkv_dx: of_rope_qkv_dx(set, p, threads, what); break;
  default: ck_abort_msg("%s is not made of parts", op_title(p->op));
  }
}

/* All cases of an op, and of one that it is the gradient of; how many. */
static int check_op(const KernelSet *set, int op, DType type, int threads) {
  int tried = 0;
  for (int i = 0; i < kernel_cases; i++) {
    Problem p;
    if (kernel_case[i].op == op) {
      problem_make(&p, &kernel_case[i], type, problem_seed(&kernel_case[i]));
      check_problem(set, &p, threads), tried++;
      problem_free(&p);
    }
    for (int g = 0; g < grad_cases; g++) {
      if (grad_case[g].op != op || grad_case[g].forward != kernel_case[i].op) continue;
      problem_grad(&p, NULL, &grad_case[g], &kernel_case[i], type,
                   problem_seed(&kernel_case[i]));
      check_problem(set, &p, threads), tried++;
      problem_free(&p);
    }
  }
  return tried;
}

START_TEST(the_bits_of_ops_on_the_parts) {
  static const int ops[] = {OP_swiglu, OP_swiglu_dx, OP_rope_qkv, OP_rope_qkv_dx};
  for (int s = 0; s < KERNEL_SETS; s++)
    for (int t = 0; t < (kernel_sets[s] == &kernels_cpu ? LEN(types) : 2); t++)
      for (int threads = 1; threads <= (kernel_sets[s] == &kernels_cpu ? 2 : 1);
           threads++)
        ck_assert_int_ge(check_op(kernel_sets[s], ops[_i], types[t], threads), 5);
}
END_TEST

Suite *fused_kernels_suite(void) {
  Suite *s = suite_create("fused_kernels");
  TCase *tc = tcase_create("bits");
  tcase_set_timeout(tc, 120);
  tcase_add_loop_test(tc, the_bits_of_ops_on_the_parts, 0, 4);
  suite_add_tcase(s, tc);
  return s;
}
