/* saved_pieces.c - which rank writes what of a checkpoint, from the programs alone. */
#include "saved_pieces.h"

static const Regions *regions_of(const SavedList *l) {
  return &l->c->prog[mesh_coord(&l->c->mesh, l->rank, AXIS_PP)].regions;
}

/* Elements of a parameter in a region, on a rank where no padding shortens them. */
static int64_t held(const Stored *at, const Piece *piece) {
  const Region *r = piece->region;
  return r->factors ? piece->count : (at->count + r->ways - 1) / r->ways;
}

/* Item `i`, if this pp rank is the one that has to write it: its piece on this rank, and
 * its bytes on a rank where no padding shortens it. */
static bool item_at(const SavedList *l, int i, Saved *out, uint64_t *bytes) {
  const Regions *s = regions_of(l);
  const Stored *at = &s->param[i % s->nparam];
  const CompiledParam *p = &l->c->param[at->param];
  Piece piece[2];
  if (p->pp[0] != mesh_coord(&l->c->mesh, l->rank, AXIS_PP)) return false;
  StateKind k = kept_kind(i / s->nparam);
  if (!state_pieces(l->c, l->rank, k, at->param, piece)) return false;
  const Region *r = piece[0].region;
  *out = (Saved){.kind = k, .param = at->param, .piece = piece[0]};
  *bytes = (uint64_t)held(at, piece) * (uint64_t)dtype_size(region_saved(r));
  return true;
}

static AxisSet copies_of(const SavedList *l, const Saved *s) {
  AxisSet axes = axes_rest(piece_axes(&l->c->param[s->param], s->piece.region));
  return mesh_axes(&l->c->mesh, axes & ~AXIS_BIT(AXIS_PP));
}

static struct SavedCopies *copies_find(SavedList *l, AxisSet axes) {
  for (int i = 0; i < l->ncopies; i++)
    if (l->copies[i].axes == axes) return &l->copies[i];
  assert(l->ncopies < SAVED_COPIES);
  l->copies[l->ncopies] = (struct SavedCopies){.axes = axes};
  return &l->copies[l->ncopies++];
}

SavedList saved_list(const Compiled *c, int rank) {
  SavedList l = {.c = c, .rank = rank};
  Saved s;
  uint64_t bytes;
  for (int i = 0; i < regions_of(&l)->nparam * kept_kinds(c); i++)
    if (item_at(&l, i, &s, &bytes)) copies_find(&l, copies_of(&l, &s))->total += bytes;
  return l;
}

/* The writer of the next piece: pieces with the same ranks as copies are one row of
 * bytes, of which each of these ranks writes an equal part, what has its middle there. */
static uint64_t deal(const SavedList *l, struct SavedCopies *c, uint64_t bytes) {
  uint64_t n = (uint64_t)mesh_size(&l->c->mesh, c->axes);
  uint64_t writer = (c->dealt + bytes / 2) * n / MAX(c->total, 1);
  c->dealt += bytes;
  return writer;
}

bool saved_next(SavedList *l, Saved *out) {
  uint64_t bytes;
  for (int all = regions_of(l)->nparam * kept_kinds(l->c); l->item < all;) {
    if (!item_at(l, l->item++, out, &bytes)) continue;
    struct SavedCopies *c = copies_find(l, copies_of(l, out));
    uint64_t writer = deal(l, c, bytes);
    if ((int)writer != mesh_index(&l->c->mesh, c->axes, l->rank)) continue;
    if (!out->piece.count) continue;
    out->at = l->at;
    l->at += saved_size(out);
    return true;
  }
  return false;
}

uint64_t saved_share(const Compiled *c, int rank) {
  SavedList l = saved_list(c, rank);
  for (Saved s; saved_next(&l, &s);) continue;
  return l.at;
}

/* Of the pieces with the same copies: those of the writer that counts now. */
typedef struct Most {
  uint64_t writer;
  const Region *region; /* and block, of which a rank has no more than its shard */
  int block;
  uint64_t shard, in_block, all, best;
} Most;

static void end_block(Most *m) {
  m->all += MIN(m->in_block, m->shard);
  m->in_block = 0;
  m->best = MAX(m->best, m->all);
}

static void add_item(Most *m, const SavedList *l, const Saved *s, uint64_t writer) {
  const Region *r = s->piece.region;
  const Stored *at = regions_param(regions_of(l), s->param);
  uint64_t size = (uint64_t)dtype_size(region_saved(r));
  bool next = m->writer != writer;
  if (next || m->region != r || m->block != at->block) end_block(m);
  if (next) m->all = 0;
  m->writer = writer;
  m->region = r;
  m->block = at->block;
  m->shard = r->factors
                 ? region_bytes(r)
                 : (uint64_t)(regions_of(l)->block[at->block].whole / r->ways) * size;
  m->in_block += (uint64_t)(r->factors ? s->piece.count : at->count) * size;
}

/* Without a look at each rank: they differ in paddings and in where flat cuts fall only.
 */
uint64_t saved_most(const Compiled *c, int pp) {
  SavedList l = saved_list(c, rank_on_pp(&c->mesh, 0, pp));
  Most most[SAVED_COPIES] = {0};
  uint64_t bytes, sum = 0;
  Saved s;
  for (int i = 0; i < regions_of(&l)->nparam * kept_kinds(c); i++) {
    if (!item_at(&l, i, &s, &bytes)) continue;
    struct SavedCopies *of = copies_find(&l, copies_of(&l, &s));
    add_item(&most[of - l.copies], &l, &s, deal(&l, of, bytes));
  }
  for (int i = 0; i < l.ncopies; i++) {
    end_block(&most[i]);
    sum += most[i].best;
  }
  return sum;
}
