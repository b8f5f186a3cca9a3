/* kernel_run.c - runs the kernels of a device on the problems of kernel_cases.h and compares
 * them with the reference in f64. */
#include "kernel_run.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "vm/base/f16.h"

/* ---- typed buffers with a margin that nobody may touch ---- */

enum { MARGIN = 64, MARK = 0xa5 };

static size_t size_of(DType t) {
  return (size_t)dtype_size(t);
}

void *kernel_typed(const Value *x) {
  RefTensor shape = {.ndim = x->ndim};
  memcpy(shape.dim, x->dim, sizeof shape.dim);
  int64_t n = ref_count(&shape);
  size_t bytes = (size_t)n * size_of(x->type);
  unsigned char *p = aligned_alloc(64, (bytes + 2 * MARGIN) / 64 * 64);
  memset(p + bytes, MARK, MARGIN);
  for (int64_t i = 0; i < n; i++) {
    if (x->type == DT_F32) ((float *)p)[i] = (float)x->v[i];
    if (x->type == DT_BF16) ((bf16 *)p)[i] = bf16_from_f32((float)x->v[i]);
    if (x->type == DT_F16) ((f16 *)p)[i] = f16_from_f32((float)x->v[i]);
    if (x->type == DT_F64) ((double *)p)[i] = x->v[i];
    if (x->type == DT_I32) ((int32_t *)p)[i] = (int32_t)x->v[i];
  }
  return p;
}

static double element(const void *p, DType t, int64_t i) {
  if (t == DT_F32) return ((const float *)p)[i];
  if (t == DT_BF16) return bf16_to_f32(((const bf16 *)p)[i]);
  if (t == DT_F16) return f16_to_f32(((const f16 *)p)[i]);
  if (t == DT_F64) return ((const double *)p)[i];
  return ((const int32_t *)p)[i];
}

static int64_t count(const KTensor *t) {
  int64_t n = 1;
  for (int i = 0; i < t->ndim; i++) n *= t->dim[i];
  return n;
}

KTensor kernel_tensor(const Value *x) {
  KTensor t = {.dtype = x->type, .ndim = x->ndim};
  memcpy(t.dim, x->dim, sizeof t.dim);
  return t;
}

/* Scratch of any content (here NaN) with a margin after it that stays as it is. */
void *kernel_guarded(uint64_t bytes) {
  unsigned char *p = aligned_alloc(64, (bytes + 2 * MARGIN) / 64 * 64);
  memset(p, 0xff, bytes);
  memset(p + bytes, MARK, MARGIN);
  return p;
}

void kernel_check_guard(const void *at, uint64_t bytes) {
  const unsigned char *p = at;
  for (int i = 0; i < MARGIN; i++)
    ck_assert_msg(p[bytes + (uint64_t)i] == MARK, "written after the end");
}

/* Runs the kernel once on fresh buffers, through prepare and release. */
static KernelArgs run_kernel(const KernelSet *set, const Problem *p, int threads,
                             bool accumulate) {
  const Kernel *k = set->kernel(p->op);
  KernelArgs a = {.attr = &p->attr, .nin = p->nin, .nout = p->nout,
                  .accumulate = accumulate, .index = p->index};
  Device dev = set->device;
  weft_error e = {0};
  dev.threads = threads;
  for (int i = 0; i < p->nin; i++) a.in[i] = kernel_tensor(&p->in[i]);
  for (int i = 0; i < p->nout; i++) a.out[i] = kernel_tensor(&p->out[i]);
  uint64_t state = set->state ? set->state(p->op, &a) : 0;
  a.state = memset(kernel_guarded(state), 0, state);
  if (k->prepare) ck_assert_msg(k->prepare(&dev, &a, &e) == WEFT_OK, "%s", e.text);
  for (int i = 0; i < p->nin; i++) a.in[i].p = kernel_typed(&p->in[i]);
  for (int i = 0; i < p->nout; i++)
    a.out[i].p = p->out[i].alias < 0 ? kernel_typed(&p->out[i]) : a.in[p->out[i].alias].p;
  uint64_t work = set->work(p->op, &a);
  a.work = kernel_guarded(work);
  k->run(&dev, &a);
  kernel_check_guard(a.work, work);
  free(a.work);
  if (k->release) k->release(&dev, &a);
  kernel_check_guard(a.state, state);
  free(a.state);
  return a;
}

