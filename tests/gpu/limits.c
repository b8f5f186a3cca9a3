/* limits.c - how long launches take, by a sync around many of them, and what the GPU can
 * do at most: a product of two square matrices in bf16, and a copy. */
#include <stdlib.h>

#include "gpu.h"
#include "vm/base/bf16.h"

/* ---- time ---- */

static weft_status launches(Device *d, const Kernel *k, const KernelArgs *a,
                            const Flush *f, int64_t n, double *out, weft_error *e) {
  TRY(device_sync(d, e));
  double from = gpu_seconds();
  for (int64_t i = 0; i < n; i++) {
    if (f) device_launch(d, f->kernel, &f->args);
    if (k) device_launch(d, k, a);
  }
  TRY(device_sync(d, e));
  *out = (gpu_seconds() - from) / (double)n;
  return WEFT_OK;
}

/* The first ones say how many there will be. */
static weft_status about(Device *d, const Kernel *k, const KernelArgs *a, const Flush *f,
                         double seconds, double *out, weft_error *e) {
  enum { FIRST = 3, MOST = 2000 };
  double each = 0;
  TRY(launches(d, k, a, f, FIRST, &each, e));
  double n = each > 0 ? seconds / each : MOST;
  return launches(d, k, a, f, (int64_t)MAX(FIRST, MIN(n, MOST)), out, e);
}

weft_status time_launch(Device *d, const Kernel *k, const KernelArgs *a, const Flush *f,
                        double seconds, double *out, weft_error *e) {
  TRY(about(d, k, a, f, seconds, out, e));
  if (f) *out = MAX(*out - f->alone, 0);
  return WEFT_OK;
}

/* ---- the copy ---- */

/* Operands begin where a body's do: kernels read several elements at a time. */
static size_t aligned(size_t bytes) {
  enum { TENSOR = 256 };
  return (bytes + TENSOR - 1) / TENSOR * TENSOR;
}

weft_status flush_open(Flush *f, Device *d, size_t bytes, weft_error *e) {
  static const OpAttr attr;
  bytes = aligned(bytes);
  KTensor t = {.dtype = DT_F32, .ndim = 1, .dim = {(int64_t)(bytes / sizeof(float))}};
  *f = (Flush){.bytes = 2 * bytes};
  f->args = (KernelArgs){.attr = &attr, .nin = 1, .nout = 1};
  f->args.in[0] = f->args.out[0] = t;
  TRY(device_alloc(d, f->bytes, &f->memory, e));
  f->args.in[0].p = f->memory, f->args.out[0].p = (char *)f->memory + bytes;
  f->kernel = device_kernel(d, OP_copy, &f->args);
  if (!f->kernel) return err_set(e, WEFT_ERUN, "there is no kernel for copy");
  return WEFT_OK;
}

void flush_close(Flush *f, Device *d) {
  device_free(d, f->memory, f->bytes);
  *f = (Flush){0};
}

/* ---- the product ---- */

/* Random numbers: zeros would be multiplied faster than what a model has. */
static weft_status fill(Device *d, char *to, size_t bytes, weft_error *e) {
  enum { BLOCK = (1 << 20) + 6 }; /* no row of a matrix begins as another one */
  uint64_t s = 1;
  bf16 *random = malloc(BLOCK * sizeof *random);
  if (!random) return err_set(e, WEFT_ENOMEM, "out of memory");
  for (int i = 0; i < BLOCK; i++) {
    s = s * 6364136223846793005u + 1442695040888963407u;
    random[i] = bf16_from_f32((float)(int32_t)(s >> 32) * 0x1p-31f);
  }
  for (size_t at = 0; at < bytes; at += BLOCK * sizeof *random)
    device_upload(d, to + at, random, MIN(bytes - at, BLOCK * sizeof *random));
  weft_status st = device_sync(d, e);
  free(random);
  return st;
}

static weft_status multiply(Device *d, const DeviceKind *kind, KernelArgs *a,
                            char *memory, double seconds, double *each, weft_error *e) {
  size_t one = aligned((size_t)(a->in[0].dim[0] * a->in[0].dim[1]) * sizeof(bf16));
  const Kernel *k = device_kernel(d, OP_linear, a);
  if (!k) return err_set(e, WEFT_ERUN, "there is no kernel for linear");
  TRY(fill(d, memory, 2 * one, e));
  if (k->prepare) TRY(k->prepare(d, a, e));
  a->in[0].p = memory, a->in[1].p = memory + one, a->out[0].p = memory + 2 * one;
  a->work = memory + 3 * one;
  weft_status st = time_launch(d, k, a, NULL, seconds, each, e);
  if (k->release) k->release(d, a);
  return st;
}

static weft_status product(Device *d, int64_t n, double seconds, double *each,
                           weft_error *e) {
  static const OpAttr attr;
  enum { ALIGN = 64 };
  const DeviceKind *kind = device_kind("cuda", e);
  KTensor t = {.dtype = DT_BF16, .ndim = 2, .dim = {n, n}};
  KernelArgs a = {.attr = &attr, .nin = 2, .nout = 1, .in = {t, t}, .out = {t}};
  size_t bytes = 3 * aligned((size_t)(n * n) * sizeof(bf16)) + kind->work(OP_linear, &a);
  size_t state = (kind->state(OP_linear, &a) + ALIGN) / ALIGN * ALIGN;
  void *memory = NULL;
  a.state = aligned_alloc(ALIGN, state);
  if (!a.state) return err_set(e, WEFT_ENOMEM, "out of memory");
  memset(a.state, 0, state);
  weft_status st = device_alloc(d, bytes, &memory, e);
  if (st == WEFT_OK) st = multiply(d, kind, &a, memory, seconds, each, e);
  device_free(d, memory, bytes);
  free(a.state);
  return st;
}

weft_status limits_measure(Device *d, Flush *f, int64_t cube, double seconds, Limits *out,
                           weft_error *e) {
  double each = 0;
  *out = (Limits){.cube = cube, .copied = (int64_t)f->bytes / 2};
  TRY(time_launch(d, f->kernel, &f->args, NULL, seconds, &f->alone, e));
  out->bytes = (double)f->bytes / f->alone;
  TRY(product(d, cube, seconds, &each, e));
  out->flops = 2.0 * (double)cube * (double)cube * (double)cube / each;
  return WEFT_OK;
}
