/* unsharded_buckets.c - finds the buckets of a rank whose parameters or gradients are
 * stored as shards, and writes the instructions of the events that unshard() placed. */
#include "unsharded_buckets.h"

/* ---- which buckets ---- */

/* Bytes of the unsharded bucket if its region stores shards, else 0. */
static uint64_t held_bytes(const Regions *s, RegionKind kind, const Block *b) {
  const Region *r = regions_find(s, kind, &s->param[b->at]);
  if (!r || !r->flat || r->spread) return 0;
  return (uint64_t)b->whole * (uint64_t)dtype_size((DType)r->dtype);
}

/* By the axes over which its parameters or its gradients are stored as shards. */
static bool of_experts(const Regions *s, const Block *b) {
  const Region *r = regions_find(s, REGION_WORK, &s->param[b->at]),
               *g = regions_find(s, REGION_GRAD, &s->param[b->at]);
  return (r && axes_expert(r->flat)) || (g && axes_expert(g->flat));
}

/* Bytes of an unsharded gradient in the type in which it is reduced, if it is another. */
static uint64_t reduce_buffer(const Layout *l, int block, uint64_t full) {
  if (!full) return 0;
  DType stored = (DType)layout_gradients(l, block)->dtype, sum = layout_reduce(l, block);
  return sum == stored ? 0
                       : full / (uint64_t)dtype_size(stored) * (uint64_t)dtype_size(sum);
}

static void find_blocks(const Layout *l, UnshardedList *out) {
  const Regions *s = &l->regions;
  for (int i = 0; i < s->nblock; i++) {
    UnshardedBucket x = {.block = i, .unit = -1, .experts = of_experts(s, &s->block[i])};
    x.bytes[FULL_PARAM] = held_bytes(s, REGION_WORK, &s->block[i]);
    x.bytes[FULL_GRAD] = held_bytes(s, REGION_GRAD, &s->block[i]);
    /* Groups are parts of dp_shard, which does not shard experts. */
    if (l->group > 1 && !x.experts)
      x.bytes[GROUP_SHARD] = x.bytes[FULL_PARAM] / (uint64_t)l->group;
    x.bytes[REDUCE_BUFFER] = reduce_buffer(l, i, x.bytes[FULL_GRAD]);
    out->of[i] = x.bytes[FULL_PARAM] || x.bytes[FULL_GRAD] ? out->n : -1;
    if (out->of[i] >= 0) out->at[out->n++] = x;
    for (int k = 0; k < UNSHARDED_N; k++) out->bytes[k] += x.bytes[k];
  }
}

/* The buckets that a unit uses, from out->use[out->first[u]] on; returns their end. */
static int32_t find_uses(const Stages *st, const Layout *l, int u, UnshardedList *out) {
  const CompiledUnit *x = &st->u->at[u];
  int32_t first = out->first[u], end = first;
  for (int i = 0; i < x->code->nparam; i++) {
    int32_t bucket = out->of[l->regions.param[l->of[x->param[i]]].block], k = first;
    if (bucket < 0) continue;
    while (k < end && out->use[k].bucket != bucket) k++;
    if (k == end) out->use[end++] = (BucketUse){.bucket = bucket};
    out->use[k].reads |= x->code->param_use[i];
    out->use[k].writes |= x->code->grad_use[i];
    UnshardedBucket *b = &out->at[bucket];
    b->chunks |= 1ull << st->chunk[st->of_unit[u]];
    if (b->unit < 0) b->unit = u;
  }
  return end;
}

/* Buckets below a sixteenth of the largest go to an area of their own, so that they do
 * not leave holes between large ones. */
static void find_areas(UnshardedList *out) {
  uint64_t most = 0;
  for (int i = 0; i < out->n; i++)
    most = MAX(most, MAX(out->at[i].bytes[FULL_PARAM], out->at[i].bytes[FULL_GRAD]));
  for (int i = 0; i < out->n; i++) {
    const uint64_t *bytes = out->at[i].bytes;
    bool small = MAX(bytes[FULL_PARAM], bytes[FULL_GRAD]) < most / 16;
    out->at[i].area = small ? AREA_SMALL : AREA_GATHER;
  }
}

void unsharded_buckets(const Stages *st, const Layout *l, int rank, Arena *a,
                       UnshardedList *out) {
  const Regions *s = &l->regions;
  int uses = 0;
  *out = (UnshardedList){.at = NEW_N(a, UnshardedBucket, s->nblock),
                         .of = NEW_N(a, int, s->nblock)};
  find_blocks(l, out);
  if (out->n == 0) return;
  find_areas(out);
  for (int u = 0; u < st->u->n; u++)
    if (unit_rank(st, u) == rank) uses += st->u->at[u].code->nparam;
  out->first = NEW_N(a, int32_t, st->u->n + 1);
  out->use = NEW_N(a, BucketUse, uses);
  for (int u = 0; u < st->u->n; u++)
    out->first[u + 1] =
        unit_rank(st, u) == rank ? find_uses(st, l, u, out) : out->first[u];
}

