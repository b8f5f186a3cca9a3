/* communicators.h - the communicators of a compile (axes, or pp ranks of a tied weight),
 * numbered by first use. */
#ifndef WEFT_COMMS_H
#define WEFT_COMMS_H

#include "vm/program/program.h"

typedef struct Comms {
  Arena *arena;
  const Mesh *mesh;
  VEC(CommDesc) list;
} Comms;

/* The communicator over these axes (npp = 0) or these pp ranks, which stay where they
 * are; -1 if it has one member. */
int comm_for(Comms *c, AxisSet axes, const int *pp, int npp);

#endif
