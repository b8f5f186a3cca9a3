/* loss_scaler.c - dynamic loss scaling; see loss_scaler.h. */
#include "loss_scaler.h"

#include <math.h>

Scaler scaler_make(const Plan *p) {
  bool on = p->dtype == DT_F16;
  return (Scaler){.how = p->loss_scale,
                  .on = on,
                  .scale = on ? p->loss_scale.init : 1,
                  .patience = p->loss_scale.hysteresis};
}

static void shrink(Scaler *s) {
  s->good = 0;
  if (--s->patience > 0) return;
  s->scale = MAX(s->scale * s->how.backoff, s->how.min);
}

static void grow(Scaler *s) {
  if (++s->good < s->how.interval) return;
  s->good = 0;
  s->patience = s->how.hysteresis;
  if (isfinite((float)(s->scale * s->how.growth))) s->scale *= s->how.growth;
}

void scaler_after(Scaler *s, bool overflow) {
  if (!s->on) return;
  s->skipped += overflow;
  if (overflow)
    shrink(s);
  else
    grow(s);
}

bool scaler_can_skip(const Scaler *s) { return s->on && s->scale > s->how.min; }