/* ---- instructions ---- */

static const Region *region_of(const Emit *e, const UnshardedBucket *x, RegionKind kind) {
  const Regions *s = &e->l->regions;
  return regions_find(s, kind, &s->param[s->block[x->block].at]);
}

/* This rank's shard in the region. */
static Extent shard_of(const Emit *e, const UnshardedBucket *x, const Region *r) {
  Stretch block = regions_block(&e->l->regions, x->block, r);
  return region_extent(r, &block);
}

static Instr *start(Emit *e, const UnshardedNow *n, const Event *ev, InstrCode code,
                    const UnshardedBucket *x) {
  Instr *in = emit_instr(e, code, e->u->at[x->unit].name);
  in->unit = (uint32_t)n->unit_at[x->unit];
  in->handle = ev->handle;
  return in;
}

/* The shard that a GATHER sends: the stored one or, within a group, what KEEP has copied.
 * An offloaded shard is first copied from the host into its place in the unsharded
 * buffer. */
static Extent gathered_from(Emit *e, const UnshardedNow *n, const Event *ev,
                            Extent whole) {
  const UnshardedBucket *x = &n->h->at[ev->unsharded];
  const Region *r = region_of(e, x, REGION_WORK);
  if (ev->kept)
    return (Extent){.off = n->part[ev->unsharded], .n = whole.n / e->l->group};
  if (!on_host(r->off)) return shard_of(e, x, r);
  Extent part = {whole.off, whole.n / r->ways, r->flat};
  emit_kernel(e, OP_copy, NULL, e->u->at[x->unit].name);
  emit_in(e, shard_of(e, x, r), (DType)r->dtype);
  emit_out(e, part, (DType)r->dtype);
  return part;
}

static void emit_gathering(Emit *e, UnshardedNow *n, const Event *ev, uint64_t at) {
  const UnshardedBucket *x = &n->h->at[ev->unsharded];
  const Region *r = region_of(e, x, REGION_WORK);
  Extent whole = {.off = at, .n = e->l->regions.block[x->block].whole};
  n->copy[ev->unsharded] = at;
  if (ev->kind == EV_GATHER) {
    Extent from = gathered_from(e, n, ev, whole);
    Instr *in = start(e, n, ev, I_GATHER, x);
    in->coll = COLL_ALL_GATHER;
    AxisSet over = ev->kept ? e->l->group_axes : r->flat;
    in->comm = (int16_t)comm_for(e->comms, over, NULL, 0);
    emit_in(e, from, (DType)r->dtype);
    emit_out(e, whole, (DType)r->dtype);
  } else {
    start(e, n, ev, I_FREE, x);
    emit_in(e, whole, (DType)r->dtype);
  }
}

/* Copies this rank's part of an unsharded bucket, for later gathers within its group. */
static void emit_keep(Emit *e, UnshardedNow *n, const Event *ev, uint64_t at) {
  const UnshardedBucket *x = &n->h->at[ev->unsharded];
  DType t = (DType)region_of(e, x, REGION_WORK)->dtype;
  int64_t part = e->l->regions.block[x->block].whole / e->l->group;
  n->part[ev->unsharded] = at;
  emit_kernel(e, OP_copy, NULL, e->u->at[x->unit].name);
  emit_in(e, (Extent){n->copy[ev->unsharded], part, e->l->group_axes}, t);
  emit_out(e, (Extent){.off = at, .n = part}, t);
}

/* Accumulates the result of a SCATTER in the gradient shard; the first of a step
 * overwrites it. */
static void emit_add(Emit *e, const UnshardedBucket *x, Extent part, bool first) {
  emit_kernel(e, OP_cast, NULL, "gradients");
  e->code.at[e->code.n - 1].acc = first ? ACC_NEVER : ACC_ALWAYS;
  const Region *g = layout_gradients(e->l, x->block);
  emit_in(e, part, layout_reduce(e->l, x->block));
  emit_out(e, shard_of(e, x, g), (DType)g->dtype);
}

/* SCATTER and ADD. The first SCATTER of a step writes the shard directly. A later one, or
 * one in another type, leaves its result in the rank's part of the buffer, from where ADD
 * accumulates it. */
static void emit_sum(Emit *e, UnshardedNow *n, const Event *ev, uint64_t at) {
  const UnshardedBucket *x = &n->h->at[ev->unsharded];
  const Region *r = layout_gradients(e->l, x->block);
  int64_t length = e->l->regions.block[x->block].whole;
  Extent part = {at, length / r->ways, r->flat}, whole = {.off = at, .n = length};
  DType type = layout_reduce(e->l, x->block);
  if (ev->kind == EV_ADD) {
    emit_add(e, x, part, ev->first);
    return;
  }
  if (x->bytes[REDUCE_BUFFER]) {
    emit_kernel(e, OP_cast, NULL, "gradients");
    emit_in(e, (Extent){.off = n->sum[ev->unsharded], .n = length}, (DType)r->dtype);
    emit_out(e, whole, type);
  }
  Instr *in = start(e, n, ev, I_SCATTER, x);
  in->coll = COLL_REDUCE_SCATTER, in->red = RED_SUM;
  in->comm = (int16_t)comm_for(e->comms, r->flat, NULL, 0);
  emit_in(e, whole, type);
  emit_out(e, ev->first && !x->bytes[REDUCE_BUFFER] ? shard_of(e, x, r) : part, type);
}

