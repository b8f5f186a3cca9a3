/* sim_figures.h - a step of a compiled plan on the clock, at all rates, and the same as a
 * table of Lua. */
#ifndef WEFT_SIM_FIGURES_H
#define WEFT_SIM_FIGURES_H

#include "bindings/api/job.h"
#include "bindings/script/script.h"
#include "vm/sim/step_clock.h"

typedef struct SimFigures {
  SimReport r;             /* at the usual rates */
  double seconds[RATES_N]; /* of the step */
  const char *plan, *gpu;  /* their names */
  bool measured;           /* with a calibration */
  double gpu_bytes; /* of the worst pipeline rank: its arena, and what CUDA and NCCL take
                       besides, by estimates */
} SimFigures;

/* What a stack does otherwise than weft, and ranks that are not alike. */
typedef struct SimStack {
  AttentionKind attention;
  bool steps_overlap, sends_block, tp_blocks; /* see SimOptions */
  SimSkew skew;
} SimStack;

/* After job_compile. Everything of `out` is in the arena, so that it outlives the job. */
weft_status sim_figures(const Job *j, const SimStack *stack, Arena *a, SimFigures *out,
                        weft_error *e);
/* Pushes the table that plan:sim() gives. */
void sim_figures_push(lua_State *L, const SimFigures *f);

#endif
