/* compile_input.h - the input of a compile: plan, mesh, graph, schedule, arenas, what to
 * dump. */
#ifndef WEFT_COMPILE_INPUT_H
#define WEFT_COMPILE_INPUT_H

#include "vm/plan/plan.h"
#include "vm/program/program.h"

typedef struct CompileInput {
  const Plan *plan;
  const Mesh *mesh;
  Graph *graph;             /* finished by graph_finish; compile adds to it */
  const Schedule *schedule; /* of units: may be NULL, then W comes right after I */
  int64_t context; /* 0; or the graph is that of decode_graph, for programs that take
                      one token each: forward only, no state but the parameters */
  bool evaluates;  /* nothing learns: no gradients, no states, no masters */
  const DeviceKind *device; /* NULL: the first row of the table */
  Arena *arena;             /* of compile(): owns the result; of passes: temporary */
  Arena *scratch;           /* of passes: emptied between units and ranks */
  const char *dump;         /* letters of passes to dump to dump_out, or NULL */
  Text *dump_out;
} CompileInput;

static inline const DeviceKind *compile_device(const CompileInput *in) {
  return in->device ? in->device : device_kind(NULL, NULL);
}

/* Whether W runs apart from I anywhere. */
static inline bool compile_splits(const CompileInput *in) {
  return in->schedule && schedule_splits(in->schedule);
}

#endif
