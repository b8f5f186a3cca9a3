/* divergence.cu - divergences of the softmax of two rows of logits, on a slice of the
 * vocabulary, and the gradient of the first row; the formulas are those of
 * kernels/cpu/divergence.c. A block per row, in f64: differences of logits cancel. */
#include "kernels/cuda/kernel.cuh"

enum { IGNORED = -100 };

/* What is to be taken off logits for their log-probabilities, of each row. */
struct Stats {
  const float *mx, *sx, *my, *sy;
  __device__ double x(int64_t r) const { return (double)mx[r] + log((double)sx[2 * r]); }
  __device__ double y(int64_t r) const { return (double)my[r] + log((double)sy[2 * r]); }
};

static __device__ double log_p_to_r(double lp, double lq, double beta) {
  return beta == 1 ? lp - lq : -log1p(beta * expm1(lq - lp));
}
static __device__ double log_q_to_r(double lp, double lq, double beta) {
  return beta == 0 ? lq - lp : -log1p((1 - beta) * expm1(lp - lq));
}
static __device__ double term(double probability, double log_ratio) {
  return probability == 0 ? 0 : probability * log_ratio;
}

template <typename T>
__global__ void __launch_bounds__(BLOCK)
    divergence_rows(const T *x, const T *y, const int32_t *labels, Stats of, float *d,
                    double beta, int64_t all, int64_t n) {
  int64_t r = blockIdx.x;
  double ox = of.x(r), oy = of.y(r), of_p = 0, of_q = 0;
  x += r * all, y += r * all;
  if (labels[r] == IGNORED) n = 0;
  for (int64_t i = threadIdx.x; i < n; i += BLOCK) {
    double lp = (double)load(x[i]) - ox, lq = (double)load(y[i]) - oy;
    of_p += beta == 0 ? 0 : term(exp(lp), log_p_to_r(lp, lq, beta));
    of_q += beta == 1 ? 0 : term(exp(lq), log_q_to_r(lp, lq, beta));
  }
  of_p = block_sum<BLOCK>(of_p);
  of_q = block_sum<BLOCK>(of_q);
  if (threadIdx.x > 0) return;
  d[2 * r] = (float)((beta == 1 ? 1 : 1 - beta) * of_p + (beta == 0 ? 1 : beta) * of_q);
  d[2 * r + 1] = (float)of_p;
}

/* dx may be x: each element is read and written by one thread. */
template <typename T>
__global__ void __launch_bounds__(BLOCK)
    divergence_dx_rows(const T *x, const T *y, const int32_t *labels, Stats of,
                       const float *d, const float *g, T *dx, double beta, int64_t all,
                       int64_t n) {
  int64_t r = blockIdx.x;
  double ox = of.x(r), oy = of.y(r), w = beta == 1 ? 1 : 1 - beta, by = (double)g[r];
  double mean = (double)d[2 * r + 1];
  x += r * all, y += r * all, dx += r * all;
  if (labels[r] == IGNORED) n = 0;
  for (int64_t i = threadIdx.x; i < all; i += BLOCK) {
    double v = 0;
    if (i < n) {
      double lp = (double)load(x[i]) - ox, lq = (double)load(y[i]) - oy, p = exp(lp);
      v = beta == 0 ? p - exp(lq) : w * term(p, log_p_to_r(lp, lq, beta) - mean);
    }
    dx[i] = rounded<T>(i < n ? (float)(v * by) : 0.0f);
  }
}

static Stats stats_of(const KernelArgs *a) {
  return Stats{data<const float>(&a->in[3]), data<const float>(&a->in[4]),
               data<const float>(&a->in[5]), data<const float>(&a->in[6])};
}

static int64_t columns_here(const KernelArgs *a) {
  int64_t v = cuda_last(&a->in[0]),
          n = a->attr->vocab - (a->attr->cut ? a->index * v : 0);
  return n < 0 ? 0 : n < v ? n : v;
}

void cuda_divergence_sums(Device *d, const KernelArgs *a) {
  by_type(a->in[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    LAUNCH((divergence_rows<T>), (unsigned)cuda_rows(&a->in[0]), BLOCK, cuda_stream(d),
           data<const T>(&a->in[0]), data<const T>(&a->in[1]),
           data<const int32_t>(&a->in[2]), stats_of(a), data<float>(&a->out[0]),
           a->attr->beta, cuda_last(&a->in[0]), columns_here(a));
  });
}

void cuda_divergence_dx(Device *d, const KernelArgs *a) {
  by_type(a->in[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    LAUNCH((divergence_dx_rows<T>), (unsigned)cuda_rows(&a->in[0]), BLOCK, cuda_stream(d),
           data<const T>(&a->in[0]), data<const T>(&a->in[1]),
           data<const int32_t>(&a->in[2]), stats_of(a), data<const float>(&a->in[7]),
           data<const float>(&a->in[8]), data<T>(&a->out[0]), a->attr->beta,
           cuda_last(&a->in[0]), columns_here(a));
  });
}

__global__ void __launch_bounds__(BLOCK)
    first_of_two(const float *d, float *y, int64_t n) {
  int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
  if (i < n) y[i] = d[2 * i];
}

void cuda_divergence_rows(Device *d, const KernelArgs *a) {
  int64_t n = cuda_count(&a->out[0]);
  LAUNCH((first_of_two), (unsigned)((n + BLOCK - 1) / BLOCK), BLOCK, cuda_stream(d),
         data<const float>(&a->in[0]), data<float>(&a->out[0]), n);
}
