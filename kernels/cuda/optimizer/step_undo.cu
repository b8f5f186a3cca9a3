/* step_undo.cu - puts back what the _try of an optimizer has kept; see
 * kernels/cpu/optimizer/step_undo.c. */
#include "kernels/cuda/kernel.cuh"
#include "vm/program/program.h"

enum { KEPT = KERNEL_MAX_IN - 1 };

/* Tensors that are copied as bits: bit k of `half` says that number k has 16. */
struct Undo {
  const void *from[KEPT];
  void *to[KEPT];
  int kept;
  unsigned half;
};

template <typename P, typename T>
__global__ void __launch_bounds__(BLOCK)
    undo_elements(Undo u, T *copy, const double *scal, int64_t n) {
  if (scal[SC_UNDO] == 0) return;
  bool copies = (const void *)copy != (const void *)u.to[0];
  EACH_ELEMENT(i, n) {
    for (int k = 0; k < u.kept; k++)
      if (u.half >> k & 1)
        ((uint16_t *)u.to[k])[i] = ((const uint16_t *)u.from[k])[i];
      else
        ((uint32_t *)u.to[k])[i] = ((const uint32_t *)u.from[k])[i];
    if (copies) copy[i] = rounded<T>(load(((const P *)u.from[0])[i]));
  }
}

void cuda_step_undo(Device *d, const KernelArgs *a) {
  int64_t n = cuda_count(&a->in[0]);
  Undo u = {};
  u.kept = a->nin - 1;
  for (int k = 0; k < u.kept; k++) {
    const KTensor *to = &a->out[k ? k + 1 : 0];
    assert(to->dtype == a->in[k].dtype);
    u.from[k] = a->in[k].p, u.to[k] = to->p;
    if (to->dtype == DT_BF16) u.half |= 1u << k;
  }
  by_type(a->in[0].dtype, [&](auto *was) {
    by_type(a->out[1].dtype, [&](auto *p) {
      typedef TYPE_OF(was) P;
      typedef TYPE_OF(p) T;
      LAUNCH((undo_elements<P, T>), blocks_for(n), BLOCK, cuda_stream(d), u,
             data<T>(&a->out[1]), data<const double>(&a->in[u.kept]), n);
    });
  });
}
