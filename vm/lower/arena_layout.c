/* arena_layout.c - the regions of a pp rank's parameters (flat_params.h), its inputs and
 * scalars in the arena, and the gradient buckets. */
#include <stdlib.h>

#include "arena_layout.h"
#include "flat_params.h"
#include "vm/plan/optimizer.h"

AxisSet group_axes(const Mesh *m) {
  return mesh_axes(m, AXIS_BIT(AXIS_DP_INNER) | AXIS_BIT(AXIS_CP));
}

/* ---- regions ---- */

static uint64_t place_bytes(Layout *l, uint64_t bytes) {
  uint64_t at = l->end;
  l->end += align_up(bytes);
  return at;
}

static uint64_t place_on_host(Layout *l, uint64_t bytes) {
  uint64_t at = l->host_end;
  l->host_end += align_up(bytes);
  return HOST_BASE + at;
}

/* Whether a region is offloaded: optimizer state, and shards of parameters, which a
 * GATHER copies back. */
static bool goes_to_host(const Cuts *cuts, const Region *r) {
  switch (r->kind) {
  case REGION_WORK: return cuts->host_params && r->flat;
  case REGION_GRAD: return false;
  default: return cuts->host_state;
  }
}

/* At most this many regions of one kind: ways in which parameters of one buffer may be
 * stored. */
enum { CLASSES = 8 };
typedef enum { KEPT_WHOLE, KEPT_SPREAD, KEPT_SHARD } Kept;

static Kept kept(const FlatParam *p, RegionKind kind) {
  switch (kind) {
  case REGION_WORK: return p->work ? KEPT_SHARD : KEPT_WHOLE;
  case REGION_GRAD:
    return p->grad ? KEPT_SHARD : cut_flat(&p->flat) ? KEPT_SPREAD : KEPT_WHOLE;
  default: return cut_flat(&p->flat) ? KEPT_SHARD : KEPT_WHOLE;
  }
}

/* A router's bias is balanced, not trained (OP_bias_step): its gradients are counts, and
 * it moves by less than 16 bits hold, so that ops read it in f32, too. */
static bool counts(const FlatParam *p) { return p->share > 0; }

/* State k of an optimizer whose states are in blocks: those of squares have no sign. */
static DType state_type(const Cuts *c, const FlatParam *p, RegionKind kind, DType dtype) {
  if (dtype_elements(dtype) == 1 || kind < REGION_STATE1) return dtype;
  if (p->few || counts(p)) return DT_F32;
  int power = optimizer_info[c->optimizer].state[kind - REGION_STATE1].power;
  return power == 2 ? DT_UQ8 : DT_Q8;
}

static DType type_of(const Cuts *c, const FlatParam *p, RegionKind kind, DType dtype) {
  if (p->frozen) return (DType)p->dtype;
  if (counts(p) && kind <= REGION_GRAD) return DT_F32; /* work, master, counts */
  return state_type(c, p, kind, dtype);
}

/* Master weights are stored where ops read another type, or where the optimizer runs on
 * the host. The value of a frozen parameter is what ops read, and there is no other. */
static bool has_region(const Cuts *c, const FlatParam *p, RegionKind kind, DType dtype) {
  if (p->frozen) return kind == REGION_WORK;
  if (kind == region_state(1)) return optimizer_states(c->optimizer, p->matrix) > 1;
  if (kind != REGION_MASTER) return true;
  return c->host_state ||
         type_of(c, p, kind, dtype) != type_of(c, p, REGION_WORK, c->work);
}

static bool has_factors(const FlatParam *p, RegionKind kind) {
  return kind == REGION_STATE1 && p->factors > 0;
}

/* Averages of the parameters in the range of a region, one behind the other. */
static void place_factors(Regions *s, const FlatParam *row, Region *r) {
  const int64_t unit = ALIGN / dtype_size((DType)r->dtype);
  for (int i = 0; i < s->nparam; i++) {
    Stored *p = &s->param[i];
    if (p->at < r->first || p->at >= r->first + r->whole) continue;
    p->factors = r->count;
    r->count += round_up(row[i].factors, unit);
  }
}

/* Adds the regions of one kind: one for each run of buckets that are stored in the same
 * way. */
