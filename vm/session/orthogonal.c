/* orthogonal.c - the Newton-Schulz iteration of Muon (Jordan 2024, "Muon: an optimizer
 * for hidden layers in neural networks"; torch.optim.Muon): with x of norm 1 and no more
 * rows than columns, A = x x^T, x' = a x + (b A + c A A) x, ns_steps times,
 * each with the coefficients of its own that the plan may give it. */
#include "orthogonal.h"

#include "vm/plan/optimizer.h"

#include <math.h>
#include <stdlib.h>

/* ---- products ---- */

static KTensor tensor(float *p, int64_t rows, int64_t cols) {
  return (KTensor){.p = p, .dtype = DT_F32, .ndim = 2, .dim = {rows, cols}};
}

/* Runs a product whose operands have their addresses. */
static weft_status run(Orthogonal *t, int op, KernelArgs *a, weft_error *e) {
  const DeviceKind *kind = device_kind("cpu", e);
  enum { ALIGN = 64 };
  size_t work = kind->work(op, a);
  size_t state = (kind->state(op, a) + ALIGN - 1) / ALIGN * ALIGN;
  const Kernel *k = device_kernel(&t->device, op, a);
  weft_status st = WEFT_OK;
  if (state && !(a->state = aligned_alloc(ALIGN, state)))
    return err_set(e, WEFT_ENOMEM, "out of memory");
  if (state) memset(a->state, 0, state);
  if (k->prepare) st = k->prepare(&t->device, a, e);
  if (st == WEFT_OK && work) st = device_alloc(&t->device, work, &a->work, e);
  if (st == WEFT_OK) {
    device_launch(&t->device, k, a);
    st = device_sync(&t->device, e);
  }
  if (a->work) device_free(&t->device, a->work, work);
  if (k->release) k->release(&t->device, a);
  free(a->state);
  return st;
}

/* to(r,r) = x(r,n) w(r,n)^T */
static weft_status product(Orthogonal *t, float *x, float *w, float *to, int64_t r,
                           int64_t n, weft_error *e) {
  OpAttr attr = {0};
  KernelArgs a = {.attr = &attr, .nin = 2, .nout = 1};
  a.in[0] = tensor(x, r, n), a.in[1] = tensor(w, r, n), a.out[0] = tensor(to, r, r);
  return run(t, OP_linear, &a, e);
}

/* to(r,n) += h(r,r)^T x(r,n) */
static weft_status add_product(Orthogonal *t, float *h, float *x, float *to, int64_t r,
                               int64_t n, weft_error *e) {
  OpAttr attr = {0};
  KernelArgs a = {.attr = &attr, .nin = 2, .nout = 1, .accumulate = true};
  a.in[0] = tensor(x, r, n), a.in[1] = tensor(h, r, r), a.out[0] = tensor(to, r, n);
  return run(t, OP_linear_dw, &a, e);
}

/* ---- the iteration ---- */

static weft_status iterate(Orthogonal *t, const double ns[3], int64_t r, int64_t n,
                           weft_error *e) {
  float **y = t->y;
  TRY(product(t, t->x[0], t->x[0], y[0], r, n, e));
  TRY(product(t, y[0], y[0], y[1], r, r, e)); /* A is symmetric */
  for (int64_t i = 0; i < r * r; i++)
    y[2][i] = (float)(ns[1] * y[0][i] + ns[2] * y[1][i]);
  for (int64_t i = 0; i < r * n; i++) t->x[1][i] = (float)(ns[0] * t->x[0][i]);
  TRY(add_product(t, y[2], t->x[0], t->x[1], r, n, e));
  float *swap = t->x[0];
  t->x[0] = t->x[1], t->x[1] = swap;
  return WEFT_OK;
}

weft_status orthogonal(Orthogonal *t, const Optimizer *o, int64_t rows, int64_t cols,
                       float *m, weft_error *e) {
  bool turned = rows > cols;
  int64_t r = MIN(rows, cols), n = MAX(rows, cols);
  double sum = 0;
  assert(rows * cols <= t->largest);
  for (int64_t i = 0; i < rows * cols; i++) sum += (double)m[i] * m[i];
  double norm = fmax(sqrt(sum), o->ns_eps);
  for (int64_t i = 0; i < r; i++)
    for (int64_t k = 0; k < n; k++)
      t->x[0][i * n + k] = (float)(m[turned ? k * cols + i : i * cols + k] / norm);
  for (int64_t i = 0; i < o->ns_steps; i++) TRY(iterate(t, optimizer_ns(o, i), r, n, e));
  for (int64_t i = 0; i < r; i++)
    for (int64_t k = 0; k < n; k++)
      m[turned ? k * cols + i : i * cols + k] = t->x[0][i * n + k];
  return WEFT_OK;
}

/* ---- its memory ---- */

weft_status orthogonal_open(Orthogonal *t, const weft_alloc *a, int threads,
                            int64_t largest, weft_error *e) {
  const DeviceKind *kind = device_kind("cpu", e);
  size_t bytes = (size_t)largest * sizeof(float);
  *t = (Orthogonal){.alloc = a, .largest = largest};
  TRY(device_open(&t->device, kind->load(e), a, 0, 0, threads, e));
  bool ok = true;
  for (int i = 0; i < LEN(t->x); i++) ok = (t->x[i] = mem_new(a, bytes)) && ok;
  for (int i = 0; i < LEN(t->y); i++) ok = (t->y[i] = mem_new(a, bytes)) && ok;
  return ok ? WEFT_OK : err_set(e, WEFT_ENOMEM, "out of memory");
}

void orthogonal_close(Orthogonal *t) {
  size_t bytes = (size_t)t->largest * sizeof(float);
  for (int i = 0; i < LEN(t->x); i++) mem_free(t->alloc, t->x[i], bytes);
  for (int i = 0; i < LEN(t->y); i++) mem_free(t->alloc, t->y[i], bytes);
  device_close(&t->device);
}
