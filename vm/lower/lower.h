/* lower.h - writing the program of a pp rank. */
#ifndef WEFT_LOWER_H
#define WEFT_LOWER_H

#include "vm/code/communicators.h"
#include "main_list.h"

/* A sum that goes through Layout.wire. */
typedef struct Wire {
  const Bucket *bucket; /* NULL: none does now */
  int step, handle;
} Wire;

typedef struct Emit {
  const Plan *plan; /* from here to `l`: set by the caller */
  const Mesh *mesh;
  const Stages *st;
  const Units *u;
  int microbatches;
  Comms *comms;
  Arena *scratch; /* of this rank */
  Program *p;
  const Layout *l;
  const struct UnshardedList *held;
  VEC(Instr) code;
  VEC(Operand) operand;
  VEC(OpAttr) attr;
  VEC(Call) call;
  VEC(uint64_t) dyn;
  VEC(Bind) bind;
  VEC(const char *) what, unit;
  VEC(Body) body;
  Wire wire[WIRES];
  int next_wire; /* number of the next sum through one */
} Emit;
Instr *emit_instr(Emit *e, InstrCode code, const char *what);
uint32_t emit_operand(Emit *e, Extent at, DType dt);
/* Starts sum 0 or 1 of a bucket, and waits until its gradients have it. */
void bucket_start(Emit *e, int k, int step, int handle);
void bucket_wait(Emit *e, int k, int step, int handle);
/* Before and after all actions of a program that is forward only: the label tokens and
 * the loss of all ranks. It writes no region. */
void update_count(Emit *e, const Compiled *c);
void update_loss(Emit *e);
/* The same of a step: before the first action and after the last one. */
void update_prologue(Emit *e, const Compiled *c);
void update_epilogue(Emit *e, const Compiled *c, MainList *t);
/* memory_report.c: bytes by class, of so many in each area and for temporaries;
 * operations under way at once; flops. */
void memory_report(Emit *e, Compiled *c, const uint64_t *area, uint64_t temp);
/* requires layout, actions and bodies with code; establishes the program of pp rank
 * e->p->pp, in the arena of `c`. */
void lower(Emit *e, MainList *t, Compiled *c);

#endif
