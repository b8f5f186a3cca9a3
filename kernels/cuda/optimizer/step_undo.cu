/* step_undo.cu - puts back what the _try of an optimizer has kept; see
 * kernels/cpu/optimizer/step_undo.c. */
#include "kernels/cuda/kernel.cuh"
#include "vm/program/program.h"

enum { KEPT = KERNEL_MAX_IN - 1 };

template <typename T>
__global__ void __launch_bounds__(BLOCK)
    undo_elements(Pointers<const float, KEPT> from, Pointers<float, KEPT> to, int kept,
                  T *copy, const double *scal, int64_t n) {
  if (scal[SC_UNDO] == 0) return;
  bool copies = (const void *)copy != (const void *)to.p[0];
  int64_t by = (int64_t)gridDim.x * blockDim.x;
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += by) {
    for (int k = 0; k < kept; k++) to.p[k][i] = from.p[k][i];
    if (copies) copy[i] = rounded<T>(from.p[0][i]);
  }
}

void cuda_step_undo(Device *d, const KernelArgs *a) {
  int64_t n = cuda_count(&a->in[0]);
  int kept = a->nin - 1;
  Pointers<const float, KEPT> from;
  Pointers<float, KEPT> to;
  for (int k = 0; k < kept; k++) {
    from.p[k] = data<const float>(&a->in[k]);
    to.p[k] = data<float>(&a->out[k ? k + 1 : 0]);
  }
  by_type(a->out[1].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    LAUNCH((undo_elements<T>), blocks_for(n), BLOCK, cuda_stream(d), from, to, kept,
           data<T>(&a->out[1]), data<const double>(&a->in[kept]), n);
  });
}
