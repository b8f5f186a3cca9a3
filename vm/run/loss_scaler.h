/* loss_scaler.h - dynamic loss scaling of f16 training (PyTorch: GradScaler).
 *
 * Gradients are computed of the loss times a scale, so that small ones do not underflow
 * in f16, and divided by it where the optimizer reads them. A step whose gradients
 * overflow is skipped: nothing changes but the scale, which shrinks; after many steps
 * without an overflow it grows. In other types the scale is always 1. */
#ifndef WEFT_EXEC_SCALER_H
#define WEFT_EXEC_SCALER_H

#include "vm/plan/plan.h"

typedef struct Scaler {
  LossScale how;
  bool on;
  double scale;     /* for the next step */
  int64_t good;     /* steps without an overflow since the scale changed */
  int64_t patience; /* overflows in a row that are allowed before training fails */
  int64_t skipped;  /* skipped steps since the start */
} Scaler;

Scaler scaler_make(const Plan *p);
/* After a step: its gradients were finite, or the step was skipped. */
void scaler_after(Scaler *s, bool overflow);
/* Whether a step whose gradients overflow at the current scale may be skipped, because a
 * smaller scale may help. */
bool scaler_can_skip(const Scaler *s);

#endif
