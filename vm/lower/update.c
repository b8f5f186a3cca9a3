/* update.c - what every rank does once a step: count the label tokens first; after the
 * last action finish the reductions, measure the gradient, clip, and step the optimizer.
 * Norm and optimizer run over stretches of the row of parameters (region.h). */
#include "update.h"

/* ---- instructions ---- */

void emit_kernel(Emit *e, int op, const OpAttr *attr, const char *what) {
  Instr *x = emit_instr(e, I_KERNEL, what);
  x->op = (uint16_t)op;
  x->attr = (uint32_t)e->attr.n;
  *VEC_PUSH(e->scratch, e->attr) = attr ? *attr : (OpAttr){0};
}

void emit_in(Emit *e, uint64_t off, DType dt, int64_t n) {
  emit_operand(e, off, dt, n);
  e->code.at[e->code.n - 1].nin++;
}

void emit_out(Emit *e, uint64_t off, DType dt, int64_t n) {
  emit_operand(e, off, dt, n);
  e->code.at[e->code.n - 1].nout++;
}

/* The scratch of the kernel that was emitted last, after all of its operands. */
void emit_work(Emit *e) {
  Instr *x = &e->code.at[e->code.n - 1];
  KernelArgs a = {.attr = &e->attr.at[x->attr], .nin = x->nin, .nout = x->nout};
  const Operand *o = &e->operand.at[x->operand];
  for (int k = 0; k < a.nin; k++)
    a.in[k] = operand_shape(&o[k]);
  for (int k = 0; k < a.nout; k++)
    a.out[k] = operand_shape(&o[a.nin + k]);
  uint64_t bytes = e->u->device->work(x->op, &a);
  assert(bytes <= e->l->work_bytes);
  if (!bytes) return;
  emit_operand(e, e->l->work, DT_F32, (int64_t)((bytes + 3) / 4));
  x->nwork = 1;
}

/* The block of scalars is operand and result. */
static void scalars(Emit *e) {
  emit_in(e, e->l->scalars, DT_F64, SC_N);
  emit_out(e, e->l->scalars, DT_F64, SC_N);
}

static void start_sum(Emit *e, int comm, uint64_t off, DType dt, int64_t n, int handle,
                      const char *what) {
  Instr *x = emit_instr(e, I_COLL, what);
  x->coll = COLL_ALL_REDUCE;
  x->red = RED_SUM;
  x->comm = (int16_t)comm;
  x->handle = handle;
  emit_in(e, off, dt, n);
  emit_out(e, off, dt, n);
}

void emit_wait(Emit *e, int handle, const char *what) {
  emit_instr(e, I_WAIT, what)->handle = handle;
}

/* In-body handles are free between calls. */
enum { SCALAR_HANDLE = 0 };

bool emit_scalar_sum(Emit *e, AxisSet axes, int which, int handle, const char *what) {
  int comm = comm_for(e->comms, axes, NULL, 0);
  if (comm < 0) return false;
  start_sum(e, comm, e->l->scalars + 8 * (uint64_t)which, DT_F64, 1, handle, what);
  return true;
}

static void sum_scalar(Emit *e, AxisSet axes, int which, const char *what) {
  if (emit_scalar_sum(e, axes, which, SCALAR_HANDLE, what))
    emit_wait(e, SCALAR_HANDLE, what);
}

/* ---- before the first action ---- */

static bool owns_loss(const Emit *e) {
  return unit_rank(e->st, e->u->loss) == e->p->pp;
}

void update_prologue(Emit *e, const Compiled *c) {
  emit_kernel(e, OP_scal_zero, NULL, "step");
  scalars(e);
  if (owns_loss(e)) {
    int64_t n = (int64_t)e->microbatches * c->micro * c->seq;
    emit_kernel(e, OP_count_labels, NULL, "labels");
    emit_in(e, e->l->input[IN_LABELS], DT_I32, n);
    scalars(e);
  }
  sum_scalar(e, AXES_DP_CP | AXIS_BIT(AXIS_PP), SC_TOKENS, "label tokens");
  emit_kernel(e, OP_seed, NULL, "loss scale");
  emit_in(e, e->l->scalars, DT_F64, SC_N);
  emit_out(e, e->l->seed, DT_F32, 1);
}

/* ---- gradients ---- */

static void reduce_bucket(Emit *e, int k, int handle) {
  const Bucket *bk = &e->l->bucket.at[k];
  start_sum(e, comm_for(e->comms, bk->axes, NULL, 0), bk->off, DT_F32, bk->count, handle,
            "gradients");
}

static void reduce_gradients(Emit *e, MainList *t) {
  for (int k = 0; k < e->l->bucket.n; k++) {
    if (t->reduce_handle[k] >= 0) continue;
    t->reduce_handle[k] = t->handles++;
    reduce_bucket(e, k, t->reduce_handle[k]);
  }
  for (int k = 0; k < e->l->bucket.n; k++)
    emit_wait(e, t->reduce_handle[k], "gradients");
}

/* Parameters that several pp ranks hold: the sum of what their uses contributed. */
static void reduce_ties(Emit *e, const Compiled *c) {
  for (int i = 0; i < c->nparam; i++) {
    int at = e->l->of[i];
    if (at < 0 || c->param[i].npp < 2) continue;
    int comm = comm_for(e->comms, AXIS_BIT(AXIS_PP), c->param[i].pp, c->param[i].npp);
    start_sum(e, comm, layout_at(e->l, REGION_GRAD, i), DT_F32,
              e->l->regions.param[at].count, SCALAR_HANDLE, c->param[i].name);
    emit_wait(e, SCALAR_HANDLE, c->param[i].name);
  }
}

