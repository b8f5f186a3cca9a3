/* check.c - how long the whole front end takes: plan, graph, passes and proof. */
#include "bench.h"

#include <stdio.h>
#include <sys/resource.h>

static void measure(const char *file) {
  enum { N = 5 };
  double ms[N];
  Job b;
  for (int i = 0; i < N; i++) {
    double t0 = bench_now();
    bench_open(&b, file, NULL, 0);
    ms[i] = bench_now() - t0;
    if (i + 1 < N) bench_close(&b);
  }
  struct rusage u;
  getrusage(RUSAGE_SELF, &u);
  printf("%-30s %6d ranks %8.1f ms   %5ld MiB resident so far\n", file, b.mesh.world,
         bench_median(ms, N), u.ru_maxrss / 1024);
  bench_close(&b);
}

void bench_check(void) {
  measure("plans/quickstart.lua");
  measure("plans/llama3_8b.lua");
  measure("plans/llama3_70b.lua");
  measure("plans/llama3_405b_16k.lua");
  measure("tests/bench/pipeline_64.lua");
}
