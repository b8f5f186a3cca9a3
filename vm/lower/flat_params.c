/* flat_params.c - the order of a pp rank's parameters in their flat buffer, and the
 * buckets that it is cut into; see flat_params.h. */
#include "flat_params.h"

#include "vm/base/dynamic8.h"
#include "vm/plan/optimizer.h"

AxisSet flat_axes(const Plan *plan, const Mesh *m) {
  AxisSet dp = m->size[AXIS_DP_REPLICATE] == 1 ? AXES_DP : AXIS_BIT(AXIS_DP_SHARD);
  if (m->size[AXIS_CP] > 1) dp |= AXIS_BIT(AXIS_CP);
  return plan->strategy.stage > 0 && mesh_size(m, dp) > 1 ? dp : 0;
}

Cuts flat_cuts(const Plan *plan, const Mesh *m) {
  const Strategy *s = &plan->strategy;
  AxisSet experts = s->stage > 0 ? mesh_axes(m, AXIS_BIT(AXIS_EP_SHARD)) : 0;
  AxisSet flat[] = {experts, flat_axes(plan, m)};
  return (Cuts){
      .mesh = m,
      .host_state = s->offload_state,
      .host_params = s->offload_params,
      .work = plan->dtype,
      .optimizer = optimizer_kind(&plan->opt),
      .in_bits = dtype_elements(plan->opt.state) > 1,
      .flat = {{flat[0], mesh_size(m, flat[0])}, {flat[1], mesh_size(m, flat[1])}},
      .grads = s->stage > 1,
      .params = s->stage > 2,
      .persistence = s->persistence};
}

/* Whether a gradient is partial over all axes with more than one rank that would shard
 * it. If not, every rank has the whole gradient anyway. */
static bool sums_over(const Mesh *m, AxisSet partial, AxisSet flat) {
  AxisSet cut = axes_split(mesh_axes(m, flat));
  return (axes_split(mesh_axes(m, partial)) & cut) == cut;
}

/* Whether the optimizer steps a parameter as a whole: it has one state then. */
static bool steps_whole(const Cuts *cuts, const UnitParam *p) {
  return optimizer_info[cuts->optimizer].matrices && p->matrix && !p->frozen;
}

static int64_t local_factors(const Cuts *cuts, const UnitParam *p) {
  if (!optimizer_info[cuts->optimizer].factored || p->frozen) return 0;
  return p->ndim > 2 ? p->dim[0].local * p->factors : p->factors;
}

static bool few_elements(const Cuts *cuts, const UnitParam *p) {
  return cuts->in_bits && dims_size(p->dim, p->ndim) < DYNAMIC8_LEAST;
}

static FlatParam flat_param(const Stages *st, const Cuts *cuts, int rank, int param,
                            int use, int unit) {
  const UnitParam *p = &st->u->param[param];
  AxisSet partial = unit_param_partial(p), cut = place_cuts(p->place);
  bool shared = axes_expert(partial | cut);
  struct Flat flat = cuts->flat[!shared];
  return (FlatParam){.stored = {.param = param,
                                .owner = st->holders[param].pp[0] == rank,
                                .count = p->count},
                     .shared = shared,
                     .flat = flat,
                     .grad = !p->frozen && cuts->grads && cut_flat(&flat) &&
                             sums_over(cuts->mesh, partial, flat.axes),
                     .work =
                         cuts->params && cut_flat(&flat) && p->count >= cuts->persistence,
                     .decay = p->decay,
                     .frozen = p->frozen,
                     .matrix = steps_whole(cuts, p),
                     .factors = local_factors(cuts, p),
                     .few = few_elements(cuts, p),
                     .dtype = p->dtype,
                     .group = p->group,
                     .share = p->share,
                     .cut = cut,
                     .partial = partial,
                     .use = use,
                     .unit = unit,
                     .tied = st->holders[param].npp > 1};
}

int flat_count(const Stages *st, int rank) {
  int n = 0;
  for (int u = 0; u < st->u->n; u++)
    if (unit_rank(st, u) == rank) n += st->u->at[u].code->nparam;
  return n;
}

