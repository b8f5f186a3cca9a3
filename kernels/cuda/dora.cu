/* dora.cu - the norms that features of a linear with an adapter have, features divided by
 * them and times their magnitude, and the gradient of these. */
#include "columns.cuh"

/* A block for each row of w + scale * b @ a as (O,I); neighbouring threads have
 * neighbouring columns. */
template <typename T>
__global__ void __launch_bounds__(BLOCK)
    row_sqnorms(const T *w, const T *down, const T *up, float *to, int64_t I,
                int64_t rank, int64_t row, int64_t column, float scale) {
  int64_t o = blockIdx.x;
  float sum = 0;
  for (int64_t i = threadIdx.x; i < I; i += BLOCK) {
    float v = 0;
    for (int64_t r = 0; r < rank; r++)
      v += scale * load(up[o * rank + r]) * load(down[r * I + i]);
    v += load(w[o * row + i * column]);
    sum += v * v;
  }
  sum = block_sum<BLOCK>(sum);
  if (threadIdx.x == 0) to[o] = sum;
}

void cuda_feature_sqnorms(Device *d, const KernelArgs *a) {
  int64_t rank = a->in[1].dim[0], I = a->in[1].dim[1], O = a->in[2].dim[0];
  bool turned = a->attr->layout != 0;
  by_type(a->in[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    LAUNCH((row_sqnorms<T>), (unsigned)O, BLOCK, cuda_stream(d), data<const T>(&a->in[0]),
           data<const T>(&a->in[1]), data<const T>(&a->in[2]), data<float>(&a->out[0]), I,
           rank, turned ? 1 : I, turned ? O : 1, a->attr->scale);
  });
}

template <typename T>
__global__ void __launch_bounds__(BLOCK)
    scale_features(const T *x, const T *m, const float *norm2, T *y, int64_t n,
                   int64_t width) {
  EACH_ELEMENT(i, n) {
    int64_t c = i % width;
    y[i] = rounded<T>(load(x[i]) * (load(m[c]) / sqrtf(norm2[c])));
  }
}

void cuda_feature_scale(Device *d, const KernelArgs *a) {
  int64_t n = cuda_count(&a->in[0]);
  by_type(a->in[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    LAUNCH((scale_features<T>), blocks_for(n), BLOCK, cuda_stream(d),
           data<const T>(&a->in[0]), data<const T>(&a->in[1]),
           data<const float>(&a->in[2]), data<T>(&a->out[0]), n, cuda_last(&a->in[0]));
  });
}

template <typename T> struct ScaleTerm {
  const T *x, *dy;
  const float *norm2;
  template <bool WIDE, int N>
  __device__ void add(int64_t r, int64_t c, int64_t width, float (&to)[1][N]) const {
    Pack<T, N> u, v;
    get<WIDE>(u, x + r * width, c, width);
    get<WIDE>(v, dy + r * width, c, width);
    for (int j = 0; j < N; j++)
      if (c + j < width) to[0][j] += load(u.v[j]) * load(v.v[j]) / sqrtf(norm2[c + j]);
  }
};

void cuda_feature_scale_dw(Device *d, const KernelArgs *a) {
  int64_t width = cuda_last(&a->in[0]);
  by_type(a->in[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    sum_columns<T, 1>(d, a, cuda_rows(&a->in[0]), width,
                      wide_rows<T>(width, a->in[0].p, a->in[2].p),
                      ScaleTerm<T>{data<const T>(&a->in[0]), data<const T>(&a->in[2]),
                                   data<const float>(&a->in[1])});
  });
}
