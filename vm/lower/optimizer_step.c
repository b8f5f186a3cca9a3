/* optimizer_step.c - the part of a program that runs once per step. Before the first
 * action: count label tokens. After the last one: finish the gradient reductions, compute
 * the gradient norm, clip, and step the optimizer. Norm and optimizer run over contiguous
 * ranges of the flat parameter buffer (region.h). */
#include "optimizer_step.h"

#include "vm/plan/optimizer.h"

/* ---- instructions ---- */

void emit_kernel(Emit *e, int op, const OpAttr *attr, const char *what) {
  Instr *x = emit_instr(e, I_KERNEL, what);
  x->op = (uint16_t)op;
  x->attr = (uint32_t)e->attr.n;
  *VEC_PUSH(e->scratch, e->attr) = attr ? *attr : (OpAttr){0};
}

void emit_in(Emit *e, Extent at, DType dt) {
  emit_operand(e, at, dt);
  e->code.at[e->code.n - 1].nin++;
}

void emit_out(Emit *e, Extent at, DType dt) {
  emit_operand(e, at, dt);
  e->code.at[e->code.n - 1].nout++;
}

/* Adds the scratch operand of the last kernel, after its other operands. */
void emit_work_at(Emit *e, uint64_t at) {
  Instr *x = &e->code.at[e->code.n - 1];
  KernelArgs a = {.attr = &e->attr.at[x->attr], .nin = x->nin, .nout = x->nout};
  const Operand *o = &e->operand.at[x->operand];
  for (int k = 0; k < a.nin; k++) a.in[k] = operand_shape(&o[k]);
  for (int k = 0; k < a.nout; k++) a.out[k] = operand_shape(&o[a.nin + k]);
  uint64_t bytes = e->u->device->work(x->op, &a);
  if (!bytes) return;
  emit_operand(e, (Extent){.off = at, .n = (int64_t)((bytes + 3) / 4)}, DT_F32);
  x->nwork = 1;
}

void emit_work(Emit *e) { emit_work_at(e, e->l->work); }

/* The first n scalars. */
static Extent first_scalars(const Emit *e, int64_t n) {
  return (Extent){.off = e->l->scalars, .n = n};
}

/* Makes the block of scalars an operand and result of the last kernel. */
static void scalars(Emit *e) {
  emit_in(e, first_scalars(e, SC_N), DT_F64);
  emit_out(e, first_scalars(e, SC_N), DT_F64);
}

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

void emit_wait(Emit *e, int handle, const char *what) {
  emit_instr(e, I_WAIT, what)->handle = handle;
}

bool emit_scalar_sum(Emit *e, AxisSet axes, int which, int handle, const char *what) {
  int comm = comm_for(e->comms, axes, NULL, 0);
  if (comm < 0) return false;
  Extent at = {.off = e->l->scalars + 8 * (uint64_t)which, .n = 1};
  start_sum(e, comm, RED_SUM, at, DT_F64, handle, what);
  return true;
}

static void sum_scalar(Emit *e, AxisSet axes, int which, const char *what) {
  if (emit_scalar_sum(e, axes, which, SCALAR_HANDLE, what))
    emit_wait(e, SCALAR_HANDLE, what);
}

/* ---- before the first action ---- */

static bool owns_loss(const Emit *e) { return unit_rank(e->st, e->u->loss) == e->p->pp; }

void update_count(Emit *e, const Compiled *c) {
  emit_kernel(e, OP_scal_zero, NULL, "step");
  emit_in(e, first_scalars(e, scalar_count(e->u->sources)), DT_F64);
  emit_out(e, first_scalars(e, scalar_count(e->u->sources)), DT_F64);
  if (e->l->sums_bytes)
    emit_zeros(e, DT_F32, e->l->sums_at, (int64_t)(e->l->sums_bytes / sizeof(float)),
               "sums of the step");
  if (owns_loss(e)) {
    int64_t n = (int64_t)e->microbatches * c->micro * c->tokens;
    emit_kernel(e, OP_count_labels, NULL, "labels");
    emit_in(e, (Extent){.off = e->l->input[IN_LABELS], .n = n}, DT_I32);
    scalars(e);
  }
  sum_scalar(e, AXES_DP_CP | AXIS_BIT(AXIS_PP), SC_TOKENS, "label tokens");
}