static void free_buffers(const Problem *p, KernelArgs *a) {
  for (int i = 0; i < p->nin; i++) free(a->in[i].p);
  for (int i = 0; i < p->nout; i++)
    if (p->out[i].alias < 0) free(a->out[i].p);
}

/* ---- comparison ---- */

static void check_margins(const KernelArgs *a, const char *what) {
  for (int i = 0; i < a->nout; i++) {
    const KTensor *t = &a->out[i];
    const unsigned char *m =
        (const unsigned char *)t->p + (size_t)count(t) * size_of(t->dtype);
    for (int j = 0; j < MARGIN; j++)
      if (m[j] != MARK) ck_abort_msg("%s: result %d is written past its end", what, i);
  }
}

/* Norm-wise and worst relative difference of one result. Loops over elements do not use
 * ck_assert: it writes to a file each time. */
void kernel_result_agrees(const KTensor *t, DType type, const double *want, double nothing,
                          const char *what, int i) {
  double diff = 0, norm = 0, worst = 0, largest = 0;
  for (int64_t j = 0; j < count(t); j++) {
    double got = element(t->p, t->dtype, j);
    if (got == want[j]) continue; /* infinities too */
    if (!isfinite(got) || !isfinite(want[j]))
      ck_abort_msg("%s: result %d [%ld] is %g, not %g", what, i, (long)j, got, want[j]);
    diff += (got - want[j]) * (got - want[j]);
    worst = fmax(worst, fabs(got - want[j]));
  }
  for (int64_t j = 0; j < count(t); j++)
    if (isfinite(want[j])) {
      norm += want[j] * want[j];
      largest = fmax(largest, fabs(want[j]));
    }
  if (largest < 1e-12 && worst <= nothing) return;
  double tolerance = type == DT_BF16 ? 4e-3 : type == DT_F16 ? 5e-4 : 2e-6;
  ck_assert_msg(sqrt(diff) <= tolerance * sqrt(norm),
                "%s: result %d differs by %.3g norm-wise", what, i, sqrt(diff / norm));
  ck_assert_msg(worst <= 4 * tolerance * largest, "%s: result %d differs by %.3g of %.3g",
                what, i, worst, largest);
}

static void same_bits(const KernelArgs *a, const KernelArgs *b, const char *what) {
  for (int i = 0; i < a->nout; i++) {
    size_t n = (size_t)count(&a->out[i]) * size_of(a->out[i].dtype);
    ck_assert_msg(memcmp(a->out[i].p, b->out[i].p, n) == 0,
                  "%s: result %d is not the same bits twice", what, i);
  }
}

void kernel_agrees(const KernelSet *set, Problem *p, bool accumulate, const char *type) {
  KernelArgs got[4];
  char what[128];
  int runs = 2 * set->threads;
  /* of one token the difference that makes dq cancels, but for its rounding */
  bool cancels = p->op == OP_attention_dx || p->op == OP_attention_part_dx;
  double nothing = cancels ? 1e-6 : 0;
  for (int i = 0; i < runs; i++) got[i] = run_kernel(set, p, 1 + i / 2, accumulate);
  RefArgs ref = problem_ref(p, accumulate);
  ref_ops[p->op](&ref);
  for (int i = 0; i < runs; i++) {
    snprintf(what, sizeof what, "%s: %s %s, %d thread(s)%s", set->name, op_title(p->op), type,
             1 + i / 2, accumulate ? ", accumulating" : "");
    check_margins(&got[i], what);
    for (int k = 0; k < p->nout; k++) {
      bool coarse = set->coarse && set->coarse(p, k);
      kernel_result_agrees(&got[i].out[k], coarse ? p->in[0].type : p->out[k].type,
                           ref.out[k].v, nothing, what, k);
    }
    if (i % 2) same_bits(&got[i], &got[i - 1], what);
  }
  for (int i = 0; i < runs; i++) free_buffers(p, &got[i]);
}

void kernel_within(const KernelSet *set, const Problem *p, double *const *want,
                   double *const *bound, const char *what) {
  KernelArgs got = run_kernel(set, p, 1, false);
  for (int i = 0; i < p->nout; i++) {
    const KTensor *t = &got.out[i];
    for (int64_t j = 0; bound[i] && j < count(t); j++) {
      double x = element(t->p, t->dtype, j);
      if (!(fabs(x - want[i][j]) <= bound[i][j]))
        ck_abort_msg("%s: result %d [%ld] is %.9g, not %.9g within %.3g", what, i, (long)j,
                     x, want[i][j], bound[i][j]);
    }
  }
  free_buffers(p, &got);
}
