/* compile.h - from a plan, a logical graph and a schedule to programs.
 *
 * compile.c is the list of passes: up to units they are files of this folder, then of
 * vm/pipeline, vm/storage and vm/program. */
#ifndef WEFT_COMPILE_H
#define WEFT_COMPILE_H

#include "vm/plan.h"
#include "vm/program/program.h"

/* schedule.c: every action once, in an order that its own rank and the others can follow.
 * Problems become diagnostics that name rank, step (the index in the rank's list) and the
 * actions; at most a screen of them. */
bool schedule_check(const Schedule *s, Diags *d);

/* compile.c: with all its lists and texts in `a`. */
Schedule schedule_copy(const Schedule *from, Arena *a);

/* stage_layers.c: the layers of each of ranks * chunks stages, by all fields of pp_plan
 * but `modules` and `by_cost`; every problem becomes a diagnostic. With layers = -1
 * (unknown) only whether a list has one entry per stage is looked at. */
bool stage_layers(const PpPlan *pp, int ranks, int chunks, int layers, int *out,
                  Diags *d);
/* How many stages layers_per_stage asks for. */
int64_t stage_count_asked(const PpPlan *pp, int64_t layers);

typedef struct CompileInput {
  const Plan *plan;
  const Mesh *mesh;
  Graph *graph;          /* finished by graph_finish; compile adds to it */
  const Schedule *schedule;
  const DeviceKind *device;     /* NULL: the first row of the table */
  Arena *arena;          /* of compile(): owns the result; of passes: temporary */
  Arena *scratch;        /* of passes: emptied between units and ranks */
  const char *dump;      /* letters of passes to dump to dump_out, or NULL */
  Text *dump_out;
} CompileInput;

static inline const DeviceKind *compile_device(const CompileInput *in) {
  return in->device ? in->device : device_kind(NULL, NULL);
}

/* Everything that is wrong with the combination goes to `d`. Returns WEFT_EPLAN if
 * there was an error there; other codes come with `e`. */
weft_status compile(const CompileInput *in, Compiled **out, Diags *d, weft_error *e);

#endif
