/* sweep_clock.c - whole programs of the best rows on the clock: what a bound leaves out.
 */
#include "sweep.h"

typedef struct Clocking {
  Arena *a; /* of the figures, which outlive the job */
  SimFigures *out;
  Job *j;
  weft_status st;
} Clocking;

static void run_clock(void *ud) {
  Clocking *c = ud;
  c->st = sim_figures(c->j, &(SimStack){ATTENTION_FUSED}, c->a, c->out, &c->j->e);
}

static weft_status clock_job(void *ud, Job *j) {
  Clocking *c = ud;
  c->j = j;
  TRY(job_mesh(j, 0));
  TRY(job_compile(j));
  if (arena_try(c->a, run_clock, c)) return c->st;
  return err_set(&j->e, WEFT_ENOMEM, "out of memory for the clock");
}

weft_status sweep_clock(Sweep *s, int64_t i, Arena *a, SimFigures *out, PointReason *why,
                        weft_error *e) {
  Clocking c = {.a = a, .out = out};
  return sweep_job(s, i, clock_job, &c, why, e);
}
