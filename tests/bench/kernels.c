/* kernels.c - measures the CPU kernels other than GEMM on the shapes of GPT-2 124M with
 * 1024 rows: GB/s of operands and results (beside memcpy's), GFLOP/s of attention. */
#include "bench.h"

#include "kernels/cpu/levels.h"

#include <stdio.h>
#include <stdlib.h>

#include "kernels/cpu/kernel.h"
#include "vm/program/program.h"

enum { RUNS = 9, B = 1, T = 1024, C = 768, H = 12, N = 8 << 20 };

/* Operands "kind dims;...": x compute type, f f32, i i32 ids, d f64. */
typedef struct Row {
  int op;
  const char *name, *in, *out;
  double flops; /* 0: bytes are counted */
  OpAttr attr;
} Row;

#define ACT    "x 1,1024,768 "
#define WIDE   "x 1,1024,3072 "
#define WIDER  "x 1,1024,6144 "
#define QKV    "x 1,1024,2304 "
#define LOGITS "x 1,1024,50304 "
#define FLAT   "f 8388608 "
#define PAIRS  (2.0 * B * H * T * (T + 1) / 2 * (C / H)) /* flops of one score product */

static const Row rows[] = {
    {OP_add, "add", ACT ACT, ACT, 0, {0}},
    {OP_add_bias, "add_bias", WIDE "x 3072 ", WIDE, 0, {0}},
    {OP_bias_dw, "bias_dw", WIDE, "f 3072 ", 0, {0}},
    {OP_gelu, "gelu tanh", WIDE, WIDE, 0, {0}},
    {OP_gelu_dx, "gelu_dx tanh", WIDE WIDE, WIDE, 0, {0}},
    {OP_gelu, "gelu erf", WIDE, WIDE, 0, {.kind = 1}},
    {OP_silu_mul, "silu_mul", WIDE WIDE, WIDE, 0, {0}},
    {OP_silu_mul_dx, "silu_mul_dx", WIDE WIDE WIDE, WIDE WIDE, 0, {0}},
    {OP_swiglu, "swiglu", WIDER, WIDE, 0, {0}},
    {OP_swiglu_dx, "swiglu_dx", WIDER WIDE, WIDER, 0, {0}},
    {OP_layernorm, "layernorm", ACT "x 768 x 768 ", ACT "f 1,1024,2 ", 0, {.eps = 1e-5f}},
    {OP_layernorm_dx, "layernorm_dx", ACT "x 768 f 1,1024,2 " ACT, ACT, 0, {0}},
    {OP_layernorm_dw, "layernorm_dw", ACT "f 1,1024,2 " ACT, "f 768 f 768 ", 0, {0}},
    {OP_rmsnorm, "rmsnorm", ACT "x 768 ", ACT "f 1,1024 ", 0, {.eps = 1e-5f}},
    {OP_rmsnorm_dx, "rmsnorm_dx", ACT "x 768 f 1,1024 " ACT, ACT, 0, {0}},
    {OP_split, "split", QKV, ACT ACT ACT, 0, {.n = 3}},
    {OP_rope, "rope", ACT "i 1,1024 ", ACT, 0, {.head_dim = 64, .theta = 1e4f}},
    {OP_rope_qkv,
     "rope_qkv",
     QKV "i 1,1024 ",
     ACT ACT ACT,
     0,
     {.head_dim = 64, .theta = 1e4f}},
    {OP_rope_qkv_dx,
     "rope_qkv_dx",
     ACT ACT ACT "i 1,1024 ",
     QKV,
     0,
     {.head_dim = 64, .theta = 1e4f, .inverse = 1}},
    {OP_embedding, "embedding", "i 1,1024 x 50304,768 ", ACT, 0, {0}},
    {OP_embedding_dw, "embedding_dw", "i 1,1024 " ACT, "f 50304,768 ", 0, {0}},
    {OP_ce_max, "ce_max", LOGITS, "f 1,1024 ", 0, {.vocab = 50257}},
    {OP_ce_sum,
     "ce_sum",
     LOGITS "i 1,1024 f 1,1024 ",
     "f 1,1024,2 ",
     0,
     {.vocab = 50257}},
    {OP_ce_dx,
     "ce_dx",
     LOGITS "i 1,1024 f 1,1024 f 1,1024,2 f 1 ",
     LOGITS,
     0,
     {.vocab = 50257}},
    {OP_attention,
     "attention",
     ACT ACT ACT,
     ACT "f 1,1024,12 ",
     2 * PAIRS,
     {.head_dim = 64, .scale = 0.125f}},
    {OP_attention_dx,
     "attention_dx",
     ACT ACT ACT ACT "f 1,1024,12 " ACT,
     ACT ACT ACT,
     5 * PAIRS,
     {.head_dim = 64, .scale = 0.125f}},
    {OP_sqnorm, "sqnorm", FLAT "d 32 ", "d 32 ", 0, {.n = SC_NORM2}},
    {OP_adamw,
     "adamw",
     FLAT FLAT FLAT FLAT "d 32 ",
     FLAT FLAT FLAT "x 8388608 ",
     0,
     {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8f, .weight_decay = 0.1}},
};