void update_prologue(Emit *e, const Compiled *c) {
  update_count(e, c);
  double count = plan_loss_count(e->plan, e->plan->batch.global, 0);
  emit_kernel(e, OP_seed, &(OpAttr){.n = (int32_t)count}, "loss scale");
  emit_in(e, first_scalars(e, SC_N), DT_F64);
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

void update_loss(Emit *e) { sum_scalar(e, update_loss_axes(e->u), SC_LOSS, "loss"); }

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

const char *update_name(Emit *e, const Compiled *c, const Stretch *r) {
  if (r->n > 1) return arena_printf(e->scratch, "%d parameters", r->n);
  return c->param[e->l->regions.param[r->first].param].name;
}

bool update_balances(const Compiled *c, const Emit *e, const Stretch *r) {
  return c->param[e->l->regions.param[r->first].param].share > 0;
}

static const Region *gradients(const Emit *e, const Stretch *r) {
  const Regions *s = &e->l->regions;
  return regions_find(s, REGION_GRAD, &s->param[r->first]);
}

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
    const Region *g = gradients(e, &r);
    if (!g) continue; /* frozen */
    AxisSet cut = piece_axes(&c->param[s->param[r.first].param], g);
    int k = 0;
    while (cut && k < n && set[k] != cut) k++;
    assert(k < LEN(set));
    if (cut && k == n) set[n++] = cut;
    int to = cut ? SC_NORM2_CUT + k : SC_NORM2;
    emit_kernel(e, OP_sqnorm, &(OpAttr){.n = to}, update_name(e, c, &r));
    emit_in(e, region_extent(g, &r), (DType)g->dtype);
    scalars(e);
    emit_work(e);
  }
  for (int k = 0; k < n; k++) {
    sum_scalar(e, set[k], SC_NORM2_CUT + k, "gradient norm");
    emit_kernel(e, OP_scal_add, &(OpAttr){.n = SC_NORM2, .dim = SC_NORM2_CUT + k},
                "gradient norm");
    scalars(e);
  }
}

void update_clip(Emit *e, int op, bool whole) {
  OpAttr attr = {.clip = e->plan->opt.clip, .n = whole};
  emit_kernel(e, op, &attr, "clip");
  scalars(e);
}

/* ---- optimizer ---- */

static bool alike_in_step(const CompiledParam *all, const Stored *a, const Stored *b) {
  const CompiledParam *p = &all[a->param], *q = &all[b->param];
  return p->decay == q->decay && p->group == q->group && p->share == q->share &&
         p->frozen == q->frozen && p->matrix == q->matrix;
}

/* The next range that learns, over all regions except those of copies that are unsharded
 * for a while. */
bool update_stretch(const Emit *e, const Compiled *c, Stretch *r) {
  unsigned of = (1u << REGION_N) - 1 - (1u << REGION_GATHERED);
  do
    if (!regions_stretch(&e->l->regions, c->param, of, alike_in_step, r)) return false;
  while (c->param[e->l->regions.param[r->first].param].frozen);
  return true;
}

/* Elements at offset `off`, as many as this rank's part of a range has. */
static Extent as_long_as(const Stretch *r, uint64_t off) {
  return (Extent){.off = off, .n = r->count / r->ways};
}

/* Where the optimizer writes the parameters that ops read. */
static Extent new_work(const Emit *e, const Region *work, const Stretch *r) {
  bool far = e->l->offloads && !on_host(work->off);
  return far ? as_long_as(r, e->l->host_work) : region_extent(work, r);
}

static void emit_state(Emit *e, const Stretch *r, int k, bool result) {
  const Regions *s = &e->l->regions;
  const Region *of = regions_find(s, region_state(k), &s->param[r->first]);
  (result ? emit_out : emit_in)(e, region_extent(of, r), (DType)of->dtype);
}

