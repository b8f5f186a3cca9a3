/* ckpt.c - how much longer steps take while a checkpoint is written, and how long they
 * stop for its copy. Steps of both kinds take turns, and their medians are compared: what
 * else the machine does meets both. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "bench.h"
#include "vm/ckpt/ckpt_save.h"
#include "vm/session/session.h"
#include "vm/weights/param_gather.h"

enum { ROUNDS = 8, BEFORE = 6, MOST = 1000 }; /* steps of a kind, in all */

typedef struct Times {
  double ms[MOST];
  int n;
} Times;

static void say(void *ud, bool warning, const char *text) {
  if (warning) fprintf(stderr, "%s\n", text);
}

static void fail(const weft_error *e) {
  fprintf(stderr, "%s: %s\n", e->file, e->text);
  exit(1);
}

typedef struct Ckpting {
  Run *run;
  Data *data;
  Saver *saver;
  int64_t step;
  weft_error e;
} Ckpting;

/* A step; `saves`: a checkpoint begins after it. Returns its time without that. */
static double step(Ckpting *c, bool saves) {
  StepResult r;
  if (run_step(c->run, c->data, c->step++, &r, &c->e) != WEFT_OK) fail(&c->e);
  if (saver_step(c->saver, &r, saves ? 1000 * c->step : 1, 0, &c->e) != WEFT_OK)
    fail(&c->e);
  return r.ms;
}

void bench_ckpt(void) {
  Job j;
  char dir[] = "/tmp/weft-bench-XXXXXX", command[64];
  static Times quiet, busy;
  Ckpting c = {0};
  double copies[ROUNDS];
  bench_open(&j, "tests/bench/ckpt.lua", NULL, 0);
  if (!mkdtemp(dir)) return;
  j.plan.checkpoint =
      (Checkpointing){.dir = dir, .every = 1000, .keep = 1, .async = true};
  RunOptions o = {.threads = 2, .saves = true};
  SaverOptions so = {.plan = &j.plan, .plan_text = "", .mesh = "", .end = -1, .say = say};
  err_clear(&c.e);
  if (job_data(&j, NULL, &c.data) != WEFT_OK) fail(&j.e);
  if (run_open(&j.plan, j.compiled, &o, &c.run, &c.e) != WEFT_OK) fail(&c.e);
  if (run_init(c.run, &c.e) != WEFT_OK) fail(&c.e);
  if (saver_open(c.run, &so, &c.saver, &c.e) != WEFT_OK) fail(&c.e);
  for (int i = 0; i < 3; i++) step(&c, false);
  for (int round = 0; round < ROUNDS; round++) {
    for (int i = 0; i < BEFORE; i++) quiet.ms[quiet.n++] = step(&c, false);
    double paused = saver_paused(c.saver);
    quiet.ms[quiet.n++] = step(&c, true);
    copies[round] = 1e3 * (saver_paused(c.saver) - paused);
    while (saver_writes(c.saver) && busy.n < MOST) busy.ms[busy.n++] = step(&c, false);
  }
  double a = bench_median(quiet.ms, quiet.n), b = bench_median(busy.ms, busy.n);
  double stop = bench_median(copies, ROUNDS);
  printf("%.1f M parameters, %.0f MB a checkpoint\n",
         (double)j.compiled->params_total / 1e6,
         12e-6 * (double)j.compiled->params_total);
  printf("step alone %.1f ms (%d), while one is written %.1f ms (%d): %+.1f %%\n", a,
         quiet.n, b, busy.n, 100 * (b / a - 1));
  printf("the copy stops steps for %.1f ms, a checkpoint\n", stop);
  saver_close(c.saver);
  run_close(c.run);
  data_close(c.data);
  bench_close(&j);
  snprintf(command, sizeof command, "rm -r %s", dir);
  if (system(command) != 0) perror(dir);
}