static void add_regions(Layout *l, const Cuts *cuts, const FlatParam *row,
                        RegionKind kind, DType dtype) {
  Regions *s = &l->regions;
  for (int i = 0, next; i < s->nblock; i = next) {
    const FlatParam *of = &row[s->block[i].at];
    next = i + 1;
    if (!has_region(cuts, of, kind, dtype)) continue;
    Kept how = kept(of, kind);
    DType type = type_of(cuts, of, kind, dtype);
    Region *r = &s->region[s->nregion++];
    *r = (Region){.kind = kind,
                  .dtype = type,
                  .first = s->block[i].first,
                  .whole = s->block[i].whole,
                  .factors = has_factors(of, kind),
                  .ways = 1};
    for (; next < s->nblock; next++) {
      const FlatParam *p = &row[s->block[next].at];
      if (kept(p, kind) != how || p->shared != of->shared || p->frozen != of->frozen ||
          has_factors(p, kind) != r->factors || type_of(cuts, p, kind, dtype) != type ||
          !has_region(cuts, p, kind, dtype))
        break;
      r->whole += s->block[next].whole;
    }
    if (r->factors) {
      place_factors(s, row, r);
      r->off = place_bytes(l, region_bytes(r));
      continue;
    }
    if (how != KEPT_WHOLE) r->flat = of->flat.axes, r->ways = of->flat.ways;
    r->spread = how == KEPT_SPREAD;
    r->count = how == KEPT_SHARD ? r->whole / r->ways : r->whole;
    r->off = goes_to_host(cuts, r) ? place_on_host(l, region_bytes(r))
                                   : place_bytes(l, region_bytes(r));
  }
}

/* The axes of the reductions of a gradient: first those that shard or might shard state,
 * then the others. */
static void fill_sums(const Mesh *m, AxisSet partial, AxisSet sum[2]) {
  int n = 0;
  partial = mesh_axes(m, partial);
  AxisSet dp =
      partial & (AXIS_BIT(AXIS_DP_SHARD) | AXIS_BIT(AXIS_CP) | AXIS_BIT(AXIS_EP_SHARD));
  AxisSet rest = partial & ~dp;
  if (dp) sum[n++] = dp;
  if (rest) sum[n++] = rest;
}

/* Where gradients are sharded, the reduction over those axes is the reduce-scatter that
 * unshard() places, and buckets have the rest. */
static void fill_buckets(Layout *l, const Mesh *m, const FlatParam *row, Arena *scratch) {
  for (int i = 0; i < l->regions.nblock; i++) {
    const Block *b = &l->regions.block[i];
    if (row[b->at].frozen) continue;
    Bucket k = {.block = i, .chunks = row[b->at].chunks, .first = b->at, .n = b->n};
    fill_sums(m, row[b->at].partial, k.sum);
    if (row[b->at].grad) {
      k.sum[0] = k.sum[1], k.sum[1] = 0;
      k.scattered = true;
    }
    if (k.sum[0] || k.scattered) *VEC_PUSH(scratch, l->bucket) = k;
  }
}

const Region *layout_gradients(const Layout *l, int block) {
  const Regions *s = &l->regions;
  return regions_find(s, REGION_GRAD, &s->param[s->block[block].at]);
}

DType layout_reduce(const Layout *l, int block) {
  return l->counts[block] ? DT_F32 : l->reduce;
}

DType bucket_type(const Layout *l, const Bucket *b, int step) {
  if (b->sum[step] & AXES_OF_DATA) return layout_reduce(l, b->block);
  return (DType)layout_gradients(l, b->block)->dtype;
}

/* Where a rank steps only its shard, it needs only that of the first reduction. */
BucketSum bucket_extent(const Layout *l, const Bucket *b, int step) {
  const Regions *s = &l->regions;
  const Region *g = layout_gradients(l, b->block);
  BucketSum x = {.to = regions_block(s, b->block, g)};
  x.from = x.to;
  if (step == 0 && g->spread && b->sum[0] & g->flat) x.from.flat = 0, x.from.ways = 1;
  return x;
}

/* Two buffers: a reduction may start while the one before it is in flight, but not the
 * one before that. */
