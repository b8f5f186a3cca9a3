/* post_validation.c - a step that does not wait for the sums over the other pp ranks: a
 * rank steps with the clip that its own part of the norm allows and keeps what it
 * overwrites. When the sums are there, a step that was wrong is taken back, and made
 * again with the right clip unless the step is to be skipped. Either way the result has
 * the same bits. */
#include "update.h"

/* What the optimizer overwrites: value and both moments, as stretches of the row. */
enum { KEPT = 3 };

static uint64_t kept_stride(const Regions *s) {
  const Region *m = s->nparam ? regions_find(s, REGION_M, &s->param[0]) : NULL;
  return m ? align_up(region_bytes(m)) : 0;
}

uint64_t post_validation_bytes(const Regions *s) { return KEPT * kept_stride(s); }

/* As in the region of moments, of which there is one. */
static Extent kept_at(const Emit *e, const Stretch *r, int k) {
  const Regions *s = &e->l->regions;
  const Region *m = regions_find(s, REGION_M, &s->param[r->first]);
  Extent p = region_extent(m, r);
  p.off += e->l->end + (uint64_t)k * kept_stride(s) - m->off;
  return p;
}

static void step_keeping(Emit *e, const Compiled *c) {
  for (Stretch r = {0}; update_stretch(e, c, &r);) {
    if (update_balances(c, e, &r)) continue;
    update_step(e, c, &r, OP_adamw_try);
    for (int k = 0; k < KEPT; k++)
      emit_out(e, kept_at(e, &r, k), DT_F32);
    emit_work(e);
  }
}

static void take_back(Emit *e, const Compiled *c) {
  for (Stretch r = {0}; update_stretch(e, c, &r);) {
    if (update_balances(c, e, &r)) continue;
    emit_kernel(e, OP_adamw_undo, NULL, update_name(e, c, &r));
    for (int k = 0; k < KEPT; k++)
      emit_in(e, kept_at(e, &r, k), DT_F32);
    emit_in(e, (Extent){.off = e->l->scalars, .n = SC_ZERO_FROM}, DT_F64);
    update_results(e, &r);
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
