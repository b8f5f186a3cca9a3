/* step_undo.c - puts back what the _try of an optimizer has kept: p, which goes to its
 * copy in the compute type, too, and the states. */
#include "step_kernels.h"

INLINE void step_undo(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  const KTensor *p = &a->in[0], *copy = &a->out[1];
  for (int k = 0; k + 1 < a->nin; k++)
    copy_elements(&a->out[k ? k + 1 : 0], &a->in[k], lo, hi);
  if (copy->p == a->out[0].p) return;
  for (int64_t i = lo; i < hi; i++) put(copy->p, t, i, get(p->p, p->dtype, i));
}
BY_TYPE(step_undo, out[1])

void cpu_step_undo(Device *dev, const KernelArgs *a) {
  if (scalars_of(a)[SC_UNDO] == 0) return;
  each_part(dev, a, count_of(&a->in[0]), ELEMENT_GRAIN, step_undo_part);
}
