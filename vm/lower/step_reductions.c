/* step_reductions.c - what all ranks know together of a step. Before its first action:
 * how many label tokens there are. After the last one: gradients, counts of experts,
 * losses of sources, the gradient norm. Norms run over contiguous ranges of the flat
 * parameter buffer (region.h). */
#include "optimizer_step.h"

/* ---- sums ---- */

static void start_sum(Emit *e, int comm, RedOp red, Extent at, DType dt, int handle,
                      const char *what) {
  Instr *x = emit_instr(e, I_COLL, what);
  x->coll = COLL_ALL_REDUCE;
  x->red = (uint8_t)red;
  x->comm = (int16_t)comm;
  x->handle = handle;
  emit_in(e, at, dt);
  emit_out(e, at, dt);
}

bool emit_scalar_sum(Emit *e, AxisSet axes, int which, int handle, const char *what) {
  int comm = comm_for(e->comms, axes, NULL, 0);
  if (comm < 0) return false;
  Extent at = {.off = e->l->scalars + 8 * (uint64_t)which, .n = 1};
  start_sum(e, comm, RED_SUM, at, DT_F64, handle, what);
  return true;
}

void emit_scalar_summed(Emit *e, AxisSet axes, int which, const char *what) {
  if (emit_scalar_sum(e, axes, which, SCALAR_HANDLE, what))
    emit_wait(e, SCALAR_HANDLE, what);
}

/* ---- before the first action ---- */

static bool owns_loss(const Emit *e) { return unit_rank(e->st, e->u->loss) == e->p->pp; }

void update_count(Emit *e, const Compiled *c) {
  emit_kernel(e, OP_scal_zero, NULL, "step");
  emit_in(e, step_scalars(e, scalar_count(e->u->sources)), DT_F64);
  emit_out(e, step_scalars(e, scalar_count(e->u->sources)), DT_F64);
  if (e->l->sums_bytes)
    emit_zeros(e, DT_F32, e->l->sums_at, (int64_t)(e->l->sums_bytes / sizeof(float)),
               "sums of the step");
  if (owns_loss(e)) {
    int64_t n = (int64_t)e->microbatches * c->micro * c->tokens;
    emit_kernel(e, OP_count_labels, NULL, "labels");
    emit_in(e, (Extent){.off = e->l->input[IN_LABELS], .n = n}, DT_I32);
    emit_scalars(e);
  }
  emit_scalar_summed(e, AXES_DP_CP | AXIS_BIT(AXIS_PP), SC_TOKENS, "label tokens");
}

void update_prologue(Emit *e, const Compiled *c) {
  update_count(e, c);
  double count = plan_loss_count(e->plan, e->plan->batch.global, 0);
  emit_kernel(e, OP_seed, &(OpAttr){.n = (int32_t)count}, "loss scale");
  emit_in(e, step_scalars(e, SC_N), DT_F64);
  emit_out(e, (Extent){.off = e->l->seed, .n = 1}, DT_F32);
  clear_paddings(e);
}

/* ---- gradients ---- */

/* Starts the reductions that did not overlap, then the second reduction of buckets that
 * have one. */
static void reduce_gradients(Emit *e, MainList *t) {
  const Bucket *bk = e->l->bucket.at;
  int n = e->l->bucket.n;
  for (int k = 0; k < n; k++) {
    if (t->reduce_handle[k] >= 0 || !bk[k].sum[0]) continue;
    t->reduce_handle[k] = t->handles++;
    bucket_start(e, k, 0, t->reduce_handle[k]);
  }
  for (int k = 0; k < n; k++) {
    if (bk[k].sum[0]) bucket_wait(e, k, 0, t->reduce_handle[k]);
    if (bk[k].sum[1]) bucket_start(e, k, 1, t->reduce_handle[k]);
  }
  for (int k = 0; k < n; k++)
    if (bk[k].sum[1]) bucket_wait(e, k, 1, t->reduce_handle[k]);
}

/* Sums the gradients of tied weights over the pp ranks that hold them. Each such weight
 * is a bucket, so that all of them have the same shard. */
static void reduce_ties(Emit *e, const Compiled *c) {
  const Regions *s = &e->l->regions;
  for (int i = 0; i < c->nparam; i++) {
    int at = e->l->of[i];
    if (at < 0 || c->param[i].npp < 2 || c->param[i].frozen) continue;
    int comm = comm_for(e->comms, AXIS_BIT(AXIS_PP), c->param[i].pp, c->param[i].npp);
    const Region *g = regions_find(s, REGION_GRAD, &s->param[at]);
    Stretch r = regions_block(s, s->param[at].block, g);
    start_sum(e, comm, RED_SUM, region_extent(g, &r), (DType)g->dtype, SCALAR_HANDLE,
              c->param[i].name);
    emit_wait(e, SCALAR_HANDLE, c->param[i].name);
  }
}

