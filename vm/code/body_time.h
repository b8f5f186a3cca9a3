/* body_time.h - what the instructions of a body take by data sheets: kernels at the
 * roofline of the cluster's GPU, collectives at the speed of their links. */
#ifndef WEFT_BODY_TIME_H
#define WEFT_BODY_TIME_H

#include "body_code.h"
#include "vm/program/compile_input.h"
#include "vm/program/expert_rows.h"
#include "vm/plan/link_speed.h"

typedef struct BodyClock {
  Cluster gpu; /* of the plan, or a typical one */
  DType dtype; /* compute type */
  Mesh mesh;
  EvenList even; /* rows of experts; see body_even */
} BodyClock;
/* The clock for bodies of a plan; `copies` as in Units.tp_copies. If figures of the
 * plan's GPU are missing, typical ones serve to order bodies. */
BodyClock body_clock(const CompileInput *in, int copies);

/* The part of a collective's bytes that is moved if experts are balanced. */
double coll_even(const CodeInstr *x);
/* Ring time; a shift takes one step. */
double coll_seconds(const Link *l, CollKind coll, double bytes, double count);
/* Seconds of a kernel (bound by arithmetic or memory) or of a collective on a
 * communicator over `axes`. Collectives over dp count as 0: their cost depends on sizes
 * that bodies must not depend on. */
double instr_seconds(const BodyClock *c, const CodeInstr *x, const AxisSet *comm);

/* Notes how many rows the experts of a body get if all get the same, for the times of
 * this body and others of the unit. */
void body_even(BodyClock *c, const UnitBody *b, Arena *a);

/* Of a kernel with as many rows of experts as that. */
double kernel_even_seconds(const BodyClock *c, const CodeInstr *x);

#endif