static void place_wires(Layout *l) {
  for (int i = 0; i < l->bucket.n; i++)
    for (int k = 0; k < 2 && l->bucket.at[i].sum[k]; k++) {
      const Bucket *b = &l->bucket.at[i];
      DType type = bucket_type(l, b, k);
      if (type == (DType)layout_gradients(l, b->block)->dtype) continue;
      Stretch r = bucket_extent(l, b, k).from;
      uint64_t bytes = (uint64_t)(r.count / r.ways * dtype_size(type));
      l->wire_bytes = MAX(l->wire_bytes, bytes);
    }
  for (int i = 0; i < WIRES; i++) l->wire[i] = place_bytes(l, l->wire_bytes);
}

uint64_t layout_at(const Layout *l, RegionKind kind, int param) {
  const Stored *p = &l->regions.param[l->of[param]];
  return region_at(regions_find(&l->regions, kind, p), p->at);
}

/* ---- inputs ---- */

uint64_t input_bytes(int64_t microbatches, int64_t micro, int64_t seq) {
  return (uint64_t)microbatches * (uint64_t)micro * (uint64_t)seq * 4;
}

uint64_t inputs_of(const Stages *st, int rank) {
  uint64_t mask = 0;
  for (int u = 0; u < st->u->n; u++)
    if (unit_rank(st, u) == rank) mask |= st->u->at[u].code->input_mask;
  return mask & ((1u << IN_SEED) - 1);
}

uint64_t temp_of(const Stages *st, int rank) {
  uint64_t bytes = 0;
  for (int u = 0; u < st->u->n; u++)
    if (unit_rank(st, u) == rank) bytes = MAX(bytes, st->u->at[u].code->temp);
  return bytes;
}

static void place_inputs(const Stages *st, int rank, int microbatches, Layout *l) {
  uint64_t bytes = input_bytes(microbatches, st->u->micro, st->u->tokens);
  uint64_t mask = inputs_of(st, rank);
  for (int k = 0; k < IN_N; k++)
    l->input[k] = mask >> k & 1 ? place_bytes(l, bytes) : UINT64_MAX;
  l->scalars = place_bytes(l, (uint64_t)scalar_count(st->u->sources) * sizeof(double));
  l->seed = place_bytes(l, sizeof(float));
}

/* What the rank's units add up over a step, one behind the other. */
static void place_sums(const Stages *st, int rank, Arena *scratch, Layout *l) {
  const Units *u = st->u;
  l->sums_of = NEW_N(scratch, uint64_t, u->n);
  for (int i = 0; i < u->n; i++) {
    l->sums_of[i] = l->end + l->sums_bytes;
    if (unit_rank(st, i) == rank) l->sums_bytes += u->at[i].code->sums;
  }
  l->sums_at = place_bytes(l, l->sums_bytes);
}

/* Scratch bytes of the kernels of the optimizer step. They run on ranges of the buffer,
 * or a rank's shards of them, so the whole length is an upper bound. */
static uint64_t update_work(const DeviceKind *d, OptimizerKind kind, int64_t length) {
  const OptimizerInfo *o = &optimizer_info[kind];
  /* Those of whole parameters have room of their own: factored_step.c. */
  const int ops[] = {OP_sqnorm, o->factored ? -1 : o->step, o->attempt, OP_step_undo};
  KernelArgs a = {.attr = &(OpAttr){0}, .nin = KERNEL_MAX_IN, .nout = KERNEL_MAX_OUT};
  const KTensor row = {.dtype = DT_F32, .ndim = 1, .dim = {length}};
  uint64_t bytes = 0;
  for (int i = 0; i < KERNEL_MAX_IN; i++) a.in[i] = row;
  for (int i = 0; i < KERNEL_MAX_OUT; i++) a.out[i] = row;
  for (int i = 0; i < LEN(ops); i++)
    if (ops[i] >= 0) bytes = MAX(bytes, d->work(ops[i], &a));
  return bytes;
}

/* Where the optimizer runs on the host: host buffers for the longest range. */
static void place_optimizer(Layout *l, const Plan *plan, int64_t length) {
  l->offloads = true;
  l->host_scalars = place_on_host(l, SC_N * sizeof(double));
  l->host_grad = place_on_host(l, (uint64_t)(length * dtype_size(plan->grad)));
  l->host_work = place_on_host(l, (uint64_t)(length * dtype_size(plan->dtype)));
}

