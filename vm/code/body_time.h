/* body_time.h - the duration of a body by data sheets: each kernel at the roofline of the
 * cluster's GPU, each collective at the speed of its links. */
#ifndef WEFT_BODY_TIME_H
#define WEFT_BODY_TIME_H

#include "body_code.h"
#include "vm/program/compile_input.h"
#include "vm/plan/link_speed.h"

typedef struct BodyClock {
  Cluster gpu; /* of the plan, or typical() */
  DType dtype; /* compute type */
  Mesh mesh;
} BodyClock;
/* For bodies of a plan; `copies` as in Units.tp_copies. Where the plan names no GPU the
 * proportions of one serve to order bodies. */
BodyClock body_clock(const CompileInput *in, int copies);

/* The part of its bytes that a collective moves if all experts get the same. */
double coll_even(const CodeInstr *x);
/* A ring, but for a shift. */
double coll_seconds(const Link *l, CollKind coll, double bytes, double count);
/* A kernel is bound by arithmetic or by memory; a collective takes its ring, on a
 * communicator over `axes`. Those over dp take nothing: what they take depends on sizes
 * that bodies do not. */
double instr_seconds(const BodyClock *c, const CodeInstr *x, const AxisSet *comm);

typedef struct BodyTime {
  double kernels; /* seconds of the compute queue */
  double hidden;  /* of collectives, beside kernels */
} BodyTime;
/* As the abstract machine walks it: one compute queue, one for each communicator. */
BodyTime body_time(const BodyClock *c, const UnitBody *b, const AxisSet *comm, Arena *a);

#endif
