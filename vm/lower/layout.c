/* layout.c - the row of parameters of a pp rank, its regions, inputs and scalars in the
 * arena, and which gradients are reduced together.
 *
 * In the row come, one after the other, all parameters with weight decay and all without;
 * in each, those that are cut over the same axes; then those that this rank counts in the
 * norm; then those whose gradients are partial over the same axes. Such a class is in the
 * order in which the backward pass completes it, the last units first, so that a bucket
 * of gradients is a stretch of the row, too: norm and optimizer run over whole classes,
 * however many buckets there are. */
#include <stdlib.h>

#include "layout.h"

/* ---- the row ---- */

/* What decides where a parameter stands. */
typedef struct Rowed {
  Stored stored;
  bool decay;
  AxisSet cut, partial; /* partial: the axes over which its gradient is a part of a sum */
  uint64_t chunks;      /* local chunks that use it, a bit each */
  int use;              /* its number in the order of first use */
} Rowed;

static Rowed rowed(const Stages *st, int rank, int param, int use) {
  const UnitParam *p = &st->u->param[param];
  return (Rowed){.stored = {.param = param,
                            .owner = st->holders[param].pp[0] == rank,
                            .count = p->count},
                 .decay = p->decay,
                 .cut = place_cuts(p->place),
                 .partial = unit_param_partial(p),
                 .use = use};
}

/* The parameters of the rank's units in the order of first use; returns their number. */
static int collect(const Stages *st, int rank, Rowed *row, int *of) {
  int n = 0;
  for (int i = 0; i < st->u->nparam; i++)
    of[i] = -1;
  for (int u = 0; u < st->u->n; u++) {
    const CompiledUnit *x = &st->u->at[u];
    for (int i = 0; i < x->code->nparam && unit_rank(st, u) == rank; i++) {
      int param = x->param[i];
      if (of[param] < 0) {
        of[param] = n;
        row[n] = rowed(st, rank, param, n);
        n++;
      }
      row[of[param]].chunks |= 1ull << st->chunk[st->of_unit[u]];
    }
  }
  return n;
}

static int by_class(const Rowed *a, const Rowed *b) {
  if (a->decay != b->decay) return a->decay ? -1 : 1;
  if (a->cut != b->cut) return a->cut < b->cut ? -1 : 1;
  if (a->stored.owner != b->stored.owner) return a->stored.owner ? -1 : 1;
  if (a->partial != b->partial) return a->partial < b->partial ? -1 : 1;
  return 0;
}

static int by_row(const void *x, const void *y) {
  const Rowed *a = x, *b = y;
  int class = by_class(a, b);
  return class ? class : b->use - a->use;
}

/* Every parameter begins at an aligned address in each region. Returns the length. */
static int64_t fill_row(Layout *l, Rowed *row, int n, DType dtype, Arena *a) {
  int64_t at = 0, unit = ALIGN / dtype_size(dtype);
  l->regions.param = NEW_N(a, Stored, n);
  l->regions.nparam = n;
  for (int i = 0; i < n; i++) {
    row[i].stored.at = at;
    l->regions.param[i] = row[i].stored;
    l->of[row[i].stored.param] = i;
    at += (row[i].stored.count + unit - 1) / unit * unit;
  }
  return at;
}

/* ---- regions ---- */

static uint64_t place_bytes(Layout *l, uint64_t bytes) {
  uint64_t at = l->end;
  l->end += align_up(bytes);
  return at;
}

static Region *add_region(Layout *l, RegionKind kind, DType dtype, int64_t length) {
  Region *r = &l->regions.region[l->regions.nregion++];
  *r = (Region){.kind = kind, .dtype = dtype, .whole = length, .count = length};
  r->off = place_bytes(l, region_bytes(r));
  return r;
}

/* Stretches of the gradients that are partial over the same axes and written by the same
 * chunks; each of at most `limit` elements. */
static void fill_buckets(Layout *l, const Rowed *row, int64_t limit, const Region *grad,
                         Arena *scratch) {
  Bucket *k = NULL;
  for (int i = 0; i < l->regions.nparam; i++) {
    const Stored *p = &l->regions.param[i];
    bool same = k && by_class(&row[i], &row[k->first]) == 0 && k->chunks == row[i].chunks;
    if (!row[i].partial) continue;
    if (!same || p->at + p->count - l->regions.param[k->first].at > limit) {
      k = VEC_PUSH(scratch, l->bucket);
      *k = (Bucket){.axes = row[i].partial, .chunks = row[i].chunks, .first = i};
      k->off = region_at(grad, p->at);
    }
    k->n++;
    k->count = p->at + p->count - l->regions.param[k->first].at;
  }
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
  uint64_t bytes = input_bytes(microbatches, st->u->micro, st->u->seq);
  uint64_t mask = inputs_of(st, rank);
  for (int k = 0; k < IN_N; k++)
    l->input[k] = mask >> k & 1 ? place_bytes(l, bytes) : UINT64_MAX;
  l->scalars = place_bytes(l, SC_N * sizeof(double));
  l->seed = place_bytes(l, sizeof(float));
}

/* What the kernels of a step's end need, which run over stretches of the row: no more
 * than over the whole row. */
static uint64_t update_work(const DeviceKind *d, int64_t length) {
  static const int ops[] = {OP_sqnorm, OP_adamw, OP_adamw_try, OP_adamw_undo};
  KernelArgs a = {.attr = &(OpAttr){0}, .nin = KERNEL_MAX_IN, .nout = KERNEL_MAX_OUT};
  const KTensor row = {.dtype = DT_F32, .ndim = 1, .dim = {length}};
  uint64_t bytes = 0;
  for (int i = 0; i < KERNEL_MAX_IN; i++)
    a.in[i] = row;
  for (int i = 0; i < KERNEL_MAX_OUT; i++)
    a.out[i] = row;
  for (int i = 0; i < LEN(ops); i++)
    bytes = MAX(bytes, d->work(ops[i], &a));
  return bytes;
}

/* ---- the pass ---- */

void layout(const Stages *st, const Plan *plan, int rank, int microbatches, Arena *keep,
            Arena *scratch, Layout *l) {
  const Units *u = st->u;
  Rowed *row = (void *)arena_alloc(scratch, sizeof *row * (size_t)(u->nparam + 1));
  *l = (Layout){.of = NEW_N(scratch, int, u->nparam)};
  int n = collect(st, rank, row, l->of);
  qsort(row, (size_t)n, sizeof *row, by_row);
  int64_t length = fill_row(l, row, n, u->dtype, keep);
  l->regions.region = NEW_N(keep, Region, REGION_N);
  add_region(l, REGION_WORK, u->dtype, length);
  if (u->dtype != DT_F32) add_region(l, REGION_MASTER, DT_F32, length);
  const Region *grad = add_region(l, REGION_GRAD, DT_F32, length);
  fill_buckets(l, row, plan->strategy.bucket_bytes / 4, grad, scratch);
  add_region(l, REGION_M, DT_F32, length);
  add_region(l, REGION_V, DT_F32, length);
  place_inputs(st, rank, microbatches, l);
  l->work_bytes = update_work(u->device, length);
  l->work = place_bytes(l, l->work_bytes);
  if (plan->opt.post_validation) l->kept = post_validation_bytes(&l->regions);
}
