/* compile.h - from a plan, a logical graph and a schedule to programs.
 *
 * compile.c is the list of passes; each pass is a file of this folder. */
#ifndef WEFT_COMPILE_H
#define WEFT_COMPILE_H

#include "../plan.h"
#include "../program/program.h"

typedef enum { ACT_F, ACT_I, ACT_W, ACT_B, ACT_OVERLAP, ACT_UNSHARD, ACT_RESHARD,
               ACT_REDUCE_GRAD, ACT_N } ActionKind;
typedef struct Action {
  uint8_t kind;          /* ActionKind */
  int16_t chunk;         /* local, from 0 */
  int32_t mb;            /* microbatch, from 0; -1 for UNSHARD, RESHARD, REDUCE_GRAD */
  int16_t chunk2;        /* OVERLAP: the backward part */
  int32_t mb2;
  int32_t line;          /* of the schedule function, 0 if unknown */
} Action;

/* The table that a schedule gives: one list per pp rank. */
typedef struct Schedule {
  int ranks, virtual_stages, microbatches;
  bool v_placement;      /* stage of (rank, 1) is 2*ranks-1-rank, else chunk*ranks+rank */
  Action **list;         /* [ranks] */
  int *n;
  const char *name, *file;
} Schedule;
int schedule_stage(const Schedule *s, int rank, int chunk);
/* The rank and local chunk of a global stage. */
void schedule_where(const Schedule *s, int stage, int *rank, int *chunk);
/* schedule.c: completeness, order, dependencies; every problem becomes a diagnostic. */
bool schedule_check(const Schedule *s, Diags *d);

/* stage_layers.c: the layers of each of ranks * chunks stages, by all fields of pp_plan
 * but `modules` and `by_cost`; every problem becomes a diagnostic. With layers = -1
 * (unknown) only whether a list has one entry per stage is looked at. */
bool stage_layers(const PpPlan *pp, int ranks, int chunks, int layers, int *out, Diags *d);
/* How many stages layers_per_stage asks for. */
int64_t stage_count_asked(const PpPlan *pp, int64_t layers);

typedef struct CompileInput {
  const Plan *plan;
  const Mesh *mesh;
  Graph *graph;          /* finished by graph_finish; compile adds to it */
  const Schedule *schedule;
  Arena *arena;          /* owns the result */
  const char *dump;      /* letters of passes to dump to dump_out, or NULL */
  Text *dump_out;
} CompileInput;

/* Everything that is wrong with the combination goes to `d`. Returns WEFT_EPLAN if
 * there was an error there; other codes come with `e`. */
weft_status compile(const CompileInput *in, Compiled **out, Diags *d, weft_error *e);

#endif
