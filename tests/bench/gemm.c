/* gemm.c - measures the products of GPT-2 124M at 256 rows, forward, input gradient and
 * weight gradient, through every GEMM backend that is here: GFLOP/s, median of runs. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "kernels/cpu/gemm/gemm.h"

enum { RUNS = 15 };

/* GFLOP/s of one product, 0 if the backend does not take it. */
static double rate(const char *backend, const GemmShape *s, int threads,
                   bool accumulate) {
  Gemm g;
  weft_error e = {0};
  if (gemm_init_from(&g, backend, s, threads, &e) != WEFT_OK) return 0;
  void *work = malloc(MAX(gemm_work(s), 1));
  size_t es = s->in == DT_F32 ? 4 : 2, eo = s->out == DT_F32 ? 4 : 2;
  void *a = calloc((size_t)(s->m * s->k), es), *b = calloc((size_t)(s->k * s->n), es);
  void *c = calloc((size_t)(s->m * s->n), eo);
  double t[RUNS];
  if (!a || !b || !c) return 0;
  memset(a, 0x3c, (size_t)(s->m * s->k) * es); /* small normal numbers */
  memset(b, 0x3c, (size_t)(s->k * s->n) * es);
  gemm_run(&g, a, b, c, accumulate, work);
  for (int i = 0; i < RUNS; i++) {
    double start = bench_now();
    gemm_run(&g, a, b, c, accumulate, work);
    t[i] = bench_now() - start;
  }
  free(a), free(b), free(c), free(work);
  gemm_end(&g);
  return 2e-6 * (double)s->m * (double)s->n * (double)s->k / bench_median(t, RUNS);
}

static void row(const char *what, GemmShape s, bool accumulate, int threads) {
  static const char *const backends[] = {"onednn", "openblas", "plain"};
  printf("%-10s %6ld %6ld %6ld  %s%s %d", what, (long)s.m, (long)s.n, (long)s.k,
         s.ta ? "T" : "N", s.tb ? "T" : "N", threads);
  for (int t = 0; t < 2; t++) {
    s.in = t ? DT_BF16 : DT_F32;
    s.out = accumulate ? DT_F32 : s.in;
    for (int i = 0; i < LEN(backends) - 2 * t; i++)
      printf(" %8.1f", rate(backends[i], &s, threads, accumulate));
  }
  printf("\n");
  fflush(stdout);
}

void bench_gemm(void) {
  static const int64_t io[][2] = {
      {768, 2304}, {768, 768}, {768, 3072}, {3072, 768}, {768, 50257}};
  int cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
  printf("GFLOP/s: onednn, openblas, plain in f32; onednn in bf16\n");
  printf("%-10s %6s %6s %6s     t %8s %8s %8s %8s\n", "product", "m", "n", "k", "f32",
         "blas", "plain", "bf16");
  for (int threads = 1; threads <= cores; threads *= 2)
    for (int i = 0; i < LEN(io); i++) {
      const int64_t R = 256, I = io[i][0], O = io[i][1];
      row("y layout0", (GemmShape){.m = R, .n = O, .k = I, .tb = true}, false, threads);
      row("y layout1", (GemmShape){.m = R, .n = O, .k = I}, false, threads);
      row("dx layout0", (GemmShape){.m = R, .n = I, .k = O}, false, threads);
      row("dx layout1", (GemmShape){.m = R, .n = I, .k = O, .tb = true}, false, threads);
      row("dW layout0", (GemmShape){.m = O, .n = I, .k = R, .ta = true}, true, threads);
      row("dW layout1", (GemmShape){.m = I, .n = O, .k = R, .ta = true}, true, threads);
    }
}