void update_results(Emit *e, const Stretch *r, bool undo) {
  const Regions *s = &e->l->regions;
  const Stored *p = &s->param[r->first];
  const Region *work = regions_find(s, REGION_WORK, p), *value = regions_value(s, p);
  emit_out(e, region_extent(value, r), (DType)value->dtype);
  if (undo) emit_out(e, new_work(e, work, r), (DType)work->dtype);
  for (int k = 0; k < optimizer_row(&e->plan->opt)->states; k++)
    emit_state(e, r, k, true);
  if (!undo) emit_out(e, new_work(e, work, r), (DType)work->dtype);
}

OpAttr update_attr(const Emit *e, const CompiledParam *of) {
  const Optimizer *o = &e->plan->opt;
  OpAttr attr = optimizer_attr(o);
  attr.seed = o->stochastic ? e->plan->seed : 0;
  attr.weight_decay = plan_weight_decay(e->plan, of->group, of->decay);
  double factor = plan_lr_factor(e->plan, of->group, of->matrix);
  attr.lr = factor == 1 ? 0 : factor;
  return attr;
}

void update_step(Emit *e, const Compiled *c, const Stretch *r, int op) {
  const Optimizer *o = &e->plan->opt;
  const Regions *s = &e->l->regions;
  const Stored *p = &s->param[r->first];
  OpAttr attr = update_attr(e, &c->param[p->param]);
  emit_kernel(e, op, &attr, update_name(e, c, r));
  const Region *g = gradients(e, r), *value = regions_value(s, p);
  emit_in(e, region_extent(value, r), (DType)value->dtype);
  emit_in(e, e->l->offloads ? as_long_as(r, e->l->host_grad) : region_extent(g, r),
          (DType)g->dtype);
  for (int k = 0; k < optimizer_row(o)->states; k++) emit_state(e, r, k, false);
  Extent scalars = first_scalars(e, SC_ZERO_FROM);
  if (e->l->offloads) scalars.off = e->l->host_scalars;
  emit_in(e, scalars, DT_F64);
  update_results(e, r, false);
}

/* The loss-free balancing step of a router's bias: in the place of its gradient are the
 * counts of how often each expert was chosen. */
static void balance(Emit *e, const Compiled *c, const Stretch *r) {
  const Regions *s = &e->l->regions;
  const Stored *p = &s->param[r->first];
  const Region *work = regions_find(s, REGION_WORK, p);
  double tokens = (double)e->plan->batch.global * (double)e->plan->batch.seq;
  OpAttr attr = {.scale = (float)e->plan->moe.bias_rate,
                 .theta = (float)(tokens * c->param[p->param].share),
                 .n = (int32_t)e->plan->moe.bias_steps};
  if (attr.scale == 0) return;
  emit_kernel(e, OP_bias_step, &attr, update_name(e, c, r));
  emit_in(e, region_extent(regions_value(s, p), r), DT_F32);
  emit_in(e, region_extent(gradients(e, r), r), DT_F32);
  emit_in(e, first_scalars(e, SC_ZERO_FROM), DT_F64);
  emit_out(e, region_extent(regions_value(s, p), r), DT_F32);
  emit_out(e, region_extent(work, r), (DType)work->dtype);
}

static void emit_copy(Emit *e, Extent from, Extent to, DType dt, const char *what) {
  emit_kernel(e, OP_copy, NULL, what);
  emit_in(e, from, dt);
  emit_out(e, to, dt);
}

/* The step with offloaded state: copies gradients to the host, steps there, copies
 * parameters back. */
static void step_on_host(Emit *e, const Compiled *c, const Stretch *r) {
  const Regions *s = &e->l->regions;
  const Region *work = regions_find(s, REGION_WORK, &s->param[r->first]);
  const char *what = update_name(e, c, r);
  const Region *g = gradients(e, r);
  emit_copy(e, region_extent(g, r), as_long_as(r, e->l->host_grad), (DType)g->dtype,
            what);
  update_step(e, c, r, optimizer_row(&e->plan->opt)->step);
  emit_work(e);
  if (!on_host(work->off))
    emit_copy(e, new_work(e, work, r), region_extent(work, r), (DType)work->dtype, what);
}

