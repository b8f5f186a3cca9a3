/* handmade_regions.c - regions and pieces made by hand. */
#include "handmade_regions.h"

#include <check.h>

enum { KINDS = 5 };

static void add_region(Regions *s, const Stored *p, RegionKind kind, DType dtype,
                       uint64_t off) {
  s->region[s->nregion++] = (Region){.kind = kind,
                                     .dtype = dtype,
                                     .first = p->at,
                                     .ways = 1,
                                     .whole = p->count,
                                     .count = p->count,
                                     .off = off};
}

void stored_add(Arena *a, Regions *s, Stored p, DType dtype, StoredAt at) {
  Regions more = *s;
  more.param = NEW_N(a, Stored, s->nparam + 1);
  more.block = NEW_N(a, Block, s->nblock + 1);
  more.region = NEW_N(a, Region, s->nregion + KINDS);
  if (s->nparam) memcpy(more.param, s->param, sizeof *s->param * (size_t)s->nparam);
  if (s->nblock) memcpy(more.block, s->block, sizeof *s->block * (size_t)s->nblock);
  if (s->nregion) memcpy(more.region, s->region, sizeof *s->region * (size_t)s->nregion);
  *s = more;
  if (s->nparam) p.at = s->param[s->nparam - 1].at + s->param[s->nparam - 1].count;
  p.block = s->nblock;
  s->block[s->nblock++] =
      (Block){.first = p.at, .whole = p.count, .at = s->nparam, .n = 1};
  s->param[s->nparam++] = p;
  add_region(s, &p, REGION_WORK, dtype, at.work);
  if (at.master != at.work) add_region(s, &p, REGION_MASTER, DT_F32, at.master);
  add_region(s, &p, REGION_GRAD, DT_F32, at.grad);
  add_region(s, &p, REGION_STATE1, DT_F32, at.m);
  add_region(s, &p, REGION_STATE2, DT_F32, at.v);
}

Mesh stored_mesh(int pp, int dp, int cp, int tp) {
  Arena *arena = arena_new(NULL);
  Diags d = {.arena = arena};
  Mesh m;
  bool ok = mesh_resolve(&(MeshSpec){.pp = pp, .dp = dp, .cp = cp, .tp = tp}, 0, &m, &d);
  arena_free(arena);
  ck_assert(ok);
  return m;
}

Piece stored_whole(const Mesh *m, const CompiledParam *p, int rank) {
  int64_t n = piece_box(m, p);
  Stored at = {.count = n};
  Block block = {.whole = n, .n = 1};
  Regions s = {.param = &at, .nparam = 1, .block = &block, .nblock = 1};
  Region r = {.dtype = DT_F32, .ways = 1, .whole = n, .count = n};
  Piece piece = piece_make(m, p, &s, &at, &r, rank);
  piece.region = NULL;
  return piece;
}