int flat_collect(const Stages *st, const Cuts *cuts, int rank, FlatParam *row, int *of) {
  int n = 0;
  for (int i = 0; i < st->u->nparam; i++) of[i] = -1;
  for (int u = 0; u < st->u->n; u++) {
    const CompiledUnit *x = &st->u->at[u];
    for (int i = 0; i < x->code->nparam && unit_rank(st, u) == rank; i++) {
      int param = x->param[i];
      if (of[param] < 0) {
        of[param] = n;
        row[n] = flat_param(st, cuts, rank, param, n, u);
        row[n].behind = x->code->joined[i];
        n++;
      }
      row[of[param]].several |= row[of[param]].unit != u;
      row[of[param]].chunks |= 1ull << st->chunk[st->of_unit[u]];
    }
  }
  return n;
}

static int class_order(const FlatParam *a, const FlatParam *b) {
  if (a->frozen != b->frozen) return a->frozen ? 1 : -1;
  if (a->dtype != b->dtype) return a->dtype < b->dtype ? -1 : 1;
  if (a->shared != b->shared) return a->shared ? 1 : -1;
  if (a->grad != b->grad) return a->grad ? -1 : 1;
  if (a->work != b->work) return a->work ? -1 : 1;
  if (a->matrix != b->matrix) return a->matrix ? -1 : 1;
  if (!a->factors != !b->factors) return a->factors ? -1 : 1;
  if (a->few != b->few) return a->few ? 1 : -1;
  if (a->decay != b->decay) return a->decay ? -1 : 1;
  if (a->group != b->group) return a->group < b->group ? -1 : 1;
  if (a->share != b->share) return a->share < b->share ? -1 : 1;
  if (a->cut != b->cut) return a->cut < b->cut ? -1 : 1;
  if (a->stored.owner != b->stored.owner) return a->stored.owner ? -1 : 1;
  if (a->partial != b->partial) return a->partial < b->partial ? -1 : 1;
  return 0;
}

int flat_order(const void *x, const void *y) {
  const FlatParam *a = x, *b = y;
  int class = class_order(a, b);
  return class ? class : b->use - a->use;
}

/* Whether parameter i of the buffer goes into bucket `b`. A tied weight that several pp
 * ranks hold is a bucket by itself, so that all of them cut it in the same way. */
static bool joins(const FlatParam *row, const Block *b, int i, const Cuts *cuts,
                  int64_t limit) {
  const FlatParam *first = &row[b->at], *p = &row[i];
  if (p->behind) return true;
  if (class_order(first, p) != 0 || first->tied || p->tied) return false;
  if (cut_flat(&p->flat) && (cuts->grads || cuts->params))
    return first->unit == p->unit && !first->several && !p->several;
  return first->chunks == p->chunks && b->whole + p->together <= limit;
}

int64_t flat_fill(Regions *s, int *of, FlatParam *row, int n, DType dtype,
                  const Cuts *cuts, int64_t limit, Arena *a) {
  int64_t unit = ALIGN / dtype_size(dtype), length = 0;
  if (cuts->in_bits) unit = MAX(unit, DYNAMIC8_BLOCK);
  Block *b = NULL;
  s->param = NEW_N(a, Stored, n);
  s->block = NEW_N(a, Block, n);
  s->nparam = n;
  for (int i = 0; i < n; i++) {
    if (!b || !joins(row, b, i, cuts, limit)) {
      int64_t end = b ? b->first + b->whole : 0;
      b = &s->block[s->nblock++];
      *b = (Block){.first = end, .at = i};
    }
    row[i].stored.at = b->first + b->whole;
    row[i].stored.block = s->nblock - 1;
    s->param[i] = row[i].stored;
    of[row[i].stored.param] = i;
    b->whole += round_up(row[i].stored.count, unit);
    b->n++;
    if (i + 1 < n && joins(row, b, i + 1, cuts, limit)) continue;
    b->whole = round_up(b->whole, unit * row[i].flat.ways);
    if (!row[i].frozen) length += b->whole / row[i].flat.ways;
  }
  return length;
}