/* Starts the gather of a range that was stepped in shards, and waits for it unless that
 * is to overlap with what follows. */
static void gather_stepped(Emit *e, const Stretch *r, MainList *t) {
  bool overlap = e->plan->strategy.overlap_param_gather;
  if (!emit_gather(e, r, overlap ? t->handles : SCALAR_HANDLE, "parameters")) return;
  if (overlap)
    t->handles++;
  else
    emit_wait(e, SCALAR_HANDLE, "parameters");
}

/* The blocks of a range that are stepped by what whole parameters say. */
static void step_factored(Emit *e, const Compiled *c, const FactoredRoom *room,
                          const Stretch *r, MainList *t) {
  const Regions *s = &e->l->regions;
  for (int i = r->first; i < r->first + r->n; i += s->block[s->param[i].block].n) {
    const Region *g = regions_find(s, REGION_GRAD, &s->param[i]);
    Stretch block = regions_block(s, s->param[i].block, g);
    factored_step(e, c, room, &block);
    gather_stepped(e, &block, t);
  }
}

/* The blocks of a range whose matrices are stepped as a whole. */
static void step_matrices(Emit *e, const Compiled *c, const MatrixRoom *room,
                          const Stretch *r, MainList *t) {
  const Regions *s = &e->l->regions;
  for (int i = r->first, end = i + r->n, next; i < end;) {
    next = matrix_step(e, c, room, i, end);
    for (; i < next; i += s->block[s->param[i].block].n) {
      const Region *state = regions_find(s, REGION_STATE1, &s->param[i]);
      Stretch block = regions_block(s, s->param[i].block, state);
      gather_stepped(e, &block, t);
    }
  }
}

/* Steps all ranges. With overlap_param_gather a range is gathered while the next ones are
 * stepped. */
void update_last_step(Emit *e, const Compiled *c, MainList *t) {
  MatrixRoom room = matrix_room(e->plan, e->mesh, e->u, e->l, e->scratch);
  FactoredRoom sums = factored_room(e->plan, e->mesh, e->u, e->l, e->scratch);
  int first = t->handles;
  if (e->l->offloads) {
    Extent to = {.off = e->l->host_scalars, .n = SC_ZERO_FROM};
    emit_copy(e, first_scalars(e, SC_ZERO_FROM), to, DT_F64, "step");
  }
  for (Stretch r = {0}; update_stretch(e, c, &r);) {
    if (matrices_in(e, &r)) {
      step_matrices(e, c, &room, &r, t);
      continue;
    }
    if (factored_in(e, &r)) {
      step_factored(e, c, &sums, &r, t);
      continue;
    }
    if (update_balances(c, e, &r)) {
      balance(e, c, &r);
    } else if (e->l->offloads) {
      step_on_host(e, c, &r);
    } else {
      update_step(e, c, &r, optimizer_row(&e->plan->opt)->step);
      emit_work(e);
    }
    gather_stepped(e, &r, t);
  }
  for (int h = first; h < t->handles; h++) emit_wait(e, h, "parameters");
}

static void validate_then_step(Emit *e, const Compiled *c, MainList *t) {
  sum_scalar(e, AXIS_BIT(AXIS_PP), SC_NORM2, "gradient norm");
  update_loss(e);
  update_clip(e, OP_clip_coef, true);
  update_last_step(e, c, t);
}

void update_epilogue(Emit *e, const Compiled *c, MainList *t) {
  reduce_gradients(e, t);
  reduce_ties(e, c);
  reduce_rows(e);
  update_sources(e);
  measure(e, c);
  if (e->plan->opt.post_validation)
    post_validation(e, c, t);
  else
    validate_then_step(e, c, t);
}
