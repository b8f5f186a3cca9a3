/* cut.h - a front cut into stages: what each pipeline rank holds, runs and sends, without
 * programs. With the lifetimes of a schedule it gives the bytes of every rank and an
 * estimate of the time of a step. */
#ifndef WEFT_CUT_H
#define WEFT_CUT_H

#include "vm/compile/front.h"
#include "vm/storage/lifetimes.h"

typedef struct CutRank {
  uint64_t fixed;   /* parameters, gradients, state and scalars */
  uint64_t temp;    /* workspace, beside the buffers */
  uint64_t kept;    /* at least so many bytes in their place after the last one */
  int inputs;       /* how many inputs of a whole step it keeps */
  uint64_t params;  /* local elements */
  /* Bytes of gradients that are reduced, once a step: over dp (and others), over tp only,
   * and of parameters that other pipeline ranks hold, too. */
  uint64_t reduced, reduced_tp, tied;
  uint64_t sent;    /* bytes to other pipeline ranks, per microbatch */
  UnitWork work[3]; /* of one microbatch, all chunks; by Phase */
} CutRank;

typedef struct Cut {
  const Front *front;
  Build b; /* with stages and what crosses between them */
  CompileInput in;
  Plan plan;
  Mesh mesh;
  Schedule schedule; /* shape only, no actions */
  int ranks;
  CutRank *rank;
} Cut;

/* `plan` for pp_plan; of `s` only ranks, virtual_stages and v_placement are read. All of
 * it is copied but the lists of pp_plan, which are not read afterwards. */
weft_status cut_new(const Front *f, const Plan *plan, const Schedule *s, Arena *scratch,
                    Arena *a, Cut **out, Diags *d);
/* The lifetimes of all ranks under a schedule that is ready, with its clock. */
Lifetimes *cut_lifetimes(const Cut *c, const Schedule *s, const Timeline *when,
                         int rounds, Arena *scratch, Arena *a);

typedef struct Footprint {
  uint64_t bytes; /* of the worst rank; a lower bound if over the limit */
  int rank;       /* which that is */
  bool over;      /* more than the limit */
} Footprint;
/* Exactly Program.arena_bytes of the worst rank for `microbatches` in a step. */
Footprint cut_footprint(const Cut *c, const Lifetimes *l, int64_t microbatches,
                        uint64_t limit, Arena *scratch);

/* Looks at what is there without any buffer: over, or nothing known. */
Footprint cut_floor(const Cut *c, int64_t microbatches, uint64_t limit);

/* ---- estimate.c ---- */
typedef struct Estimate {
  double flops;      /* of a step, all ranks */
  double tp, dp, pp; /* bytes that the busiest rank gives to operations of a step */
  double seconds;    /* of a step; 0 without the figures of a GPU */
} Estimate;
/* On the real mesh, with the idle share that the schedule has in units. */
Estimate cut_estimate(const Cut *c, const Mesh *m, const Cluster *k, int64_t microbatches,
                      double bubble);

#endif