weft_status layout_check(const Stages *st, int rank, const Layout *l, weft_error *e) {
  for (int u = 0; u < st->u->n; u++) {
    const CompiledUnit *x = &st->u->at[u];
    for (int i = 0; i + 1 < x->code->nparam && unit_rank(st, u) == rank; i++) {
      const Stored *p = &l->regions.param[l->of[x->param[i]]];
      const Stored *before = &l->regions.param[l->of[x->param[i + 1]]];
      if (!x->code->joined[i] ||
          (p->block == before->block && p->at == before->at + before->count))
        continue;
      return err_set(e, WEFT_EINTERNAL,
                     "%s does not lie behind %s, its product's other part",
                     st->u->param[p->param].name, st->u->param[before->param].name);
    }
  }
  return WEFT_OK;
}

/* ---- the pass ---- */

/* The type with the fewest bytes: what is aligned in it is aligned in every region. */
static DType narrowest_of(const Plan *p, const FlatParam *row, int n) {
  const DType all[] = {p->dtype, p->opt.state, p->grad, p->master};
  DType least = all[0];
  for (int i = 1; i < LEN(all); i++)
    if (dtype_elements(all[i]) == 1 && dtype_size(all[i]) < dtype_size(least))
      least = all[i];
  for (int i = 0; i < n; i++)
    if (dtype_size((DType)row[i].dtype) < dtype_size(least)) least = (DType)row[i].dtype;
  return least;
}

void layout(const Stages *st, const Plan *plan, const Mesh *m, int rank, int microbatches,
            Arena *keep, Arena *scratch, Layout *l) {
  const Units *u = st->u;
  const Cuts cuts = flat_cuts(plan, m);
  int most = flat_count(st, rank) + 1;
  FlatParam *row = (void *)arena_alloc(scratch, sizeof *row * (size_t)most);
  *l = (Layout){.of = NEW_N(scratch, int, u->nparam),
                .reduce = plan->reduce,
                .group = plan_reshard_group(plan, m),
                .group_axes = group_axes(m)};
  int n = flat_collect(st, &cuts, rank, row, l->of);
  qsort(row, (size_t)n, sizeof *row, flat_order);
  for (int i = n - 1; i >= 0; i--)
    row[i].together =
        row[i].stored.count + (i + 1 < n && row[i + 1].behind ? row[i + 1].together : 0);
  int64_t limit = plan->strategy.bucket_bytes / dtype_size(plan->grad);
  DType state = plan->opt.state;
  int64_t length = flat_fill(&l->regions, l->of, row, n, narrowest_of(plan, row, n),
                             &cuts, limit, keep);
  l->counts = NEW_N(scratch, bool, l->regions.nblock);
  for (int i = 0; i < l->regions.nblock; i++)
    l->counts[i] = counts(&row[l->regions.block[i].at]);
  l->regions.region = NEW_N(keep, Region, REGION_N * CLASSES);
  add_regions(l, &cuts, row, REGION_WORK, u->dtype);
  if (u->context) {
    place_inputs(st, rank, microbatches, l);
    place_sums(st, rank, scratch, l);
    return;
  }
  add_regions(l, &cuts, row, REGION_MASTER, plan->master);
  add_regions(l, &cuts, row, REGION_GRAD, plan->grad);
  for (int k = 0; k < optimizer_row(&plan->opt)->states; k++)
    add_regions(l, &cuts, row, region_state(k), state);
  fill_buckets(l, m, row, scratch);
  place_wires(l);
  place_inputs(st, rank, microbatches, l);
  place_sums(st, rank, scratch, l);
  l->work_bytes = update_work(u->device, optimizer_kind(&plan->opt), length);
  l->work = place_bytes(l, l->work_bytes);
  if (cuts.host_state) place_optimizer(l, plan, length);
  l->matrices = matrix_bytes(plan, m, u, l, scratch);
  l->sums = factored_bytes(plan, m, u, l, scratch);
  l->kept = MAX(l->matrices, l->sums);
  if (plan->opt.post_validation) l->kept = post_validation_bytes(plan, &l->regions);
}
