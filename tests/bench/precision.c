/* precision.c - training of the quick start's model in each precision: the losses after
 * 200 steps, and how far each is from f32. */
#include "bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "vm/session/session.h"

enum { STEPS = 200, LAST = 20 };

/* The mean over the last steps: one batch is an accident. */
typedef struct Sum {
  double loss;
  int64_t skipped;
} Sum;

static weft_status add(void *ud, const StepResult *r, weft_error *e) {
  Sum *s = ud;
  if (r->step >= STEPS - LAST) s->loss += r->loss / LAST;
  s->skipped += r->skipped;
  return WEFT_OK;
}

static Sum train(const char *precision, double *ms) {
  Job j;
  Session s = {0};
  Sum sum = {0};
  const char *set[] = {"mesh={tp=1,pp=1,dp=1}", precision};
  bench_open(&j, "plans/quickstart.lua", set, 2);
  RunOptions o = {.threads = 1};
  double start = bench_now();
  weft_status st = job_data(&j, NULL, &s.data);
  if (st == WEFT_OK) st = session_open(&s, &j.plan, j.compiled, &o, &j.e);
  if (st == WEFT_OK) st = session_train(&s, STEPS, NULL, add, &sum, &j.e);
  *ms = (bench_now() - start) / STEPS;
  if (st != WEFT_OK) {
    fprintf(stderr, "%s\n", j.e.text);
    exit(1);
  }
  session_close(&s, false);
  bench_close(&j);
  return sum;
}

void bench_precision(void) {
  static const char *const rows[][2] = {
      {"f32", "precision=\"f32\""},
      {"bf16", "precision=\"bf16\""},
      {"f16", "precision=\"f16\""},
  };
  double f32 = 0, ms;
  printf("%-40s %10s %10s %8s %8s\n", "", "loss", "to f32", "skipped", "ms");
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    Sum s = train(rows[i][1], &ms);
    if (i == 0) f32 = s.loss;
    printf("%-40s %10.4f %9.2f%% %8lld %8.1f\n", rows[i][0], s.loss,
           100 * fabs(s.loss / f32 - 1), (long long)s.skipped, ms);
  }
}
