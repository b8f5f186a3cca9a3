/* buckets.c - the collectives of the optimizer's part: gradients of a block are summed in
 * two steps, over the axes that may cut state, then over the others they are partial
 * over; parameters that were stepped in shards are gathered. */
#include "update.h"

static void start(Emit *e, CollKind coll, AxisSet axes, int handle, const char *what) {
  Instr *x = emit_instr(e, I_COLL, what);
  x->coll = (uint8_t)coll;
  x->red = RED_SUM;
  x->comm = (int16_t)comm_for(e->comms, axes, NULL, 0);
  x->handle = handle;
}

/* The same parameters, not cut. */
static Stretch uncut(const Stretch *r) {
  Stretch whole = *r;
  whole.flat = 0, whole.ways = 1;
  return whole;
}

/* Where shards are kept a rank needs its own of the first sum, which has it in place. */
Instr *bucket_sum(Emit *e, int k, int step, int handle) {
  const Bucket *bk = &e->l->bucket.at[k];
  const Regions *s = &e->l->regions;
  const Region *g = regions_find(s, REGION_GRAD, &s->param[bk->first]);
  Stretch mine = regions_block(s, bk->block, g), from = mine;
  bool scatter = step == 0 && g->spread && bk->sum[0] & g->flat;
  if (scatter) from = uncut(&mine);
  start(e, scatter ? COLL_REDUCE_SCATTER : COLL_ALL_REDUCE, bk->sum[step], handle,
        "gradients");
  emit_in(e, region_extent(g, &from), DT_F32);
  emit_out(e, region_extent(g, &mine), DT_F32);
  return &e->code.at[e->code.n - 1];
}

bool emit_gather(Emit *e, const Stretch *r, int handle, const char *what) {
  const Regions *s = &e->l->regions;
  const Region *work = regions_find(s, REGION_WORK, &s->param[r->first]);
  if (r->ways == 1 || work->flat) return false;
  Stretch whole = uncut(r);
  start(e, COLL_ALL_GATHER, r->flat, handle, what);
  emit_in(e, region_extent(work, r), (DType)work->dtype);
  emit_out(e, region_extent(work, &whole), (DType)work->dtype);
  return true;
}

/* A slice of nothing is zero. */
void clear_padding(Emit *e, int block, uint64_t at) {
  const Regions *s = &e->l->regions;
  const Block *b = &s->block[block];
  int64_t end = b->first, from = -1, to = 0;
  for (int i = b->at; i <= b->at + b->n; i++) {
    int64_t next = i < b->at + b->n ? s->param[i].at : b->first + b->whole;
    if (next > end) from = from < 0 ? end : from, to = next;
    if (i < b->at + b->n) end = next + s->param[i].count;
  }
  if (from < 0) return;
  emit_kernel(e, OP_slice, &(OpAttr){.n = 1}, "gradients");
  emit_in(e, (Extent){.off = at}, DT_F32);
  emit_out(e, (Extent){.off = at + (uint64_t)(from - b->first) * 4, .n = to - from},
           DT_F32);
}

void clear_spread(Emit *e) {
  const Regions *s = &e->l->regions;
  for (int i = 0; i < s->nblock; i++) {
    const Region *g = regions_find(s, REGION_GRAD, &s->param[s->block[i].at]);
    if (g->spread) clear_padding(e, i, region_at(g, s->block[i].first));
  }
}
