/* handmade_regions.h - regions of programs and pieces of parameters, for tests. */
#ifndef WEFT_TEST_STORED_H
#define WEFT_TEST_STORED_H

#include "vm/program/program.h"
#include "vm/storage/piece.h"

/* Offsets of the five kinds of state of a parameter; equal work and master are one
 * region. */
typedef struct StoredAt {
  uint64_t work, master, grad, m, v;
} StoredAt;
/* Adds a parameter with regions of its own. */
void stored_add(Arena *a, Regions *s, Stored p, DType dtype, StoredAt at);
/* A mesh of these sizes (0: 1). */
Mesh stored_mesh(int pp, int dp, int cp, int tp);
/* The piece of a parameter on `rank` without a flat cut. */
Piece stored_whole(const Mesh *m, const CompiledParam *p, int rank);

#endif
