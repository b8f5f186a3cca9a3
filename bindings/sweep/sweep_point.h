/* sweep_point.h - one point of a sweep: a plan with other values, judged by the passes of
 * the compiler as far as its bytes and its schedule go. Nothing of it needs a script. */
#ifndef WEFT_SWEEP_POINT_H
#define WEFT_SWEEP_POINT_H

#include "bindings/lang/plan_key.h"
#include "bindings/lang/vary.h"
#include "bindings/schema/schema.h"
#include "sweep_cache.h"
#include "vm/compile/passes.h"

/* What all threads of a sweep share: results of passes, graphs of models, and shapes of
 * units. */
typedef struct SweepCaches {
  Cache of[PASS_N], graph, shape;
} SweepCaches;
void sweep_caches_init(SweepCaches *c);
void sweep_caches_free(SweepCaches *c);

/* Bytes of a rank: what the cluster's GPU has for a plan; any. */
#define LIMIT_GPU  UINT64_MAX
#define LIMIT_NONE (UINT64_MAX - 1)

typedef enum { POINT_NONE, POINT_OK, POINT_ILLEGAL, POINT_MEMORY } PointState;

typedef struct PointRow {
  PointState state;
  int dp, microbatches, worst;     /* worst: the pipeline rank with most bytes */
  double bytes;                    /* of that rank, exactly, unless */
  double mean_fixed;               /* see RankMemory.mean; of a floor only */
  bool floor;                      /* bytes and seconds are lower bounds: see Judge */
  double bubble;                   /* idle share with unit costs */
  double tp, cp, ep, dp_bytes, pp; /* given to operations of a step, busiest rank */
  double ep_even;                  /* see Estimate */
  double flops;                    /* of a step, all ranks */
  double recomputed;               /* of those, what is repeated: see Body */
  double seconds;                  /* estimate of a step; 0: no figures */
  double even;                     /* see Estimate */
} PointRow;

/* Why a point is no plan. */
typedef struct PointReason {
  char code[32], path[96], text[192];
} PointReason;

/* The first error of the diagnostics, or what else went wrong. */
void point_reason(const Diags *d, const weft_error *e, PointReason *why);

/* One thread's means. */
typedef struct Judge {
  LangPlan *lp;
  int values;               /* vary_take */
  const LangShared *shared; /* plan_share, or NULL */
  SweepCaches *caches;
  uint64_t limit; /* bytes of a rank, LIMIT_GPU or LIMIT_NONE */
  bool floor; /* bytes of a point are a lower bound, without lifetimes of buffers, which
                 take most of the time */
  Arena *arena, *scratch, *unit; /* unit: of a unit while its code is made */
  CacheEntry stages; /* of the last point whose bytes are a bound: only neighbours in a
                        grid share them */
  Text key;
  weft_error e;
} Judge;

/* Takes the plan over; `scratch` and `arena` are made. */
weft_status judge_open(Judge *j, LangPlan *lp, int values, const LangShared *shared,
                       SweepCaches *c, uint64_t limit);
void judge_close(Judge *j); /* frees the plan too */
/* Only WEFT_ENOMEM, WEFT_ELIMIT, WEFT_EINTR and WEFT_EINTERNAL are errors. */
weft_status judge_point(Judge *j, const int *choice, int n, PointRow *row,
                        PointReason *why);

#endif
