/* rank_cost.c - costs and exact bytes of pipeline ranks without programs, for sweeps; see
 * rank_cost.h. */
#include "rank_cost.h"

#include <stdlib.h>

#include "unsharded_buckets.h"
#include "vm/plan/optimizer.h"

static void add_work(UnitWork *to, const UnitWork *w) {
  to->flops += w->flops;
  to->recomputed += w->recomputed;
  for (int a = 0; a < AX_N; a++) {
    to->empty[a] += w->empty[a];
    for (int k = 0; k < COLL_N; k++) to->bytes[a][k] += w->bytes[a][k];
  }
}

/* Adds the work of a unit; B replaces I and W where the unit has it. */
static void add_unit(const UnitCode *c, UnitWork *work) {
  for (int ph = 0; ph < BODIES; ph++)
    if (unit_calls(c, ph)) add_work(&work[ph], &c->work[ph]);
}

static uint64_t crossing(const Units *u, const Cross *c) {
  uint64_t bytes = 0;
  for (int i = 0; i < c->n; i++) bytes += u->edge[c->at[i]].bytes;
  return bytes;
}

/* Bytes that rank r sends forward and backward for one microbatch. */
static uint64_t sent_by(const Stages *st, int r) {
  uint64_t bytes = 0;
  for (int s = 0; s + 1 < st->n; s++) {
    int from = st->rank[s], to = st->rank[s + 1];
    if (from == to) continue;
    if (from == r) bytes += crossing(st->u, &st->fwd[s]);
    if (to == r) bytes += crossing(st->u, &st->bwd[s]);
  }
  return bytes;
}

static bool same_move(const StepMove *x, const StepMove *y) {
  return x->kind == y->kind && x->axes == y->axes && x->chunks == y->chunks;
}

void step_move_add(StepMoves *to, StepMove x, Arena *a) {
  int i = 0;
  while (i < to->n && !same_move(&to->at[i], &x)) i++;
  if (i < to->n)
    to->at[i].bytes += x.bytes;
  else
    *VEC_PUSH(a, *to) = x;
}

static void add_reductions(const Layout *l, Arena *a, StepMoves *out) {
  for (int i = 0; i < l->bucket.n; i++) {
    const Bucket *b = &l->bucket.at[i];
    for (int k = 0; k < 2 && b->sum[k]; k++) {
      BucketSum sum = bucket_extent(l, b, k);
      uint64_t n = (uint64_t)(sum.from.count / sum.from.ways);
      bool scatter = sum.from.ways != sum.to.ways;
      step_move_add(out,
                    (StepMove){.kind = scatter ? MOVE_SCATTER : MOVE_REDUCE,
                               .axes = b->sum[k],
                               .bytes = n * (uint64_t)dtype_size(bucket_type(l, b, k)),
                               .chunks = b->chunks},
                    a);
    }
  }
}

/* Whether the parameters of a region are stepped. */
static bool learns(const Regions *s, const Region *r) {
  for (int i = 0; i < s->nregion; i++)
    if (s->region[i].kind == REGION_GRAD && r->first >= s->region[i].first &&
        r->first < s->region[i].first + s->region[i].whole)
      return true;
  return false;
}

/* Bytes of the parameters that a region of gradients is for. A region of parameters is of
 * one type: the bias of a router, which counts tokens in f32, lies beside weights in
 * bf16. */
static uint64_t stored_bytes(const Regions *s, const Region *g) {
  uint64_t bytes = 0;
  for (int i = 0; i < s->nregion; i++) {
    const Region *w = &s->region[i];
    if (w->kind != REGION_WORK) continue;
    int64_t first = w->first > g->first ? w->first : g->first;
    int64_t end = w->first + w->whole < g->first + g->whole ? w->first + w->whole
                                                            : g->first + g->whole;
    if (first < end) bytes += (uint64_t)((end - first) * dtype_size((DType)w->dtype));
  }
  return bytes;
}

/* Adds the all-gather of parameters that are stepped in shards and stored whole: those
 * with gradients in shards less those that are stored so. */
static void add_gathers(const Layout *l, Arena *a, RankCost *x) {
  for (int i = 0; i < l->regions.nregion; i++) {
    const Region *r = &l->regions.region[i];
    if (r->kind == REGION_GRAD) x->stepped += (uint64_t)(r->whole / r->ways);
    if (r->kind == REGION_GRAD && r->flat)
      step_move_add(&x->moves,
                    (StepMove){MOVE_GATHER, r->flat, stored_bytes(&l->regions, r), 0}, a);
    if (r->kind == REGION_WORK && r->flat && learns(&l->regions, r)) {
      uint64_t bytes = (uint64_t)(r->whole * dtype_size((DType)r->dtype));
      step_move_add(&x->moves, (StepMove){MOVE_GATHER, r->flat, -bytes, 0}, a);
    }
  }
}

