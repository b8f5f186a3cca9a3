/* handmade_regions.h - regions of programs and pieces of parameters that tests make by
 * hand. */
#ifndef WEFT_TEST_STORED_H
#define WEFT_TEST_STORED_H

#include "vm/program/program.h"
#include "vm/storage/piece.h"

/* Where the five things that are kept of a parameter lie; equal work and master: one. */
typedef struct StoredAt {
  uint64_t work, master, grad, m, v;
} StoredAt;
/* Adds a parameter that has regions of its own. */
void stored_add(Arena *a, Regions *s, Stored p, DType dtype, StoredAt at);
/* A mesh of these sizes (0: 1). */
Mesh stored_mesh(int pp, int dp, int cp, int tp);
/* What `rank` has of a parameter where no region cuts it flat. */
Piece stored_whole(const Mesh *m, const CompiledParam *p, int rank);

#endif
