/* orthogonal.h - the matrix that the step of Muon subtracts, once more, by products of
 * the host: weft verify asks what follows from the average of each side. It shares no
 * code with vm/lower/matrix_step.c but the products. */
#ifndef WEFT_ORTHOGONAL_H
#define WEFT_ORTHOGONAL_H

#include "vm/device/device.h"
#include "vm/plan/plan.h"

typedef struct Orthogonal {
  Device device;
  const weft_alloc *alloc;
  int64_t largest; /* elements of a matrix */
  float *x[2];     /* each of as many */
  float *y[3];     /* likewise: a square of the shorter side is no larger */
} Orthogonal;

weft_status orthogonal_open(Orthogonal *t, const weft_alloc *a, int threads,
                            int64_t largest, weft_error *e);
/* `m` (rows, cols) becomes as near to orthogonal as the iteration of the optimizer brings
 * it, in f32. */
weft_status orthogonal(Orthogonal *t, const Optimizer *o, int64_t rows, int64_t cols,
                       float *m, weft_error *e);
void orthogonal_close(Orthogonal *t);

#endif
