/* grad_buckets.c - collectives of gradient buckets: gradients are reduced first over the
 * axes that may shard state, then over the other axes they are partial over; and the
 * all-gather of parameters that were stepped in shards. */
#include "optimizer_step.h"

void emit_coll(Emit *e, CollKind coll, AxisSet axes, int handle, const char *what) {
  Instr *x = emit_instr(e, I_COLL, what);
  x->coll = (uint8_t)coll;
  x->red = RED_SUM;
  x->comm = (int16_t)comm_for(e->comms, axes, NULL, 0);
  x->handle = handle;
}

/* The same range without sharding. */
static Stretch uncut(const Stretch *r) {
  Stretch whole = *r;
  whole.flat = 0, whole.ways = 1;
  return whole;
}

/* A range of elements in a reduce buffer of its own. */
static Extent at_wire(uint64_t off, const Stretch *r) {
  return (Extent){off, r->count / r->ways, r->flat};
}

/* Casts gradients into a reduce buffer, or back. */
static void emit_cast(Emit *e, Extent from, DType t, Extent to, DType u) {
  emit_kernel(e, OP_cast, NULL, "gradients");
  emit_in(e, from, t);
  emit_out(e, to, u);
}

/* Waits for the reduction that uses a reduce buffer and casts its result into the
 * gradients. */
static void settle(Emit *e, int wire) {
  Wire *w = &e->wire[wire];
  if (!w->bucket) return;
  const Bucket *b = w->bucket;
  BucketSum sum = bucket_extent(e->l, b, w->step);
  bool scatter = sum.from.ways != sum.to.ways;
  const Region *g = layout_gradients(e->l, b->block);
  Extent mine = at_wire(e->l->wire[wire], &sum.to);
  if (!scatter) mine.shard = 0;
  emit_wait(e, w->handle, "gradients");
  emit_cast(e, mine, bucket_type(e->l, b, w->step), region_extent(g, &sum.to),
            (DType)g->dtype);
  w->bucket = NULL;
}

void bucket_start(Emit *e, int k, int step, int handle) {
  const Bucket *b = &e->l->bucket.at[k];
  const Region *g = layout_gradients(e->l, b->block);
  BucketSum sum = bucket_extent(e->l, b, step);
  DType type = bucket_type(e->l, b, step);
  bool scatter = sum.from.ways != sum.to.ways;
  Extent from = region_extent(g, &sum.from), to = region_extent(g, &sum.to);
  if (type != (DType)g->dtype) {
    int wire = e->next_wire++ % WIRES;
    settle(e, wire);
    e->wire[wire] = (Wire){b, step, handle};
    Extent there = {e->l->wire[wire], from.n, 0};
    emit_cast(e, from, (DType)g->dtype, there, type);
    from = to = there;
    if (scatter) to = at_wire(there.off, &sum.to);
  }
  emit_coll(e, scatter ? COLL_REDUCE_SCATTER : COLL_ALL_REDUCE, b->sum[step], handle,
            "gradients");
  emit_in(e, from, type);
  emit_out(e, to, type);
}

void bucket_wait(Emit *e, int k, int step, int handle) {
  const Bucket *b = &e->l->bucket.at[k];
  DType stored = (DType)layout_gradients(e->l, b->block)->dtype;
  if (bucket_type(e->l, b, step) == stored) emit_wait(e, handle, "gradients");
  for (int i = 0; i < WIRES; i++)
    if (e->wire[i].bucket == b && e->wire[i].step == step) settle(e, i);
}

bool emit_gather(Emit *e, const Stretch *r, int handle, const char *what) {
  const Regions *s = &e->l->regions;
  const Region *work = regions_find(s, REGION_WORK, &s->param[r->first]);
  if (r->ways == 1 || work->flat) return false;
  Stretch whole = uncut(r);
  emit_coll(e, COLL_ALL_GATHER, r->flat, handle, what);
  emit_in(e, region_extent(work, r), (DType)work->dtype);
  emit_out(e, region_extent(work, &whole), (DType)work->dtype);
  return true;
}

/* Fills n elements with zeros: what a slice has beyond its input is zero, and here the
 * input is empty. */
void emit_zeros(Emit *e, DType dt, uint64_t at, int64_t n, const char *what) {
  emit_kernel(e, OP_slice, &(OpAttr){.n = 1}, what);
  emit_in(e, (Extent){.off = at}, dt);
  emit_out(e, (Extent){.off = at, .n = n}, dt);
}

void clear_stored(Emit *e, const Stored *p, int n, uint64_t at, int64_t first) {
  int64_t end = p[n - 1].at + p[n - 1].count;
  DType dt = (DType)layout_gradients(e->l, p->block)->dtype;
  emit_zeros(e, dt, at + (uint64_t)((p->at - first) * dtype_size(dt)), end - p->at,
             "gradients");
}

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
  DType dt = (DType)layout_gradients(e->l, block)->dtype;
  emit_zeros(e, dt, at + (uint64_t)((from - b->first) * dtype_size(dt)), to - from,
             "gradients");
}

void clear_paddings(Emit *e) {
  const Regions *s = &e->l->regions;
  for (int i = 0; i < s->nblock; i++) {
    const Region *g = layout_gradients(e->l, i);
    if (g && g->count == g->whole) clear_padding(e, i, region_at(g, s->block[i].first));
  }
}
