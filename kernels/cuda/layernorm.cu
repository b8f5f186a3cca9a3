/* layernorm.cu - layernorm over rows and its gradients; stats: (mean, rstd) of a row. And
 * rows less their mean. A row is in the registers of a group of threads (rows.cuh);
 * weights are w + plus. */
#include "columns.cuh"

/* The mean of a row. */
template <typename T, typename G>
__device__ __forceinline__ float mean_of(const RowOf<T, G> &row, int n) {
  float sum = 0;
  row.each([&](int k, int c, int) {
    auto v = row.at(k, c);
    UNROLL
    for (int j = 0; j < RowOf<T, G>::N; j++) sum += load(v.v[j]);
  });
  return G::sum(sum) / (float)n;
}

template <typename T, typename G>
__global__ void __launch_bounds__(BLOCK)
    layernorm_rows(const T *x, const T *w, const T *b, T *y, float *stats, int64_t rows,
                   int n, float eps, float plus) {
  constexpr int N = EACH_OF<T>;
  int64_t r = G::row();
  bool is = r < rows;
  if (!is) r = rows - 1;
  RowOf<T, G> row(x + r * n, n);
  float mean = mean_of(row, n), var = 0;
  row.keep_words();
  row.each([&](int k, int c, int there) {
    Pack<T, N> v = row.at(k, c);
    UNROLL
    for (int j = 0; j < N; j++) {
      float d = j < there ? load(v.v[j]) - mean : 0;
      var += d * d;
    }
  });
  float rstd = 1.0f / sqrtf(G::sum(var) / (float)n + eps);
  if (!is) return;
  row.keep_words();
  if (G::place() == 0) stats[2 * r] = mean, stats[2 * r + 1] = rstd;
  row.each([&](int k, int c, int) {
    Pack<T, N> v = row.at(k, c), by, more;
    get<G::WIDE>(by, w, c, n);
    get<G::WIDE>(more, b, c, n);
    UNROLL
    for (int j = 0; j < N; j++)
      v.v[j] = rounded<T>((load(v.v[j]) - mean) * rstd * (load(by.v[j]) + plus) +
                          load(more.v[j]));
    put<G::WIDE>(y + r * n, c, n, v);
  });
}

void cuda_layernorm(Device *d, const KernelArgs *a) {
  int64_t n = cuda_last(&a->in[0]), rows = cuda_rows(&a->in[0]);
  by_type(a->in[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    bool wide = wide_rows<T>(n, a->in[0].p, a->in[1].p, a->in[2].p, a->out[0].p);
    by_group<T>(n, rows, wide, [&](auto group, unsigned blocks) {
      LAUNCH((layernorm_rows<T, decltype(group)>), blocks, BLOCK, cuda_stream(d),
             data<const T>(&a->in[0]), data<const T>(&a->in[1]), data<const T>(&a->in[2]),
             data<T>(&a->out[0]), data<float>(&a->out[1]), rows, (int)n, a->attr->eps,
             attr_weight_plus(a->attr));
    });
  });
}

/* dx = rstd * (dy*w - mean(dy*w) - xhat * mean(dy*w*xhat)), xhat = (x - mean) * rstd. */
template <typename T, typename G>
__global__ void __launch_bounds__(BLOCK)
    layernorm_dx_rows(const T *x, const T *w, const float *stats, const T *dy, T *dx,
                      int64_t rows, int n, float plus) {
  constexpr int N = EACH_OF<T>;
  int64_t r = G::row();
  bool is = r < rows;
  if (!is) r = rows - 1;
  RowOf<T, G> row(x + r * n, n), grad(dy + r * n, n);
  float mean = stats[2 * r], rstd = stats[2 * r + 1], sum = 0, dot = 0;
  row.each([&](int k, int c, int) {
    Pack<T, N> u = row.at(k, c), v = grad.at(k, c), by;
    get<G::WIDE>(by, w, c, n);
    UNROLL
    for (int j = 0; j < N; j++) { /* past the end dy is 0 */
      float d = load(v.v[j]) * (load(by.v[j]) + plus);
      sum += d;
      dot += d * ((load(u.v[j]) - mean) * rstd);
    }
  });
  sum = G::sum(sum) / (float)n;
  dot = G::sum(dot) / (float)n;
  if (!is) return;
  row.keep_words(), grad.keep_words();
  row.each([&](int k, int c, int) {
    Pack<T, N> u = row.at(k, c), v = grad.at(k, c), by;
    get<G::WIDE>(by, w, c, n);
    UNROLL
    for (int j = 0; j < N; j++)
      v.v[j] = rounded<T>((load(v.v[j]) * (load(by.v[j]) + plus) - sum -
                           (load(u.v[j]) - mean) * rstd * dot) *
                          rstd);
    put<G::WIDE>(dx + r * n, c, n, v);
  });
}

