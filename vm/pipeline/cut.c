/* cut.c - stages of a front, what their ranks hold, and the bytes of the worst one. */
#include "cut.h"

static void add_work(UnitWork *to, const UnitWork *w) {
  to->flops += w->flops;
  to->seconds += w->seconds;
  for (int a = 0; a < AX_N; a++)
    for (int k = 0; k < COLL_N; k++) {
      to->bytes[a][k] += w->bytes[a][k];
      to->count[a][k] += w->count[a][k];
    }
}

static uint64_t crossing(const Build *b, const Cross *c) {
  uint64_t bytes = 0;
  for (int i = 0; i < c->n; i++)
    bytes += (uint64_t)tensor_bytes(&b->sh.g->t.at[c->at[i]]);
  return bytes;
}

/* Bytes that rank r sends forward and backward for one microbatch. */
static uint64_t sent_by(const Build *b, int r) {
  uint64_t bytes = 0;
  for (int s = 0; s + 1 < b->st.n; s++) {
    int from = stage_rank(b, s), to = stage_rank(b, s + 1);
    if (from == to) continue;
    if (from == r) bytes += crossing(b, &b->fwd[s]);
    if (to == r) bytes += crossing(b, &b->bwd[s]);
  }
  return bytes;
}

/* An axis of one rank reduces nothing. */
static void add_reductions(const Compiled *k, const Layout *l, const Mesh *m,
                           CutRank *x) {
  for (int i = 0; i < l->bucket.n; i++) {
    const Bucket *b = &l->bucket.at[i];
    if (mesh_size(m, b->axes & AXES_DP) > 1)
      x->reduced += 4 * b->count;
    else if (mesh_size(m, b->axes) > 1)
      x->reduced_tp += 4 * b->count;
  }
  for (int i = 0; i < l->nparam; i++)
    if (k->param[l->param[i].param].npp > 1) x->tied += 4 * (uint64_t)l->param[i].count;
}

static void fill_rank(Cut *c, Build *b, const Compiled *k, int r) {
  CutRank *x = &c->rank[r];
  Layout l;
  layout(b, r, k, &l);
  x->fixed = l.end;
  x->temp = temp_of(b, r);
  x->kept = l.kept;
  for (uint64_t in = inputs_of(b, r); in; in &= in - 1)
    x->inputs++;
  for (int i = 0; i < l.nparam; i++)
    x->params += (uint64_t)l.param[i].count;
  add_reductions(k, &l, &c->mesh, x);
  x->sent = sent_by(b, r);
  for (int u = 0; u < b->in->graph->unit.n; u++)
    if (stage_rank(b, b->st.of_unit[u]) == r)
      for (int ph = 0; ph < 3; ph++)
        add_work(&x->work[ph], &c->front->work[u][ph]);
}

weft_status cut_new(const Front *f, const Plan *plan, const Schedule *s, Arena *scratch,
                    Arena *a, Cut **out, Diags *d) {
  Cut *c = NEW(a, Cut);
  c->front = f;
  c->plan = f->plan;
  c->plan.pp = plan->pp;
  c->mesh = f->mesh;
  c->mesh.size[AXIS_PP] = c->ranks = s->ranks;
  c->schedule = (Schedule){.ranks = s->ranks,
                           .virtual_stages = s->virtual_stages,
                           .v_placement = s->v_placement};
  c->in = (CompileInput){.plan = &c->plan,
                         .mesh = &c->mesh,
                         .graph = f->in.graph,
                         .schedule = &c->schedule,
                         .arena = a};
  c->b = f->b;
  c->b.in = &c->in;
  c->b.arena = a;
  if (!stage(&c->in, c->b.cost, &c->b.st, d)) return WEFT_EPLAN;
  stage_edges(&c->b);
  Build b = c->b; /* without microbatches: a step keeps no inputs */
  b.arena = b.scratch = scratch;
  Compiled k = {.arena = scratch,
                .dtype = f->plan.dtype,
                .micro = (int)f->plan.batch.micro,
                .seq = f->in.graph->seq};
  describe_params(&b, &k);
  c->rank = NEW_N(a, CutRank, c->ranks);
  for (int r = 0; r < c->ranks; r++)
    fill_rank(c, &b, &k, r);
  c->plan.pp = (PpPlan){0};
  *out = c;
  return WEFT_OK;
}

Lifetimes *cut_lifetimes(const Cut *c, const Schedule *s, const Timeline *when,
                         int rounds, Arena *scratch, Arena *a) {
  CompileInput in = c->in;
  Build b = c->b;
  in.schedule = s;
  b.in = &in;
  b.arena = b.scratch = scratch;
  b.when = *when;
  b.microbatches = s->microbatches * rounds;
  Lifetimes *l = NEW_N(a, Lifetimes, c->ranks);
  transfers(&b);
  for (int r = 0; r < c->ranks; r++)
    lifetimes(&b, c->front, r, a, &l[r]);
  return l;
}

/* Bytes of a rank besides its buffers. */
static uint64_t fixed_bytes(const Cut *c, int r, int64_t microbatches) {
  const Batch *batch = &c->front->plan.batch;
  uint64_t input = input_bytes(microbatches, batch->micro, c->in.graph->seq);
  return c->rank[r].fixed + align_up(input) * (uint64_t)c->rank[r].inputs;
}

/* With so many bytes of buffers. */
static uint64_t rank_bytes(const Cut *c, int r, uint64_t fixed, uint64_t buffers) {
  return fixed + MAX(buffers + c->rank[r].temp, c->rank[r].kept);
}

Footprint cut_floor(const Cut *c, int64_t microbatches, uint64_t limit) {
  Footprint worst = {0};
  for (int r = 0; r < c->ranks; r++) {
    uint64_t bytes = rank_bytes(c, r, fixed_bytes(c, r, microbatches), 0);
    if (bytes > worst.bytes) worst.bytes = bytes, worst.rank = r;
  }
  worst.over = worst.bytes > limit;
  return worst;
}

/* Of equal ranks the first, in whatever order they come. */
static bool is_worse(const Footprint *worst, uint64_t bytes, int rank) {
  return bytes > worst->bytes || (bytes == worst->bytes && rank < worst->rank);
}

Footprint cut_footprint(const Cut *c, const Lifetimes *l, int64_t microbatches,
                        uint64_t limit, Arena *scratch) {
  Footprint worst = {0};
  /* First the ranks that holes cannot make smaller: they spare the others the trouble. */
  for (int pass = 0; pass < 2; pass++)
    for (int r = 0; r < c->ranks; r++) {
      if (l[r].tight != (pass == 0)) continue;
      uint64_t fixed = fixed_bytes(c, r, microbatches);
      uint64_t slots = lifetimes_slots(&l[r], c->front);
      if (!is_worse(&worst, rank_bytes(c, r, fixed, slots), r)) continue;
      uint64_t holes = lifetimes_holes(&l[r], c->front, slots, scratch);
      uint64_t bytes = rank_bytes(c, r, fixed, MIN(slots, holes));
      if (is_worse(&worst, bytes, r)) worst.bytes = bytes, worst.rank = r;
      if (worst.bytes > limit) return worst.over = true, worst;
    }
  return worst;
}
