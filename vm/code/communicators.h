/* communicators.h - the communicators of a compile, each over some axes or between the pp
 * ranks of a tied weight, numbered by first use. */
#ifndef WEFT_COMMS_H
#define WEFT_COMMS_H

#include "vm/program/program.h"

typedef struct Comms {
  Arena *arena;
  const Mesh *mesh;
  VEC(CommDesc) list;
} Comms;

/* The number of the communicator over these axes (npp = 0), or between these pp ranks; -1
 * if it has one member. `pp` must stay allocated. */
int comm_for(Comms *c, AxisSet axes, const int *pp, int npp);

#endif
