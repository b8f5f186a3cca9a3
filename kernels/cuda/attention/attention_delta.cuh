/* attention_delta.cuh - what the gradients of attention take off dP. */
#ifndef WEFT_CUDA_ATTENTION_DELTA_H
#define WEFT_CUDA_ATTENTION_DELTA_H

#include "kernels/cuda/kernel.cuh"

/* delta(n) = sum over d of o(n,d) * d_o(n,d); n: queries by heads. */
void attention_deltas(Device *dev, const KTensor *o, const KTensor *d_o, float *delta,
                      int64_t n, int d);

#endif