void cuda_layernorm_dx(Device *d, const KernelArgs *a) {
  int64_t n = cuda_last(&a->in[0]), rows = cuda_rows(&a->in[0]);
  by_type(a->in[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    bool wide = wide_rows<T>(n, a->in[0].p, a->in[1].p, a->in[3].p, a->out[0].p);
    by_group<T>(n, rows, wide, [&](auto group, unsigned blocks) {
      LAUNCH((layernorm_dx_rows<T, decltype(group)>), blocks, BLOCK, cuda_stream(d),
             data<const T>(&a->in[0]), data<const T>(&a->in[1]),
             data<const float>(&a->in[2]), data<const T>(&a->in[3]), data<T>(&a->out[0]),
             rows, (int)n, attr_weight_plus(a->attr));
    });
  });
}

template <typename T> struct LayerTerm {
  const T *x, *dy;
  const float *stats;
  template <bool WIDE, int N>
  __device__ void add(int64_t r, int64_t c, int64_t width, float (&to)[2][N]) const {
    Pack<T, N> u, v;
    get<WIDE>(u, x + r * width, c, width);
    get<WIDE>(v, dy + r * width, c, width);
    float mean = stats[2 * r], rstd = stats[2 * r + 1];
    UNROLL
    for (int j = 0; j < N; j++) {
      float d = load(v.v[j]);
      to[0][j] += d * ((load(u.v[j]) - mean) * rstd);
      to[1][j] += d;
    }
  }
};

void cuda_layernorm_dw(Device *d, const KernelArgs *a) {
  int64_t n = cuda_last(&a->in[0]);
  by_type(a->in[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    sum_columns<T, 2>(d, a, cuda_rows(&a->in[0]), n,
                      wide_rows<T>(n, a->in[0].p, a->in[2].p),
                      LayerTerm<T>{data<const T>(&a->in[0]), data<const T>(&a->in[2]),
                                   data<const float>(&a->in[1])});
  });
}

template <typename T, typename G>
__global__ void __launch_bounds__(BLOCK)
    center_rows(const T *x, T *y, int64_t rows, int n) {
  constexpr int N = EACH_OF<T>;
  int64_t r = G::row();
  bool is = r < rows;
  if (!is) r = rows - 1;
  RowOf<T, G> row(x + r * n, n);
  float mean = mean_of(row, n);
  if (!is) return;
  row.keep_words();
  row.each([&](int k, int c, int) {
    Pack<T, N> v = row.at(k, c);
    UNROLL
    for (int j = 0; j < N; j++) v.v[j] = rounded<T>(load(v.v[j]) - mean);
    put<G::WIDE>(y + r * n, c, n, v);
  });
}

void cuda_center(Device *d, const KernelArgs *a) {
  int64_t n = cuda_last(&a->in[0]), rows = cuda_rows(&a->in[0]);
  by_type(a->in[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    bool wide = wide_rows<T>(n, a->in[0].p, a->out[0].p);
    by_group<T>(n, rows, wide, [&](auto group, unsigned blocks) {
      LAUNCH((center_rows<T, decltype(group)>), blocks, BLOCK, cuda_stream(d),
             data<const T>(&a->in[0]), data<T>(&a->out[0]), rows, (int)n);
    });
  });
}
