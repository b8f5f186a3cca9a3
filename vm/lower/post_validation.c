/* post_validation.c - a step that does not wait for the sums over the other pp ranks: a
 * rank steps with the clip that its own part of the norm allows and keeps what it
 * overwrites. When the sums are there, a step that was wrong is taken back, and made
 * again with the right clip unless the step is to be skipped. Either way the result has
 * the same bits. */
#include "update.h"

/* What the optimizer overwrites: value and both moments, as stretches of the row. */
enum { KEPT = 3 };

static int64_t row_length(const Regions *s) {
  const Stored *last = s->nparam ? &s->param[s->nparam - 1] : NULL;
  return last ? last->at + last->count : 0;
}

static uint64_t kept_stride(const Regions *s) {
  return align_up((uint64_t)row_length(s) * 4);
}

uint64_t post_validation_bytes(const Regions *s) { return KEPT * kept_stride(s); }

static uint64_t kept_at(const Emit *e, const Stretch *r, int k) {
  return e->l->end + (uint64_t)k * kept_stride(&e->l->regions) + (uint64_t)r->at * 4;
}

static void step_keeping(Emit *e, const Compiled *c) {
  for (Stretch r = {0}; update_stretch(e, c, &r);) {
    update_step(e, c, &r, OP_adamw_try);
    for (int k = 0; k < KEPT; k++)
      emit_out(e, kept_at(e, &r, k), DT_F32, r.count);
    emit_work(e);
  }
}

static void take_back(Emit *e, const Compiled *c) {
  for (Stretch r = {0}; update_stretch(e, c, &r);) {
    emit_kernel(e, OP_adamw_undo, NULL, update_name(e, c, &r));
    for (int k = 0; k < KEPT; k++)
      emit_in(e, kept_at(e, &r, k), DT_F32, r.count);
    emit_in(e, e->l->scalars, DT_F64, SC_ZERO_FROM);
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
  update_all(e, c);
}
