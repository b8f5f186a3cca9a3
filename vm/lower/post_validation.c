/* post_validation.c - the optimizer's post-validation (zero bubble, arXiv:2401.10241): a
 * rank steps with the clip factor that its own part of the norm allows, and keeps a copy
 * of what it overwrites. When the norm over all pp ranks is known, a wrong step is
 * undone, and repeated with the right factor unless it is to be skipped. The result has
 * the same bits either way. */
#include "optimizer_step.h"

#include "vm/plan/optimizer.h"

/* Number of tensors that the optimizer overwrites: master value and states. */
static int kept(const Optimizer *o) { return 1 + optimizer_info[o->kind].states; }

/* An f32 copy of a region of the first optimizer state. There may be several such
 * regions, sharded in different ways; each has a place for its copies. */
static Region copies_of(const Region *state, uint64_t off) {
  Region copies = *state;
  copies.dtype = DT_F32, copies.off = off;
  return copies;
}

static uint64_t copy_bytes(const Region *state) {
  Region copies = copies_of(state, 0);
  return align_up(region_bytes(&copies));
}

/* Bytes of the copies of the first n regions. */
static uint64_t kept_before(const Optimizer *o, const Regions *s, int n) {
  uint64_t bytes = 0;
  for (int i = 0; i < n; i++)
    if (s->region[i].kind == REGION_STATE1)
      bytes += (uint64_t)kept(o) * copy_bytes(&s->region[i]);
  return bytes;
}

uint64_t post_validation_bytes(const Optimizer *o, const Regions *s) {
  return kept_before(o, s, s->nregion);
}

static Extent kept_at(const Emit *e, const Stretch *r, int k) {
  const Regions *s = &e->l->regions;
  const Region *m = regions_find(s, REGION_STATE1, &s->param[r->first]);
  uint64_t first = e->l->end + kept_before(&e->plan->opt, s, (int)(m - s->region));
  Region copies = copies_of(m, first + (uint64_t)k * copy_bytes(m));
  return region_extent(&copies, r);
}

static void step_keeping(Emit *e, const Compiled *c) {
  for (Stretch r = {0}; update_stretch(e, c, &r);) {
    if (update_balances(c, e, &r)) continue;
    update_step(e, c, &r, optimizer_info[e->plan->opt.kind].attempt);
    for (int k = 0; k < kept(&e->plan->opt); k++) emit_out(e, kept_at(e, &r, k), DT_F32);
    emit_work(e);
  }
}

static void take_back(Emit *e, const Compiled *c) {
  for (Stretch r = {0}; update_stretch(e, c, &r);) {
    if (update_balances(c, e, &r)) continue;
    emit_kernel(e, OP_step_undo, NULL, update_name(e, c, &r));
    for (int k = 0; k < kept(&e->plan->opt); k++) emit_in(e, kept_at(e, &r, k), DT_F32);
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
