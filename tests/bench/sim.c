/* sim.c - simulated steps per second, of programs that are compiled: Llama 3 70B on 64
 * ranks with 128 microbatches, and 405B on 16,384; and what compiling takes before them.
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>

#include "vm/sim/step_clock.h"

static void simulate_often(const Job *j, const char *name, double compiled) {
  enum { N = 7 };
  double ms[N];
  SimReport r = {0};
  weft_error e;
  for (int i = 0; i < N; i++) {
    Arena *a = arena_new(NULL);
    SimOptions o = {.rates = sheet_rates(RATES_USUAL)};
    double start = bench_now();
    err_clear(&e);
    if (!a || simulate(j->compiled, &j->plan, &o, a, &r, &e) != WEFT_OK) {
      fprintf(stderr, "%s\n", e.text);
      exit(1);
    }
    ms[i] = bench_now() - start;
    arena_free(a);
  }
  double each = bench_median(ms, N);
  printf("%-32s %d microbatches: %.2f ms, %.0f a second; with compiling %.2f ms\n", name,
         j->compiled->microbatches, each, 1e3 / each, each + compiled);
}

static void measure(const char *name, const char *file, const char *const *set,
                    int nset) {
  Job j;
  double start = bench_now();
  bench_open(&j, file, set, nset);
  simulate_often(&j, name, bench_now() - start);
  bench_close(&j);
}

void bench_sim(void) {
  static const char *const many[] = {"batch.global=256"};
  measure("Llama 3 70B on 64", "plans/llama3_70b.lua", many, LEN(many));
  measure("Llama 3 405B on 16,384", "plans/llama3_405b_16k.lua", NULL, 0);
}