static size_t bytes_of(const KTensor *t) {
  return (size_t)count_of(t) * (t->dtype == DT_BF16 ? 2 : t->dtype == DT_F64 ? 8 : 4);
}

/* Reads the operands; returns their number and adds up their bytes. */
static int operands(const char *s, DType act, KTensor *t, double *bytes) {
  int n = 0;
  for (; *s; n++) {
    char kind = *s++;
    t[n] = (KTensor){.dtype = kind == 'x'   ? act
                              : kind == 'f' ? DT_F32
                              : kind == 'i' ? DT_I32
                                            : DT_F64};
    do t[n].dim[t[n].ndim++] = strtol(s + 1, (char **)&s, 10);
    while (*s == ',');
    t[n].p = aligned_alloc(64, (bytes_of(&t[n]) + 63) / 64 * 64);
    if (t[n].p) memset(t[n].p, kind == 'i' ? 0 : 0x3e, bytes_of(&t[n]));
    for (int64_t i = 0; kind == 'i' && t[n].p && i < count_of(&t[n]); i++)
      ((int32_t *)t[n].p)[i] = (int32_t)(i * 7919 % 1021);
    for (int64_t i = 0; kind == 'd' && t[n].p && i < SC_N; i++)
      ((double *)t[n].p)[i] = i == SC_HOLD ? 0 : 0.5;
    *bytes += (double)bytes_of(&t[n]);
    s++;
  }
  return n;
}

/* GB/s or GFLOP/s, median. */
static double measure(const Row *r, DType act, int threads) {
  const Kernel *k = &cpu_set_here()->kernel[r->op];
  KernelArgs a = {.attr = &r->attr};
  Device dev = {.vt = &device_cpu, .threads = threads};
  weft_error e = {0};
  double t[RUNS], bytes = 0;
  a.nin = operands(r->in, act, a.in, &bytes);
  a.nout = operands(r->out, act, a.out, &bytes);
  /* The table of an embedding is not read, that of its gradient is added to. */
  if (r->op == OP_embedding) bytes = 2 * (double)bytes_of(&a.out[0]);
  if (r->op == OP_embedding_dw) bytes = 3 * (double)bytes_of(&a.in[1]);
  a.accumulate = r->op == OP_embedding_dw;
  void *scal = a.out[0].p;
  if (r->op == OP_sqnorm) a.out[0].p = a.in[1].p;
  a.state = calloc(1, MAX(cpu_state(r->op, &a), 1));
  if (k->prepare && k->prepare(&dev, &a, &e) != WEFT_OK) return 0;
  a.work = malloc(MAX(cpu_work(r->op, &a), 1));
  k->run(&dev, &a);
  for (int i = 0; i < RUNS; i++) {
    double start = bench_now();
    k->run(&dev, &a);
    t[i] = bench_now() - start;
  }
  if (k->release) k->release(&dev, &a);
  a.out[0].p = scal;
  free(a.work);
  free(a.state);
  for (int i = 0; i < a.nin; i++) free(a.in[i].p);
  for (int i = 0; i < a.nout; i++) free(a.out[i].p);
  return 1e-6 * (r->flops > 0 ? r->flops : bytes) / bench_median(t, RUNS);
}

static double copy_rate(void) {
  char *x = malloc((size_t)N * 8), *y = malloc((size_t)N * 8);
  double t[RUNS];
  if (!x || !y) return 0;
  memset(x, 1, (size_t)N * 8), memset(y, 2, (size_t)N * 8);
  for (int i = 0; i < RUNS; i++) {
    double start = bench_now();
    memcpy(y, x, (size_t)N * 8);
    t[i] = bench_now() - start;
  }
  free(x), free(y);
  return 1e-6 * 2 * N * 8 / bench_median(t, RUNS);
}

void bench_kernels(void) {
  printf("memcpy, 1 thread: %.1f GB/s\n", copy_rate());
  printf("%-14s %22s %22s\n", "kernel", "1 thread: f32 bf16", "2 threads: f32 bf16");
  for (int i = 0; i < LEN(rows); i++) {
    printf("%-14s", rows[i].name);
    for (int threads = 1; threads <= 2; threads++)
      printf(" %11.1f %10.1f", measure(&rows[i], DT_F32, threads),
             measure(&rows[i], DT_BF16, threads));
    printf(" %s\n", rows[i].flops > 0 ? "GFLOP/s" : "GB/s");
    fflush(stdout);
  }
}
