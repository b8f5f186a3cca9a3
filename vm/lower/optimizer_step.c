/* optimizer_step.c - what a program does after the last action of a step: once all is
 * reduced (step_reductions.c), clip, step the optimizer and gather what it stepped in
 * shards. It runs over contiguous ranges of the flat parameter buffer (region.h). */
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

Extent step_scalars(const Emit *e, int64_t n) {
  return (Extent){.off = e->l->scalars, .n = n};
}

void emit_scalars(Emit *e) {
  emit_in(e, step_scalars(e, SC_N), DT_F64);
  emit_out(e, step_scalars(e, SC_N), DT_F64);
}

void emit_wait(Emit *e, int handle, const char *what) {
  emit_instr(e, I_WAIT, what)->handle = handle;
}

/* ---- ranges of parameters ---- */

const char *update_name(Emit *e, const Compiled *c, const Stretch *r) {
  if (r->n > 1) return arena_printf(e->scratch, "%d parameters", r->n);
  return c->param[e->l->regions.param[r->first].param].name;
}

bool update_balances(const Compiled *c, const Emit *e, const Stretch *r) {
  return c->param[e->l->regions.param[r->first].param].share > 0;
}

const Region *update_gradients(const Emit *e, const Stretch *r) {
  const Regions *s = &e->l->regions;
  return regions_find(s, REGION_GRAD, &s->param[r->first]);
}

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

/* ---- optimizer ---- */

void update_clip(Emit *e, int op, bool whole) {
  OpAttr attr = {.clip = e->plan->opt.clip, .n = whole};
  emit_kernel(e, op, &attr, "clip");
  emit_scalars(e);
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
  const Region *g = update_gradients(e, r), *value = regions_value(s, p);
  emit_in(e, region_extent(value, r), (DType)value->dtype);
  emit_in(e, e->l->offloads ? as_long_as(r, e->l->host_grad) : region_extent(g, r),
          (DType)g->dtype);
  for (int k = 0; k < optimizer_row(o)->states; k++) emit_state(e, r, k, false);
  Extent scalars = step_scalars(e, SC_ZERO_FROM);
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
  emit_in(e, region_extent(update_gradients(e, r), r), DT_F32);
  emit_in(e, step_scalars(e, SC_ZERO_FROM), DT_F64);
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
  const Region *g = update_gradients(e, r);
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
    emit_copy(e, step_scalars(e, SC_ZERO_FROM), to, DT_F64, "step");
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
  emit_scalar_summed(e, AXIS_BIT(AXIS_PP), SC_NORM2, "gradient norm");
  update_loss(e);
  update_clip(e, OP_clip_coef, true);
  update_last_step(e, c, t);
}

void update_epilogue(Emit *e, const Compiled *c, MainList *t) {
  step_reductions(e, c, t);
  if (e->plan->opt.post_validation)
    post_validation(e, c, t);
  else
    validate_then_step(e, c, t);
}
