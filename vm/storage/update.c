/* update.c - what every rank does once a step: count the label tokens first; after the
 * last action finish the reductions, measure the gradient, clip, and step the optimizer.
 *
 * With post-validation a rank does not wait for the sums over the other pp ranks: it
 * steps with the clip that its own part of the norm allows and keeps what it overwrites.
 * When the sums are there, a step that was wrong is taken back, and made again with the
 * right clip unless the step is to be skipped. Either way the result has the same bits.
 */
#include "vm/program/lower.h"

static void kernel(Emit *e, int op, const OpAttr *attr, const char *what) {
  Instr *x = emit_instr(e, I_KERNEL, what);
  x->op = (uint16_t)op;
  x->attr = (uint32_t)e->attr.n;
  *VEC_PUSH(e->scratch, e->attr) = attr ? *attr : (OpAttr){0};
}

static void in(Emit *e, uint64_t off, DType dt, int64_t n) {
  emit_operand(e, off, dt, n);
  e->code.at[e->code.n - 1].nin++;
}

static void out(Emit *e, uint64_t off, DType dt, int64_t n) {
  emit_operand(e, off, dt, n);
  e->code.at[e->code.n - 1].nout++;
}

static void scal_in_out(Emit *e) {
  in(e, e->l->scalars, DT_F64, SC_N);
  out(e, e->l->scalars, DT_F64, SC_N);
}

static void start_reduce(Emit *e, int comm, uint64_t off, DType dt, int64_t n, int handle,
                         const char *what) {
  Instr *x = emit_instr(e, I_COLL, what);
  x->coll = COLL_ALL_REDUCE;
  x->red = RED_SUM;
  x->comm = (int16_t)comm;
  x->handle = handle;
  in(e, off, dt, n);
  out(e, off, dt, n);
}

static void wait(Emit *e, int handle, const char *what) {
  emit_instr(e, I_WAIT, what)->handle = handle;
}

/* In-body handles are free between calls. */
enum { SCALAR_HANDLE = 0 };

/* False if there is nothing to wait for. */
static bool start_scalar(Emit *e, AxisSet axes, int which, int handle, const char *what) {
  int comm = comm_for(e->comms, axes, NULL, 0);
  if (comm < 0) return false;
  start_reduce(e, comm, e->l->scalars + 8 * (uint64_t)which, DT_F64, 1, handle, what);
  return true;
}

static void reduce_scalar(Emit *e, AxisSet axes, int which, const char *what) {
  if (start_scalar(e, axes, which, SCALAR_HANDLE, what)) wait(e, SCALAR_HANDLE, what);
}

static bool owns_loss(const Emit *e) {
  return unit_rank(e->st, e->u->loss) == e->p->pp;
}

void update_prologue(Emit *e, const Compiled *c) {
  kernel(e, OP_scal_zero, NULL, "step");
  scal_in_out(e);
  if (owns_loss(e)) {
    int64_t n = (int64_t)e->microbatches * c->micro * c->seq;
    kernel(e, OP_count_labels, NULL, "labels");
    in(e, e->l->input[IN_LABELS], DT_I32, n);
    scal_in_out(e);
  }
  reduce_scalar(e, AXES_DP_CP | AXIS_BIT(AXIS_PP), SC_TOKENS, "label tokens");
  kernel(e, OP_seed, NULL, "loss scale");
  in(e, e->l->scalars, DT_F64, SC_N);
  out(e, e->l->seed, DT_F32, 1);
}

static void reduce_bucket(Emit *e, int k, int handle) {
  const Bucket *bk = &e->l->bucket.at[k];
  start_reduce(e, comm_for(e->comms, bk->axes, NULL, 0), bk->off, DT_F32, (int64_t)bk->count,
               handle, "gradients");
}

static void reduce_gradients(Emit *e, MainList *t) {
  for (int k = 0; k < e->l->bucket.n; k++) {
    if (t->reduce_handle[k] >= 0) continue;
    t->reduce_handle[k] = t->handles++;
    reduce_bucket(e, k, t->reduce_handle[k]);
  }
  for (int k = 0; k < e->l->bucket.n; k++)
    wait(e, t->reduce_handle[k], "gradients");
}

/* Parameters that several pp ranks hold: the sum of what their uses contributed. */
static void reduce_ties(Emit *e, const Compiled *c) {
  for (int i = 0; i < c->nparam; i++) {
    int at = e->l->of[i];
    if (at < 0 || c->param[i].npp < 2) continue;
    const ProgParam *p = &e->l->param[at];
    int comm = comm_for(e->comms, AXIS_BIT(AXIS_PP), c->param[i].pp, c->param[i].npp);
    start_reduce(e, comm, p->grad, DT_F32, p->count, SCALAR_HANDLE, c->param[i].name);
    wait(e, SCALAR_HANDLE, c->param[i].name);
  }
}

/* The loss is partial over some axes and known to one pp rank only. */
static AxisSet loss_axes(const Units *u) {
  AxisSet s = AXIS_BIT(AXIS_PP);
  for (int a = 0; a < AX_N; a++)
    if (u->loss_place.on[a] == PL_P) s |= ax_mesh((ShardAxis)a);
  return s;
}

