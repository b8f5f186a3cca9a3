/* sinkhorn.cu - factors of experts by Sinkhorn's iterations, and their sum with logits.
 * One block has a group of sequences: in each iteration its warps find the factors of
 * rows, then all threads the sum of one column after the other. */
#include "kernels/cuda/rows.cuh"

struct Balance {
  int64_t rows, experts;
};

/* The factor of each row: it makes the sum of the row 1 / rows. */
static __device__ void row_factors(const Balance &k, const float *l, const double *by,
                                   double *factor) {
  for (int64_t r = threadIdx.x / WARP; r < k.rows; r += BLOCK / WARP) {
    double sum = 0;
    for (int64_t i = threadIdx.x % WARP; i < k.experts; i += WARP)
      sum += by[i] * (double)expf(l[r * k.experts + i]);
    sum = lanes_sum(sum);
    if (threadIdx.x % WARP == 0) factor[r] = 1 / ((double)k.rows * (sum + SINKHORN_EPS));
  }
  __syncthreads();
}

/* The factors of columns, which make their sums 1 / experts; how far they moved in the
 * mean, in all threads. */
static __device__ double column_factors(const Balance &k, const float *l,
                                        const double *factor, double *by) {
  double moved = 0;
  for (int64_t i = 0; i < k.experts; i++) {
    double sum = 0;
    for (int64_t r = threadIdx.x; r < k.rows; r += BLOCK)
      sum += factor[r] * (double)expf(l[r * k.experts + i]);
    sum = block_sum<BLOCK>(sum);
    double next = 1 / ((double)k.experts * (sum + SINKHORN_EPS)), was = by[i];
    __syncthreads();
    if (threadIdx.x == 0) by[i] = next;
    moved += fabs(next - was) / (double)k.experts;
  }
  __syncthreads();
  return moved;
}

__global__ void __launch_bounds__(BLOCK)
    sinkhorn_group(const float *l, float *out, double *factors, Balance k) {
  __shared__ double by[EXPERTS_MAX];
  double *factor = factors + blockIdx.x * k.rows, moved = INFINITY;
  l += blockIdx.x * k.rows * k.experts, out += blockIdx.x * k.experts;
  for (int64_t i = threadIdx.x; i < k.experts; i += BLOCK) by[i] = 1;
  __syncthreads();
  for (int step = 0; step < SINKHORN_MOST && moved > SINKHORN_TOLERANCE; step++) {
    row_factors(k, l, by, factor);
    moved = column_factors(k, l, factor, by);
  }
  for (int64_t i = threadIdx.x; i < k.experts; i += BLOCK) out[i] = (float)log(by[i]);
}

/* A program that does not train: every factor is 1. */
__global__ void __launch_bounds__(BLOCK) sinkhorn_none(float *out, int64_t n) {
  EACH_ELEMENT(i, n) out[i] = 0;
}

void cuda_sinkhorn(Device *d, const KernelArgs *a) {
  int64_t n = cuda_count(&a->out[0]), groups = cuda_rows(&a->out[0]);
  if (a->attr->n == 0) {
    LAUNCH((sinkhorn_none), blocks_for(n), BLOCK, cuda_stream(d), data<float>(&a->out[0]),
           n);
    return;
  }
  Balance k = {cuda_rows(&a->in[0]) / groups, cuda_last(&a->in[0])};
  LAUNCH((sinkhorn_group), (unsigned)groups, BLOCK, cuda_stream(d),
         data<const float>(&a->in[0]), data<float>(&a->out[0]), (double *)a->work, k);
}

__global__ void __launch_bounds__(BLOCK)
    add_sequence_bias(const float *l, const float *b, float *y, int64_t n, Balance k) {
  EACH_ELEMENT(i, n)
    y[i] = l[i] + b[i / (k.rows * k.experts) * k.experts + i % k.experts];
}

void cuda_sequence_bias(Device *d, const KernelArgs *a) {
  int64_t n = cuda_count(&a->in[0]);
  Balance k = {cuda_rows(&a->in[0]) / cuda_rows(&a->in[1]), cuda_last(&a->in[0])};
  LAUNCH((add_sequence_bias), blocks_for(n), BLOCK, cuda_stream(d),
         data<const float>(&a->in[0]), data<const float>(&a->in[1]),
         data<float>(&a->out[0]), n, k);
}