static void add_ties(const Stages *st, const Layout *l, RankCost *x) {
  const Regions *s = &l->regions;
  for (int i = 0; i < s->nparam; i++) {
    const Stored *p = &s->param[i];
    if (st->holders[p->param].npp < 2 || st->u->param[p->param].frozen) continue;
    const Region *g = layout_gradients(l, p->block);
    Stretch r = regions_block(s, p->block, g);
    x->tied += (uint64_t)(r.count / r.ways * dtype_size((DType)g->dtype));
  }
}

/* Bytes of copies of tied parameters that another rank counts: which ranks hold them
 * depends on where stages lie. */
static uint64_t copies_of(const Layout *l) {
  const Regions *s = &l->regions;
  uint64_t bytes = 0;
  for (int i = 0; i < s->nparam; i++) {
    const Block *b = &s->block[s->param[i].block];
    for (int k = 0; k < s->nregion && !s->param[i].owner; k++) {
      const Region *r = &s->region[k];
      bool within = b->first >= r->first && b->first < r->first + r->whole;
      if (within && !on_host(r->off)) bytes += region_span(r, b->whole / r->ways);
    }
  }
  return bytes;
}

/* ---- ranks that have the same ---- */

/* The units of each rank, in their order: at[first[r]] .. at[first[r + 1] - 1]. */
typedef struct RankUnits {
  int *at, *first;
} RankUnits;

static RankUnits rank_units(const Stages *st, Arena *a) {
  int n = 0;
  RankUnits x = {NEW_N(a, int, st->u->n), NEW_N(a, int, st->ranks + 1)};
  for (int r = 0; r < st->ranks; r++) {
    for (int u = 0; u < st->u->n; u++)
      if (unit_rank(st, u) == r) x.at[n++] = u;
    x.first[r + 1] = n;
  }
  return x;
}

/* Whether two parameters differ in nothing but their names and values. */
static bool same_param(const UnitParam *a, const UnitParam *b) {
  return a->ndim == b->ndim && a->count == b->count && a->share == b->share &&
         a->decay == b->decay && a->frozen == b->frozen && a->matrix == b->matrix &&
         a->group == b->group && a->adapter == b->adapter && a->quant == b->quant &&
         a->saved == b->saved && a->dtype == b->dtype &&
         memcmp(a->dim, b->dim, sizeof *a->dim * a->ndim) == 0 &&
         memcmp(&a->place, &b->place, sizeof a->place) == 0 &&
         memcmp(&a->grad, &b->grad, sizeof a->grad) == 0;
}

/* Whether unit y has what x has, in the same chunk. */
static bool same_unit(const Stages *st, int x, int y) {
  const CompiledUnit *a = &st->u->at[x], *b = &st->u->at[y];
  if (a->code != b->code || st->chunk[st->of_unit[x]] != st->chunk[st->of_unit[y]])
    return false;
  for (int i = 0; i < a->code->nparam; i++)
    if (!same_param(&st->u->param[a->param[i]], &st->u->param[b->param[i]])) return false;
  return true;
}

/* Whether each of the rank's parameters belongs to one unit alone; `user`: those that
 * were seen. */
static bool owns_params(const Stages *st, const RankUnits *of, int r, int *user) {
  for (int i = of->first[r]; i < of->first[r + 1]; i++) {
    const CompiledUnit *x = &st->u->at[of->at[i]];
    for (int k = 0; k < x->code->nparam; k++) {
      if (st->holders[x->param[k]].npp > 1 || user[x->param[k]]) return false;
      user[x->param[k]] = 1;
    }
  }
  return true;
}

static bool same_units(const Stages *st, const RankUnits *of, int q, int r) {
  int n = of->first[r + 1] - of->first[r];
  if (of->first[q + 1] - of->first[q] != n) return false;
  for (int i = 0; i < n; i++)
    if (!same_unit(st, of->at[of->first[q] + i], of->at[of->first[r] + i])) return false;
  return true;
}