void emit_unsharded(Emit *e, UnshardedNow *n, const Event *ev, uint64_t at) {
  uint32_t first = (uint32_t)e->code.n;
  switch ((EventKind)ev->kind) {
  case EV_GATHER:
  case EV_FREE: emit_gathering(e, n, ev, at); break;
  case EV_KEEP: emit_keep(e, n, ev, at); break;
  case EV_TAKE:
    n->sum[ev->unsharded] = at;
    clear_padding(e, n->h->at[ev->unsharded].block, at);
    break;
  default: emit_sum(e, n, ev, at);
  }
  for (int i = (int)first; i < e->code.n; i++)
    e->code.at[i].line = ev->line, e->code.at[i].action = ev->action;
}

/* ---- bindings of calls ---- */

/* A body that does not use the parameter gets no address. */
static Bind bind_param(const Emit *e, const UnshardedNow *n, const CompiledUnit *x, int i,
                       Phase ph) {
  const Stored *p = &e->l->regions.param[e->l->of[x->param[i]]];
  const Region *r = regions_find(&e->l->regions, REGION_WORK, p);
  int bucket = n->h->of[p->block];
  if (bucket < 0 || !n->h->at[bucket].bytes[FULL_PARAM])
    return (Bind){layout_at(e->l, REGION_WORK, x->param[i]), BIND_STORED};
  if (!(x->code->param_use[i] >> ph & 1)) return (Bind){0, BIND_STORED};
  int64_t at = p->at - e->l->regions.block[p->block].first;
  return (Bind){n->copy[bucket] + (uint64_t)at * (uint64_t)dtype_size((DType)r->dtype),
                n->unit_at[n->h->at[bucket].unit]};
}

Bind bind_gradient(const Emit *e, const UnshardedNow *n, const CompiledUnit *x, int i,
                   Phase ph) {
  const Stored *p = &e->l->regions.param[e->l->of[x->param[i]]];
  int bucket = n->h->of[p->block];
  if (e->u->context || e->u->param[x->param[i]].frozen)
    return (Bind){0, BIND_STORED}; /* there is no gradient */
  if (bucket < 0 || !n->h->at[bucket].bytes[FULL_GRAD])
    return (Bind){layout_at(e->l, REGION_GRAD, x->param[i]), BIND_STORED};
  if (!(x->code->grad_use[i] >> ph & 1)) return (Bind){0, BIND_STORED};
  int64_t at = p->at - e->l->regions.block[p->block].first;
  DType dt = (DType)layout_gradients(e->l, p->block)->dtype;
  return (Bind){n->sum[bucket] + (uint64_t)(at * dtype_size(dt)), BIND_STORED};
}

static bool same_binds(const Bind *a, const Bind *b, int n) {
  for (int i = 0; i < n; i++)
    if (a[i].off != b[i].off || a[i].copy != b[i].copy) return false;
  return true;
}

/* Index of the call's bindings. Buffers return to the same offsets, so that the calls of
 * a unit have few different bindings, which are kept once. */
uint32_t bind_unsharded(Emit *e, UnshardedNow *n, int u, Phase ph) {
  const CompiledUnit *x = &e->u->at[u];
  int np = x->code->nparam;
  bool moves = n->h->n && n->h->first[u] < n->h->first[u + 1];
  if (!moves && n->bound[u]) return n->bound[u]->first;
  uint32_t first = (uint32_t)e->bind.n;
  for (int i = 0; i < 2 * np; i++)
    *VEC_PUSH(e->scratch, e->bind) =
        i < np ? bind_param(e, n, x, i, ph) : bind_gradient(e, n, x, i - np, ph);
  for (BoundAt *k = n->bound[u]; k; k = k->next)
    if (same_binds(&e->bind.at[k->first], &e->bind.at[first], 2 * np)) {
      e->bind.n = (int)first;
      return k->first;
    }
  BoundAt *mine = NEW(e->scratch, BoundAt);
  *mine = (BoundAt){first, n->bound[u]};
  n->bound[u] = mine;
  return first;
}

void unsharded_begin(const Emit *e, const UnshardedList *h, const int *unit_at,
                     UnshardedNow *out) {
  *out = (UnshardedNow){.h = h,
                        .unit_at = unit_at,
                        .copy = NEW_N(e->scratch, uint64_t, h->n),
                        .sum = NEW_N(e->scratch, uint64_t, h->n),
                        .part = NEW_N(e->scratch, uint64_t, h->n),
                        .bound = NEW_N(e->scratch, BoundAt *, e->u->n)};
}