/* The squared norm of what this pp rank owns. */
static void measure(Emit *e, const Compiled *c) {
  bool cut = false;
  for (int i = 0; i < e->l->nparam; i++) {
    const ProgParam *p = &e->l->param[i];
    if (!p->owner) continue;
    int to = c->param[p->param].cut >= 0 ? SC_NORM2_TP : SC_NORM2;
    kernel(e, OP_sqnorm, &(OpAttr){.n = to}, c->param[p->param].name);
    in(e, p->grad, DT_F32, p->count);
    scal_in_out(e);
  }
  for (int i = 0; i < c->nparam; i++)
    cut |= c->param[i].cut >= 0;
  if (cut) {
    reduce_scalar(e, AXIS_BIT(AXIS_TP), SC_NORM2_TP, "gradient norm");
    kernel(e, OP_scal_add, &(OpAttr){.n = SC_NORM2, .dim = SC_NORM2_TP}, "gradient norm");
    scal_in_out(e);
  }
}

static void clip(Emit *e, int op, bool whole) {
  OpAttr attr = {.clip = (float)e->plan->opt.clip, .n = whole};
  kernel(e, op, &attr, "clip");
  scal_in_out(e);
}

/* adamw or adamw_try on every parameter. They read only the scalars before SC_ZERO_FROM:
 * the others may be on their way. */
static void step_optimizer(Emit *e, const Compiled *c, int op) {
  const Optimizer *o = &e->plan->opt;
  uint64_t kept = e->l->end;
  for (int i = 0; i < e->l->nparam; i++) {
    const ProgParam *p = &e->l->param[i];
    bool decay = c->param[p->param].decay;
    OpAttr attr = {.beta1 = (float)o->beta1,
                   .beta2 = (float)o->beta2,
                   .eps = (float)o->eps,
                   .weight_decay = decay ? (float)o->weight_decay : 0};
    kernel(e, op, &attr, c->param[p->param].name);
    uint64_t state[4] = {p->master, p->grad, p->m, p->v};
    for (int k = 0; k < 4; k++)
      in(e, state[k], DT_F32, p->count);
    in(e, e->l->scalars, DT_F64, SC_ZERO_FROM);
    out(e, p->master, DT_F32, p->count);
    out(e, p->m, DT_F32, p->count);
    out(e, p->v, DT_F32, p->count);
    out(e, p->work, c->dtype, p->count);
    for (int k = 0; k < 3 && op == OP_adamw_try; k++) {
      out(e, kept, DT_F32, p->count);
      kept += align_up((uint64_t)p->count * 4);
    }
  }
}

/* The copies lie where step_optimizer puts them. */
static void undo_step(Emit *e, const Compiled *c) {
  uint64_t kept = e->l->end;
  for (int i = 0; i < e->l->nparam; i++) {
    const ProgParam *p = &e->l->param[i];
    kernel(e, OP_adamw_undo, NULL, c->param[p->param].name);
    for (int k = 0; k < 3; k++) {
      in(e, kept, DT_F32, p->count);
      kept += align_up((uint64_t)p->count * 4);
    }
    in(e, e->l->scalars, DT_F64, SC_ZERO_FROM);
    out(e, p->master, DT_F32, p->count);
    out(e, p->m, DT_F32, p->count);
    out(e, p->v, DT_F32, p->count);
    out(e, p->work, c->dtype, p->count);
  }
}

static void step_then_validate(Emit *e, const Compiled *c, MainList *t) {
  const struct {
    AxisSet axes;
    int which;
    const char *what;
  } sum[] = {{AXIS_BIT(AXIS_PP), SC_NORM2, "gradient norm"},
             {loss_axes(e->u), SC_LOSS, "loss"}};
  int handle[LEN(sum)];
  bool started[LEN(sum)];
  clip(e, OP_clip_guess, e->mesh->size[AXIS_PP] == 1);
  for (int i = 0; i < LEN(sum); i++) {
    handle[i] = t->handles++;
    started[i] = start_scalar(e, sum[i].axes, sum[i].which, handle[i], sum[i].what);
  }
  step_optimizer(e, c, OP_adamw_try);
  for (int i = 0; i < LEN(sum); i++)
    if (started[i]) wait(e, handle[i], sum[i].what);
  clip(e, OP_clip_coef, true);
  undo_step(e, c);
  step_optimizer(e, c, OP_adamw);
}

static void validate_then_step(Emit *e, const Compiled *c) {
  reduce_scalar(e, AXIS_BIT(AXIS_PP), SC_NORM2, "gradient norm");
  reduce_scalar(e, loss_axes(e->u), SC_LOSS, "loss");
  clip(e, OP_clip_coef, true);
  step_optimizer(e, c, OP_adamw);
}

void update_epilogue(Emit *e, const Compiled *c, MainList *t) {
  reduce_gradients(e, t);
  reduce_ties(e, c);
  measure(e, c);
  if (e->plan->opt.post_validation)
    step_then_validate(e, c, t);
  else
    validate_then_step(e, c);
}
