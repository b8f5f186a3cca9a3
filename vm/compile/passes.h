/* passes.h - the order of passes from a plan to what its pipeline ranks do, once for
 * compile(), which makes programs of it, and for sweeps, which want bytes and costs.
 *
 * Each pass has inputs that few fields of a plan decide. A sweep gives a hook, which
 * finds what a pass made before for equal inputs, or prepares these and has the pass run:
 *
 *   PASS_SCHEDULE  in.schedule           -> when its actions run
 *   PASS_UNITS     in.graph, in.mesh     -> units
 *   PASS_STAGES    units, schedule       -> a stage for each unit, costs of ranks
 *   PASS_RANKS     stages, schedule      -> the order of sends, and what `ranks` makes */
#ifndef WEFT_PASSES_H
#define WEFT_PASSES_H

#include "vm/lower/rank_cost.h"

typedef enum { PASS_SCHEDULE, PASS_UNITS, PASS_STAGES, PASS_RANKS, PASS_N } Pass;

/* A schedule that can run. */
typedef struct ReadySchedule {
  Schedule s;
  Timeline when;
  bool splits; /* W runs apart from I somewhere */
} ReadySchedule;

typedef struct BuiltUnits {
  Units *u;
  BufferSizes sizes; /* with costs_only: of activations */
  int shape;         /* for the hook: its number for equal buffer_shape() */
} BuiltUnits;

/* Where a pass puts its result, and what is wrong. */
typedef struct PassResult {
  Arena *keep;
  void *value; /* ReadySchedule, BuiltUnits, RankCosts, what `ranks` makes */
  weft_status st;
  Diags *d;
  weft_error *e;
} PassResult;

typedef struct Passes Passes;
typedef void PassMake(Passes *p, PassResult *x);
extern PassMake *const pass_make[PASS_N];

struct Passes {
  CompileInput in; /* arena, scratch: temporary */
  Mesh mesh;       /* of the plan; its axes are split when units are known */
  bool costs_only; /* bodies keep no code; sizes and costs of ranks are counted */
  /* Makes what all ranks do of the order of sends: of a step, then of an evaluation. */
  weft_status (*ranks)(Passes *p, const Transfers *t, bool eval, PassResult *x);
  /* NULL: each pass runs. Else it finds the result of a pass, or prepares p->in and has
   * pass_make[which] make it; later passes depend on the result alone. */
  weft_status (*find)(Passes *p, Pass which, const void **value);
  void *ud;
  Diags *d; /* without a hook: where all of them report */
  weft_error *e;

  int microbatches; /* of a step: the schedule's times its rounds */
  const ReadySchedule *schedule;
  const BuiltUnits *units;
  const RankCosts *costs; /* without costs_only the stages alone */
  const void *made;       /* by `ranks` */
};

/* Up to what each rank holds and costs. */
weft_status passes_stages(Passes *p);
/* The rest. */
weft_status passes_ranks(Passes *p);

#endif
