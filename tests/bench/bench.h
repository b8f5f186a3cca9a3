/* bench.h - measurements: `weft-bench` runs all of them, `weft-bench NAME` one. They
 * print tables, assert nothing and are not part of the tests. */
#ifndef WEFT_BENCH_H
#define WEFT_BENCH_H

#include "bindings/api/job.h"

double bench_now(void);                /* ms */
double bench_median(double *v, int n); /* sorts */

/* A compiled plan of plans/ or tests/bench/; exits with a message if it is wrong. */
void bench_open(Job *j, const char *file, const char *const *set, int nset);
void bench_close(Job *j);

void bench_gemm(void);
void bench_kernels(void);
void bench_gpt2(void);
void bench_check(void);
void bench_comm(void);
int bench_comm_child(void); /* one of its processes */
void bench_load(void);
void bench_ckpt(void);
void bench_data(void);
void bench_sim(void);
void bench_sweep(void);
void bench_precision(void);

#endif
