/* causal_conv.cu - the convolution of each feature over the tokens up to its own, and its
 * gradients. A thread has a feature of a row: neighbours have neighbouring features, and
 * the few rows that each reads are in the cache. */
#include "kernels/cuda/columns.cuh"

/* Where the document of a row begins, in its sequence of T tokens. */
static __device__ __forceinline__ int64_t begins(const int32_t *starts, int64_t r) {
  return starts ? starts[r] : 0;
}

template <typename T>
__global__ void __launch_bounds__(BLOCK)
    conv_rows(const T *x, const T *w, const int32_t *starts, T *y, int64_t n, int64_t len,
              int64_t width, int K) {
  EACH_ELEMENT(i, n) {
    int64_t r = i / width, c = i % width, seen = r % len - begins(starts, r) + 1;
    float sum = 0;
    for (int k = 0; k < K && k < seen; k++)
      sum += load(w[c * K + K - 1 - k]) * load(x[i - k * width]);
    y[i] = rounded<T>(sum);
  }
}

/* A token has been seen by those up to K - 1 further on that are of its document. */
template <typename T>
__global__ void __launch_bounds__(BLOCK)
    conv_rows_dx(const T *w, const T *dy, const int32_t *starts, T *dx, int64_t n,
                 int64_t len, int64_t width, int K) {
  EACH_ELEMENT(i, n) {
    int64_t r = i / width, c = i % width, at = r % len;
    float sum = 0;
    for (int k = 0; k < K && at + k < len && begins(starts, r + k) <= at; k++)
      sum += load(w[c * K + K - 1 - k]) * load(dy[i + k * width]);
    dx[i] = rounded<T>(sum);
  }
}

void cuda_causal_conv(Device *d, const KernelArgs *a) {
  int64_t n = cuda_count(&a->in[0]);
  by_type(a->in[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    LAUNCH((conv_rows<T>), blocks_for(n), BLOCK, cuda_stream(d), data<const T>(&a->in[0]),
           data<const T>(&a->in[1]),
           a->nin > 2 ? data<const int32_t>(&a->in[2]) : nullptr, data<T>(&a->out[0]), n,
           a->in[0].dim[1], cuda_last(&a->in[0]), (int)cuda_last(&a->in[1]));
  });
}

void cuda_causal_conv_dx(Device *d, const KernelArgs *a) {
  int64_t n = cuda_count(&a->in[1]);
  by_type(a->in[1].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    LAUNCH((conv_rows_dx<T>), blocks_for(n), BLOCK, cuda_stream(d),
           data<const T>(&a->in[0]), data<const T>(&a->in[1]),
           a->nin > 2 ? data<const int32_t>(&a->in[2]) : nullptr, data<T>(&a->out[0]), n,
           a->in[1].dim[1], cuda_last(&a->in[1]), (int)cuda_last(&a->in[0]));
  });
}

/* Columns are the elements of w, K for each feature. */
template <typename T> struct ConvTerm {
  const T *x, *dy;
  const int32_t *starts;
  int64_t len, features;
  int K;
  template <bool WIDE, int N>
  __device__ void add(int64_t r, int64_t c, int64_t width, float (&to)[1][N]) const {
    int64_t seen = r % len - begins(starts, r) + 1;
    UNROLL
    for (int j = 0; j < N; j++) {
      int64_t f = (c + j) / K, k = K - 1 - (c + j) % K;
      if (c + j < width && k < seen)
        to[0][j] += load(x[(r - k) * features + f]) * load(dy[r * features + f]);
    }
  }
};

void cuda_causal_conv_dw(Device *d, const KernelArgs *a) {
  by_type(a->in[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    sum_columns<T, 1>(d, a, cuda_rows(&a->in[0]), cuda_count(&a->out[0]), false,
                      ConvTerm<T>{data<const T>(&a->in[0]), data<const T>(&a->in[1]),
                                  a->nin > 2 ? data<const int32_t>(&a->in[2]) : nullptr,
                                  a->in[0].dim[1], cuda_last(&a->in[0]),
                                  (int)cuda_last(&a->out[0])});
  });
}