/* The loss is partial over some axes and known to one pp rank only. */
AxisSet update_loss_axes(const Units *u) {
  return place_partial(u->loss_place) | AXIS_BIT(AXIS_PP);
}

void update_loss(Emit *e) {
  emit_scalar_summed(e, update_loss_axes(e->u), SC_LOSS, "loss");
}

/* Sums the token counts of experts over all ranks. Ranks of etp count the same tokens:
 * see read_experts. */
static void reduce_rows(Emit *e) {
  AxisSet all = AXES_DP_CP | AXIS_BIT(AXIS_TP) | AXIS_BIT(AXIS_PP);
  int comm = comm_for(e->comms, all, NULL, 0);
  if (!e->u->experts || comm < 0) return;
  const struct {
    int from, n;
    RedOp red;
  } sum[] = {{SC_ROWS, SC_ROWS_MAX - SC_ROWS, RED_SUM}, {SC_ROWS_MAX, 1, RED_MAX}};
  for (int i = 0; i < LEN(sum); i++) {
    Extent at = {.off = e->l->scalars + 8 * (uint64_t)sum[i].from, .n = sum[i].n};
    start_sum(e, comm, sum[i].red, at, DT_F64, SCALAR_HANDLE, "rows of experts");
    emit_wait(e, SCALAR_HANDLE, "rows of experts");
  }
}

/* Sums the losses and labels of each source, which one pp rank knows, as the loss. */
void update_sources(Emit *e) {
  if (!e->u->sources) return; /* then they have no place either */
  AxisSet axes = place_partial(e->u->sources_place) | AXIS_BIT(AXIS_PP);
  int comm = comm_for(e->comms, axes, NULL, 0);
  if (comm < 0) return;
  Extent at = {.off = e->l->scalars + 8 * SC_SOURCES, .n = 2 * e->u->sources};
  start_sum(e, comm, RED_SUM, at, DT_F64, SCALAR_HANDLE, "losses of sources");
  emit_wait(e, SCALAR_HANDLE, "losses of sources");
}

/* ---- norm ---- */

static bool alike_in_norm(const CompiledParam *all, const Stored *a, const Stored *b) {
  return a->owner == b->owner && all[a->param].share == all[b->param].share &&
         all[a->param].frozen == all[b->param].frozen &&
         place_cuts(all[a->param].place) == place_cuts(all[b->param].place);
}

/* The squared norm of the gradients that this pp rank owns. Sums of squares of shards are
 * partial over the axes that shard: there is one scalar per set of axes, summed over
 * these. */
static void measure(Emit *e, const Compiled *c) {
  const Regions *s = &e->l->regions;
  AxisSet set[SC_N - SC_NORM2_CUT]; /* the scalars for them */
  int n = 0;
  unsigned of = 1u << REGION_GRAD;
  for (Stretch r = {0}; regions_stretch(s, c->param, of, alike_in_norm, &r);) {
    if (!s->param[r.first].owner || update_balances(c, e, &r)) continue;
    const Region *g = update_gradients(e, &r);
    if (!g) continue; /* frozen */
    AxisSet cut = piece_axes(&c->param[s->param[r.first].param], g);
    int k = 0;
    while (cut && k < n && set[k] != cut) k++;
    assert(k < LEN(set));
    if (cut && k == n) set[n++] = cut;
    int to = cut ? SC_NORM2_CUT + k : SC_NORM2;
    emit_kernel(e, OP_sqnorm, &(OpAttr){.n = to}, update_name(e, c, &r));
    emit_in(e, region_extent(g, &r), (DType)g->dtype);
    emit_scalars(e);
    emit_work(e);
  }
  for (int k = 0; k < n; k++) {
    emit_scalar_summed(e, set[k], SC_NORM2_CUT + k, "gradient norm");
    emit_kernel(e, OP_scal_add, &(OpAttr){.n = SC_NORM2, .dim = SC_NORM2_CUT + k},
                "gradient norm");
    emit_scalars(e);
  }
}

void step_reductions(Emit *e, const Compiled *c, MainList *t) {
  reduce_gradients(e, t);
  reduce_ties(e, c);
  reduce_rows(e);
  update_sources(e);
  measure(e, c);
}
