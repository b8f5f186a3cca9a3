/* row_loss.cu - numbers of f32 for tokens, sequences and pairs of them, and elementwise
 * ops for losses. */
#include "kernels/cuda/kernel.cuh"

enum { IGNORED = -100 };

/* ---- a number from others ---- a thread for each element of the result */

template <typename F> __global__ void __launch_bounds__(BLOCK) each(int64_t n, F f) {
  EACH_ELEMENT(i, n) f(i);
}

template <typename F> static void for_each(Device *d, int64_t n, F f) {
  LAUNCH((each<F>), blocks_for(n), BLOCK, cuda_stream(d), n, f);
}

struct CeLosses {
  const float *s;
  const int32_t *labels;
  float *y;
  __device__ void operator()(int64_t r) const {
    y[r] = labels[r] == IGNORED ? 0.0f
                                : (float)(log((double)s[2 * r]) - (double)s[2 * r + 1]);
  }
};
struct LabelMask {
  const int32_t *labels;
  float *y;
  __device__ void operator()(int64_t r) const { y[r] = labels[r] != IGNORED; }
};
struct Spread {
  const float *dy;
  float *dx;
  int64_t each;
  __device__ void operator()(int64_t i) const { dx[i] = dy[i / each]; }
};
struct SplitPairs {
  const float *x;
  float *first, *second;
  __device__ void operator()(int64_t i) const {
    first[i] = x[2 * i];
    second[i] = x[2 * i + 1];
  }
};
struct JoinPairs {
  const float *first, *second;
  float *x;
  __device__ void operator()(int64_t i) const {
    x[2 * i] = first[i];
    x[2 * i + 1] = second[i];
  }
};

void cuda_ce_losses(Device *d, const KernelArgs *a) {
  for_each(d, cuda_count(&a->out[0]),
           CeLosses{data<const float>(&a->in[0]), data<const int32_t>(&a->in[1]),
                    data<float>(&a->out[0])});
}
void cuda_label_mask(Device *d, const KernelArgs *a) {
  for_each(d, cuda_count(&a->out[0]),
           LabelMask{data<const int32_t>(&a->in[0]), data<float>(&a->out[0])});
}
void cuda_spread(Device *d, const KernelArgs *a) {
  int64_t n = cuda_count(&a->out[0]);
  for_each(d, n,
           Spread{data<const float>(&a->in[0]), data<float>(&a->out[0]),
                  n / cuda_count(&a->in[0])});
}
void cuda_split_pairs(Device *d, const KernelArgs *a) {
  for_each(d, cuda_count(&a->out[0]),
           SplitPairs{data<const float>(&a->in[0]), data<float>(&a->out[0]),
                      data<float>(&a->out[1])});
}
void cuda_join_pairs(Device *d, const KernelArgs *a) {
  for_each(d, cuda_count(&a->in[0]),
           JoinPairs{data<const float>(&a->in[0]), data<const float>(&a->in[1]),
                     data<float>(&a->out[0])});
}

/* ---- sums ---- a block for each row, in f64 */

__global__ void __launch_bounds__(BLOCK)
    sum_each_row(const float *x, float *y, int64_t n) {
  double sum = 0;
  x += blockIdx.x * n;
  for (int64_t i = threadIdx.x; i < n; i += BLOCK) sum += (double)x[i];
  sum = block_sum<BLOCK>(sum);
  if (threadIdx.x == 0) y[blockIdx.x] = (float)sum;
}

static void sum_rows_of(Device *d, const KernelArgs *a, int64_t rows) {
  LAUNCH((sum_each_row), (unsigned)rows, BLOCK, cuda_stream(d),
         data<const float>(&a->in[0]), data<float>(&a->out[0]),
         cuda_count(&a->in[0]) / rows);
}
void cuda_row_sums(Device *d, const KernelArgs *a) {
  sum_rows_of(d, a, cuda_count(&a->out[0]));
}
void cuda_sum_all(Device *d, const KernelArgs *a) { sum_rows_of(d, a, 1); }

/* ---- elements ---- */

ELEMENTS(divide, 2, 0, in[1] == 0 ? 0.0f : in[0] / in[1])
ELEMENTS(divide_db, 3, 0, in[0] == 0 ? 0.0f : -(in[1] * in[2]) / in[0])
ELEMENTS(offset, 1, a->attr->scale, in[0] + k)
ELEMENTS(exponential, 1, 0, expf(in[0]))
/* Of large |x| neither overflows nor loses what is left of 1. */
ELEMENTS(log_sigmoid, 1, 0, (in[0] < 0 ? in[0] : 0.0f) - log1pf(expf(-fabsf(in[0]))))
ELEMENTS(log_sigmoid_dx, 2, 0, in[1] / (1.0f + expf(in[0])))
