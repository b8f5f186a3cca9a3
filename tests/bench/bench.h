/* bench.h - measurements: `weft-bench` runs all of them, `weft-bench NAME` one. They
 * print tables, assert nothing and are not part of the tests. */
#ifndef WEFT_BENCH_H
#define WEFT_BENCH_H

#include "bindings/plan_load.h"
#include "vm/exec/exec.h"

double bench_now(void);                      /* ms */
double bench_median(double *v, int n);       /* sorts */

/* A compiled plan of plans/ or tests/bench/; exits with a message if it is wrong. */
typedef struct BenchPlan {
  Arena *arena;
  Diags d;
  LangPlan *lp;
  Plan plan;
  Mesh mesh;
  Compiled *compiled;
} BenchPlan;
void bench_open(BenchPlan *b, const char *file, const char *const *set, int nset);
void bench_close(BenchPlan *b);

void bench_gemm(void);
void bench_kernels(void);
void bench_gpt2(void);
void bench_check(void);

#endif