/* The loss is partial over some axes and known to one pp rank only. */
AxisSet update_loss_axes(const Units *u) {
  AxisSet s = AXIS_BIT(AXIS_PP);
  for (int a = 0; a < AX_N; a++)
    if (u->loss_place.on[a] == PL_P) s |= ax_mesh((ShardAxis)a);
  return s;
}

/* ---- norm ---- */

const char *update_name(Emit *e, const Compiled *c, const Stretch *r) {
  if (r->n > 1) return arena_printf(e->scratch, "%d parameters", r->n);
  return c->param[e->l->regions.param[r->first].param].name;
}

static const Region *gradients(const Emit *e, const Stretch *r) {
  const Regions *s = &e->l->regions;
  return regions_find(s, REGION_GRAD, &s->param[r->first]);
}

static bool alike_in_norm(const CompiledParam *all, const Stored *a, const Stored *b) {
  return a->owner == b->owner &&
         place_cuts(all[a->param].place) == place_cuts(all[b->param].place);
}

/* The squared norm of what this pp rank owns. Sums of squares of pieces are partial over
 * the axes that cut: for each set of axes there is a scalar that is summed over them. */
static void measure(Emit *e, const Compiled *c) {
  const Regions *s = &e->l->regions;
  AxisSet set[SC_N - SC_NORM2_CUT];
  int n = 0;
  for (Stretch r = {0}; regions_stretch(s, c->param, alike_in_norm, &r);) {
    if (!s->param[r.first].owner) continue;
    const Region *g = gradients(e, &r);
    AxisSet cut = piece_axes(&c->param[s->param[r.first].param], g);
    int k = 0;
    while (cut && k < n && set[k] != cut) k++;
    assert(k < LEN(set));
    if (cut && k == n) set[n++] = cut;
    int to = cut ? SC_NORM2_CUT + k : SC_NORM2;
    emit_kernel(e, OP_sqnorm, &(OpAttr){.n = to}, update_name(e, c, &r));
    emit_in(e, region_at(g, r.at), DT_F32, r.count);
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
  OpAttr attr = {.clip = (float)e->plan->opt.clip, .n = whole};
  emit_kernel(e, op, &attr, "clip");
  scalars(e);
}

/* ---- optimizer ---- */

static bool alike_in_decay(const CompiledParam *all, const Stored *a, const Stored *b) {
  return all[a->param].decay == all[b->param].decay;
}

bool update_stretch(const Emit *e, const Compiled *c, Stretch *r) {
  return regions_stretch(&e->l->regions, c->param, alike_in_decay, r);
}

void update_results(Emit *e, const Stretch *r) {
  const Regions *s = &e->l->regions;
  const Stored *p = &s->param[r->first];
  const Region *work = regions_find(s, REGION_WORK, p);
  emit_out(e, region_at(regions_value(s, p), r->at), DT_F32, r->count);
  emit_out(e, region_at(regions_find(s, REGION_M, p), r->at), DT_F32, r->count);
  emit_out(e, region_at(regions_find(s, REGION_V, p), r->at), DT_F32, r->count);
  emit_out(e, region_at(work, r->at), (DType)work->dtype, r->count);
}

void update_step(Emit *e, const Compiled *c, const Stretch *r, int op) {
  const Optimizer *o = &e->plan->opt;
  const Regions *s = &e->l->regions;
  const Stored *p = &s->param[r->first];
  OpAttr attr = {.beta1 = (float)o->beta1,
                 .beta2 = (float)o->beta2,
                 .eps = (float)o->eps,
                 .weight_decay = c->param[p->param].decay ? (float)o->weight_decay : 0};
  emit_kernel(e, op, &attr, update_name(e, c, r));
  emit_in(e, region_at(regions_value(s, p), r->at), DT_F32, r->count);
  emit_in(e, region_at(gradients(e, r), r->at), DT_F32, r->count);
  emit_in(e, region_at(regions_find(s, REGION_M, p), r->at), DT_F32, r->count);
  emit_in(e, region_at(regions_find(s, REGION_V, p), r->at), DT_F32, r->count);
  emit_in(e, e->l->scalars, DT_F64, SC_ZERO_FROM);
  update_results(e, r);
}

void update_all(Emit *e, const Compiled *c) {
  for (Stretch r = {0}; update_stretch(e, c, &r);) {
    update_step(e, c, &r, OP_adamw);
    emit_work(e);
  }
}

static void validate_then_step(Emit *e, const Compiled *c) {
  sum_scalar(e, AXIS_BIT(AXIS_PP), SC_NORM2, "gradient norm");
  sum_scalar(e, update_loss_axes(e->u), SC_LOSS, "loss");
  update_clip(e, OP_clip_coef, true);
  update_all(e, c);
}

void update_epilogue(Emit *e, const Compiled *c, MainList *t) {
  reduce_gradients(e, t);
  reduce_ties(e, c);
  measure(e, c);
  if (e->plan->opt.post_validation)
    post_validation(e, c, t);
  else
    validate_then_step(e, c);
}
