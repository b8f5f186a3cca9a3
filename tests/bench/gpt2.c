/* gpt2.c - a training step of GPT-2 124M on one rank with two threads, in f32 and bf16:
 * tokens per second, and the share of the machine's own GEMM rate. */
#include "bench.h"

#include "kernels/cpu/levels.h"

#include "kernels/cpu/gemm/gemm.h"
#include "vm/weights/param_gather.h"

#include <stdio.h>
#include <stdlib.h>

enum { WARM = 2, STEPS = 7, THREADS = 2 };

/* FLOP/s of a large square product in this type: what the machine can do. */
static double gemm_rate(DType t) {
  enum { N = 1536 };
  KernelArgs a = {.nin = 2, .nout = 1, .attr = &(OpAttr){0}};
  KTensor m = {.dtype = t, .ndim = 2, .dim = {N, N}};
  a.in[0] = a.in[1] = a.out[0] = m;
  weft_error e = {.rank = -1};
  const Kernel *k = &cpu_set_here()->kernel[OP_linear];
  Device dev = {.vt = &device_cpu, .threads = THREADS};
  a.state = calloc(1, cpu_state(OP_linear, &a));
  a.work = malloc(MAX(cpu_work(OP_linear, &a), 1));
  if (k->prepare && k->prepare(&dev, &a, &e) != WEFT_OK) {
    fprintf(stderr, "%s\n", e.text);
    exit(1);
  }
  size_t bytes = (size_t)N * N * (size_t)dtype_size(t);
  for (int i = 0; i < 2; i++) memset(a.in[i].p = aligned_alloc(64, bytes), 0x3c, bytes);
  a.out[0].p = aligned_alloc(64, bytes);
  double ms[STEPS];
  k->run(&dev, &a);
  for (int i = 0; i < STEPS; i++) {
    double t0 = bench_now();
    k->run(&dev, &a);
    ms[i] = bench_now() - t0;
  }
  if (k->release) k->release(&dev, &a);
  free(a.state), free(a.work), free(a.in[0].p), free(a.in[1].p), free(a.out[0].p);
  return 2.0 * N * N * N / (bench_median(ms, STEPS) / 1e3);
}

static void measure(const char *precision) {
  Job b;
  char set[64];
  snprintf(set, sizeof set, "precision=%s", precision);
  bench_open(&b, "tests/bench/gpt2_124m.lua", (const char *[]){set}, 1);
  RunOptions o = {.threads = THREADS};
  weft_error e = {.rank = -1};
  Run *r = NULL;
  Data *data = NULL;
  StepResult s;
  double ms[STEPS];
  weft_status st = run_open(&b.plan, b.compiled, &o, &r, &e);
  if (st == WEFT_OK) st = run_init(r, &e);
  if (st == WEFT_OK)
    st = data_open(NULL, &b.plan.data, b.plan.batch.seq, b.compiled->vocab, 1, &data, &e);
  for (int i = 0; i < WARM + STEPS && st == WEFT_OK; i++) {
    double t0 = bench_now();
    st = run_step(r, data, i, &s, &e);
    if (i >= WARM) ms[i - WARM] = bench_now() - t0;
  }
  if (st != WEFT_OK) {
    fprintf(stderr, "%s\n", e.text);
    exit(1);
  }
  double step = bench_median(ms, STEPS), rate = gemm_rate(b.compiled->dtype);
  double flops = b.compiled->prog[0].flops;
  printf("%-5s %8.1f ms/step %8.1f tokens/s   GEMM rate %6.1f GFLOP/s   share %4.1f %%   "
         "loss %.4f\n",
         precision, step, 256 / (step / 1e3), rate / 1e9,
         100 * flops / (step / 1e3) / rate, s.loss);
  data_close(data);
  run_close(r);
  bench_close(&b);
}

void bench_gpt2(void) {
  measure("f32");
  measure("bf16");
}