static void fill_rank(const Stages *st, const Plan *plan, const Mesh *m, int r,
                      Arena *scratch, Arena *a, RankCost *x) {
  Layout l;
  /* Layout without microbatches: inputs, whose size depends on them, are counted only. */
  layout(st, plan, m, r, 0, scratch, scratch, &l);
  x->fixed = l.end;
  x->copies = MIN(copies_of(&l), x->fixed);
  x->temp = temp_of(st, r);
  x->kept = l.kept;
  for (uint64_t in = inputs_of(st, r); in; in &= in - 1) x->inputs++;
  if (l.regions.nparam)
    add_reductions(&l, a, &x->moves), add_gathers(&l, a, x), add_ties(st, &l, x);
  if (optimizer_row(&plan->opt)->factored)
    factored_cost(plan, m, st->u, &l, scratch, a, &x->moves);
  else
    x->products = matrix_cost(plan, m, st->u, &l, scratch, a, &x->moves);
  unsharded_buckets(st, &l, r, a, &x->unsharded);
  for (int k = AREA_GATHER; k <= AREA_SMALL; k++)
    unsharded_sizes(&x->unsharded, (Area)k, a, &x->sizes[k]);
  x->sent = sent_by(st, r);
  for (int u = 0; u < st->u->n; u++)
    if (unit_rank(st, u) == r) add_unit(st->u->at[u].code, x->work);
}

void rank_costs(const Plan *plan, const Mesh *m, const BufferSizes *sizes, Arena *scratch,
                Arena *a, RankCosts *out) {
  const Stages *st = &out->st;
  const RankUnits of = rank_units(st, scratch);
  int *user = NEW_N(scratch, int, st->u->nparam), *alike = NEW_N(scratch, int, st->ranks);
  int n = 0; /* alike: ranks that others may be like */
  out->rank = NEW_N(a, RankCost, st->ranks);
  for (int r = 0; r < st->ranks; r++) {
    bool owns = owns_params(st, &of, r, user);
    int k = owns ? 0 : n;
    while (k < n && !same_units(st, &of, alike[k], r)) k++;
    if (k < n) {
      out->rank[r] = out->rank[alike[k]];
      out->rank[r].sent = sent_by(st, r);
      continue;
    }
    out->rank[r].sizes[AREA_ACTIVATIONS] = *sizes;
    fill_rank(st, plan, m, r, scratch, a, &out->rank[r]);
    /* Units of buckets that are gathered are the rank's own. */
    if (owns && out->rank[r].unsharded.n == 0) alike[n++] = r;
  }
}

RankLives *rank_lives(const RankCosts *c, const Transfers *t, const Strategy *how,
                      Arena *scratch, Arena *a) {
  RankLives *l = (void *)arena_alloc(a, sizeof *l * (size_t)c->st.ranks);
  for (int r = 0; r < c->st.ranks; r++)
    lifetimes(t, how, &c->rank[r].unsharded, c->rank[r].sizes, r, scratch, a, l[r]);
  return l;
}

/* Bytes of a rank besides its buffers. */
static uint64_t fixed_bytes(const RankCosts *s, int r, int64_t microbatches) {
  uint64_t input = input_bytes(microbatches, s->st.u->micro, s->st.u->tokens);
  return s->rank[r].fixed + align_up(input) * (uint64_t)s->rank[r].inputs;
}

/* Bytes of a rank with this many bytes of buffers. */
static uint64_t rank_bytes(const RankCosts *s, int r, uint64_t fixed, uint64_t buffers) {
  return fixed + MAX(buffers + s->rank[r].temp, s->rank[r].kept);
}

/* What a microbatch keeps of a unit, at least, between its F and its W: before I the
 * frames that F fills, after it those that W reads. A body that is empty reads none. */
static uint64_t frames_kept(const UnitCode *c, bool splits) {
  enum { FI, FW, IW };
  bool back = c->body[PH_B]->n > 0;
  bool reads_i = back || c->body[PH_I]->n > 0, reads_w = back || c->body[PH_W]->n > 0;
  uint64_t fi = reads_i ? c->frame[FI] : 0, iw = reads_w ? c->frame[IW] : 0;
  return (reads_w ? c->frame[FW] : 0) + (splits ? MIN(fi, iw) : fi);
}

static uint64_t stage_frames(const Stages *st, int stage, bool splits) {
  uint64_t bytes = 0;
  for (int u = st->first[stage]; u < st->first[stage + 1]; u++)
    bytes += frames_kept(st->u->at[u].code, splits);
  return bytes;
}

/* The frames of all microbatches in flight at once, as if each were at the smallest stage
 * of the rank. */
