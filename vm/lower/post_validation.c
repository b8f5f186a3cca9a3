/* post_validation.c - the optimizer's post-validation (zero bubble, arXiv:2401.10241): a
 * rank steps with the clip factor that its own part of the norm allows, and keeps a copy
 * of what it overwrites. When the norm over all pp ranks is known, a wrong step is
 * undone, and repeated with the right factor unless it is to be skipped. The result has
 * the same bits either way. */
#include "optimizer_step.h"

#include "vm/plan/optimizer.h"

/* Number of tensors that the optimizer overwrites: master value and states. */
static int kept(const Optimizer *o) { return 1 + optimizer_row(o)->states; }

/* The type of tensor k of them: of the master value, then of the states. */
static DType kept_type(const Plan *p, int k) { return k ? p->opt.state : p->master; }

/* A copy of tensor k, in the shape of a region of the first optimizer state. There may be
 * several such regions, sharded in different ways; each has a place for its copies. */
static Region copy_of(const Plan *p, const Region *state, int k, uint64_t off) {
  Region copy = *state;
  copy.dtype = kept_type(p, k), copy.off = off;
  return copy;
}

/* Bytes of the copies of the first n tensors. */
static uint64_t copy_bytes(const Plan *p, const Region *state, int n) {
  uint64_t bytes = 0;
  for (int k = 0; k < n; k++) {
    Region copy = copy_of(p, state, k, 0);
    bytes += align_up(region_bytes(&copy));
  }
  return bytes;
}

/* Bytes of the copies of the first n regions. */
static uint64_t kept_before(const Plan *p, const Regions *s, int n) {
  uint64_t bytes = 0;
  for (int i = 0; i < n; i++)
    if (s->region[i].kind == REGION_STATE1)
      bytes += copy_bytes(p, &s->region[i], kept(&p->opt));
  return bytes;
}

uint64_t post_validation_bytes(const Plan *p, const Regions *s) {
  return kept_before(p, s, s->nregion);
}

static Region kept_in(const Emit *e, const Stretch *r, int k) {
  const Regions *s = &e->l->regions;
  const Region *m = regions_find(s, REGION_STATE1, &s->param[r->first]);
  uint64_t first = e->l->end + kept_before(e->plan, s, (int)(m - s->region));
  return copy_of(e->plan, m, k, first + copy_bytes(e->plan, m, k));
}

static void step_keeping(Emit *e, const Compiled *c) {
  for (Stretch r = {0}; update_stretch(e, c, &r);) {
    if (update_balances(c, e, &r)) continue;
    update_step(e, c, &r, optimizer_row(&e->plan->opt)->attempt);
    for (int k = 0; k < kept(&e->plan->opt); k++) {
      Region copy = kept_in(e, &r, k);
      emit_out(e, region_extent(&copy, &r), (DType)copy.dtype);
    }
    emit_work(e);
  }
}

static void take_back(Emit *e, const Compiled *c) {
  for (Stretch r = {0}; update_stretch(e, c, &r);) {
    if (update_balances(c, e, &r)) continue;
    emit_kernel(e, OP_step_undo, NULL, update_name(e, c, &r));
    for (int k = 0; k < kept(&e->plan->opt); k++) {
      Region copy = kept_in(e, &r, k);
      emit_in(e, region_extent(&copy, &r), (DType)copy.dtype);
    }
    emit_in(e, (Extent){.off = e->l->scalars, .n = SC_ZERO_FROM}, DT_F64);
    update_results(e, &r, true);
    emit_work(e);
  }
}

void post_validation(Emit *e, const Compiled *c, MainList *t) {
  const struct {
    AxisSet axes;
    int which;
    const char *what;
  } sum[] = {{AXIS_BIT(AXIS_PP), SC_NORM2, "gradient norm"},
             {update_loss_axes(e->u), SC_LOSS, "loss"}};
  int handle[LEN(sum)];
  bool started[LEN(sum)];
  update_clip(e, OP_clip_guess, e->mesh->size[AXIS_PP] == 1);
  for (int i = 0; i < LEN(sum); i++) {
    handle[i] = t->handles++;
    started[i] = emit_scalar_sum(e, sum[i].axes, sum[i].which, handle[i], sum[i].what);
  }
  step_keeping(e, c);
  for (int i = 0; i < LEN(sum); i++)
    if (started[i]) emit_wait(e, handle[i], sum[i].what);
  update_clip(e, OP_clip_coef, true);
  take_back(e, c);
  update_last_step(e, c, t);
}
