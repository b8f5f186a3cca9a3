/* sweep_point_int.h - a point while it is judged. */
#ifndef WEFT_SWEEP_POINT_INT_H
#define WEFT_SWEEP_POINT_INT_H

#include "sweep_point.h"
#include "bindings/model/model.h"
#include "bindings/lang/plan_load.h"

typedef struct Point {
  Judge *j;
  LangPlan *lp;
  Vary vary;
  Diags d;
  Mesh mesh;
  int microbatches; /* of the schedule */
  bool all_dp;      /* the units are made for the real number of data-parallel ranks */
  CacheEntry *of[PASS_N];
  PointReason *why;
} Point;

static inline const Plan *plan_of(const Point *p) { return &p->lp->plan; }

/* By Pass: what its result is looked up by, and, where its inputs are Lua's, how it is
 * made. */
typedef struct PointPass {
  weft_status (*key)(Point *p, const Passes *w, Text *k);
  void (*make)(Point *p, Passes *w, PassResult *x);
} PointPass;
extern const PointPass point_pass[PASS_N];

#endif