static uint64_t flight_floor(const RankCosts *s, const Timeline *when, bool splits,
                             int r) {
  uint64_t least = UINT64_MAX;
  for (int stage = 0; stage < s->st.n; stage++)
    if (s->st.rank[stage] == r) least = MIN(least, stage_frames(&s->st, stage, splits));
  return least == UINT64_MAX ? 0 : least * (uint64_t)when->peak[r];
}

RankMemory rank_memory_floor(const RankCosts *s, const Timeline *when, bool splits,
                             int64_t microbatches, uint64_t limit) {
  RankMemory worst = {0};
  for (int r = 0; r < s->st.ranks; r++) {
    uint64_t flight = flight_floor(s, when, splits, r);
    uint64_t bytes = rank_bytes(s, r, fixed_bytes(s, r, microbatches), flight);
    if (bytes > worst.bytes) worst.bytes = bytes, worst.rank = r;
    worst.mean += (double)(s->rank[r].fixed - s->rank[r].copies) / s->st.ranks;
  }
  worst.over = worst.bytes > limit;
  return worst;
}

/* Whether `rank` replaces the worst rank so far: of equal ones, the lowest number. */
static bool is_worse(const RankMemory *worst, uint64_t bytes, int rank) {
  return bytes > worst->bytes || (bytes == worst->bytes && rank < worst->rank);
}

/* Whether packing into holes cannot make any area smaller. */
static bool is_tight(const Lifetimes *l) {
  for (int k = 0; k < AREA_N; k++)
    if (!l[k].tight) return false;
  return true;
}

/* Bytes of all buffers of a rank with slots in each area. */
static uint64_t slots_of(const RankCost *x, const Lifetimes *l, Arena *scratch) {
  uint64_t bytes = 0;
  for (int k = 0; k < AREA_N; k++) bytes += lifetimes_slots(&l[k], &x->sizes[k]);
  return bytes;
}

/* The same, packed into holes where that is smaller. */
static uint64_t packed(const RankCost *x, const Lifetimes *l, Arena *scratch) {
  uint64_t bytes = 0;
  for (int k = 0; k < AREA_N; k++) {
    uint64_t slots = lifetimes_slots(&l[k], &x->sizes[k]);
    bytes += MIN(slots, lifetimes_holes(&l[k], &x->sizes[k], slots, scratch));
  }
  return bytes;
}

/* slots_of or packed, for the training or evaluation program, whichever is larger. */
typedef uint64_t (*Buffers)(const RankCost *x, const Lifetimes *l, Arena *scratch);

static uint64_t larger(Buffers of, const RankCost *x, const Lifetimes *l,
                       const Lifetimes *eval, Arena *scratch) {
  uint64_t bytes = of(x, l, scratch);
  return eval ? MAX(bytes, of(x, eval, scratch)) : bytes;
}

/* A rank and its bytes with slots, an upper bound. */
typedef struct Bound {
  uint64_t bytes;
  int rank;
} Bound;

static int by_bound(const void *x, const void *y) {
  const Bound *a = x, *b = y;
  if (a->bytes != b->bytes) return a->bytes < b->bytes ? 1 : -1;
  return a->rank - b->rank;
}

/* The largest come first, and spare the others the trouble of holes. */
RankMemory rank_memory(const RankCosts *s, const RankLives *l, const RankLives *eval,
                       int64_t microbatches, uint64_t limit, Arena *scratch) {
  RankMemory worst = {0};
  int n = s->st.ranks;
  Bound *order = arena_raw(scratch, sizeof *order * (size_t)n);
  for (int r = 0; r < n; r++) {
    const Lifetimes *of_eval = eval ? eval[r] : NULL;
    uint64_t slots = larger(slots_of, &s->rank[r], l[r], of_eval, scratch);
    order[r] = (Bound){rank_bytes(s, r, fixed_bytes(s, r, microbatches), slots), r};
  }
  qsort(order, (size_t)n, sizeof *order, by_bound);
  for (int i = 0; i < n && !worst.over; i++) {
    int r = order[i].rank;
    const Lifetimes *of_eval = eval ? eval[r] : NULL;
    uint64_t bytes = order[i].bytes;
    if (!is_worse(&worst, bytes, r)) continue;
    if (!is_tight(l[r]) || (eval && !is_tight(of_eval)))
      bytes = rank_bytes(s, r, fixed_bytes(s, r, microbatches),
                         larger(packed, &s->rank[r], l[r], of_eval, scratch));
    if (is_worse(&worst, bytes, r)) worst.bytes = bytes, worst.rank = r;
    worst.over = worst.bytes > limit;
  }
  return worst;
}
