/* lower.h - the state while the program of a pp rank is written. */
#ifndef WEFT_LOWER_H
#define WEFT_LOWER_H

#include "vm/code/communicators.h"
#include "main_list.h"

/* A reduction that goes through a buffer of Layout.wire. */
typedef struct Wire {
  const Bucket *bucket; /* NULL: the buffer is free */
  int step, handle;
} Wire;

typedef struct Emit {
  const Plan *plan; /* this and the members up to `l` are set by the caller */
  const Mesh *mesh;
  const Stages *st;
  const Units *u;
  int microbatches;
  Comms *comms;
  Arena *scratch; /* temporary memory of this rank */
  Program *p;
  const Layout *l;
  const struct UnshardedList *unsharded;
  uint64_t dead; /* bytes from Layout.end on that are free once all actions are over */
  VEC(Instr) code;
  VEC(Operand) operand;
  VEC(OpAttr) attr;
  VEC(Call) call;
  VEC(uint64_t) dyn;
  VEC(Bind) bind;
  VEC(const char *) what, unit;
  VEC(uint32_t) number; /* of each unit */
  VEC(Body) body;
  Wire wire[WIRES];
  int next_wire; /* number of the next reduction through such a buffer */
} Emit;
Instr *emit_instr(Emit *e, InstrCode code, const char *what);
uint32_t emit_operand(Emit *e, Extent at, DType dt);
/* Starts reduction 0 or 1 of a bucket; waits until the gradients have the result. */
void bucket_start(Emit *e, int k, int step, int handle);
void bucket_wait(Emit *e, int k, int step, int handle);
/* For a forward-only program, before and after all actions: reductions of the number of
 * label tokens and of the loss. No region is written. */
void update_count(Emit *e, const Compiled *c);
void update_loss(Emit *e);
void update_sources(Emit *e);
/* The same for a training step. */
void update_prologue(Emit *e, const Compiled *c);
void update_epilogue(Emit *e, const Compiled *c, MainList *t);

/* ---- lower_bodies.c ---- */
typedef struct Bodies {
  int (*of)[BODIES]; /* unit -> numbers of its bodies that are called, -1 */
  VEC(int) unit;     /* body -> BODIES * (a unit with this code) + phase */
} Bodies;
/* Numbers the bodies that the rank calls; units with equal code share them. They are
 * numbered before the main list is written and written after it. */
void bodies_number(Emit *e, const MainList *t, Bodies *bo);
/* Writes body `number`; `temp`: where the scratch of bodies begins. */
void body_write(Emit *e, const Bodies *bo, int number, uint64_t temp, bool forward);

/* memory_report.c: bytes by class, for these bytes in each area and of workspace;
 * operations in flight; flops. */
void memory_report(Emit *e, Compiled *c, const uint64_t *area, uint64_t temp);
/* requires layout, main list and bodies with code; establishes the program of pp rank
 * e->p->pp, in the arena of `c`. */
void lower(Emit *e, MainList *t, Compiled *c);

#endif
