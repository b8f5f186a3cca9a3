/* ce.cu - cross entropy in steps over a slice of the vocabulary: maximum, sum of
 * exponentials, loss, gradient. Columns from attr.vocab on are padding. A block per
 * row, which it reads by vectors (rows.cuh). */
#include "kernels/cuda/fast_math.cuh"
#include "kernels/cuda/rows.cuh"

enum { IGNORED = -100 };

/* The slice: global index of local column 0; local columns; those without padding. */
struct Columns {
  int64_t first, all, n;
};

static Columns columns_of(const KernelArgs *a, int64_t all) {
  int64_t first = a->attr->cut ? a->index * all : 0;
  int64_t n = a->attr->vocab - first;
  return Columns{first, all, n < 0 ? 0 : n < all ? n : all};
}
static Columns slice_of(const KernelArgs *a) {
  return columns_of(a, cuda_last(&a->in[0]));
}

/* f(elements as f32) for each vector of the thread, a few of which are on their way
 * together; those without a token are -inf. */
template <bool WIDE, typename T, typename F>
__device__ __forceinline__ void each_logits(const T *l, const Columns &c, F f) {
  constexpr int N = EACH_OF<T>, AHEAD = 4, STEP = BLOCK * N;
  for (int64_t i0 = (int64_t)threadIdx.x * N; i0 < c.n; i0 += AHEAD * STEP) {
    Pack<T, N> v[AHEAD];
    UNROLL
    for (int a = 0; a < AHEAD; a++)
      if (i0 + a * STEP < c.n) get<WIDE>(v[a], l, i0 + a * STEP, c.all);
    UNROLL
    for (int a = 0; a < AHEAD; a++) {
      int64_t left = c.n - (i0 + a * STEP);
      if (left <= 0) continue;
      float x[N];
      UNROLL
      for (int j = 0; j < N; j++) x[j] = load(v[a].v[j]);
      if (left < N) {
        UNROLL
        for (int j = 0; j < N; j++)
          if (j >= left) x[j] = -INFINITY;
      }
      f(x);
    }
  }
}

/* One element, as part of its vector. */
template <bool WIDE, typename T>
__device__ __forceinline__ float logit_at(const T *l, int64_t i, int64_t n) {
  constexpr int N = EACH_OF<T>;
  if (!WIDE) return load(l[i]);
  Pack<T, N> v;
  float x = 0;
  get<WIDE>(v, l, i / N * N, n);
  UNROLL
  for (int j = 0; j < N; j++)
    if (i % N == j) x = load(v.v[j]);
  return x;
}

template <bool WIDE, typename T>
__global__ void __launch_bounds__(BLOCK) max_rows(const T *l, float *m, Columns c) {
  constexpr int N = EACH_OF<T>;
  float most = -INFINITY;
  each_logits<WIDE>(l + blockIdx.x * c.all, c, [&](const float(&x)[N]) {
    UNROLL
    for (int j = 0; j < N; j++) most = x[j] > most ? x[j] : most;
  });
  most = block_sum<BLOCK>(most, true);
  if (threadIdx.x == 0) m[blockIdx.x] = most;
}

template <bool WIDE, typename T>
__global__ void __launch_bounds__(BLOCK)
    sum_rows(const T *l, const int32_t *labels, const float *m, float *s, Columns c) {
  constexpr int N = EACH_OF<T>;
  int64_t r = blockIdx.x, label = labels[r] - c.first;
  l += r * c.all;
  float most = m[r], sum = 0, base = most == -INFINITY ? 0 : most;
  each_logits<WIDE>(l, c, [&](const float(&x)[N]) {
    UNROLL
    for (int j = 0; j < N; j++) sum += exp_of<T>(x[j] - base);
  });
  sum = block_sum<BLOCK>(sum);
  bool here = labels[r] != IGNORED && label >= 0 && label < c.n;
  if (threadIdx.x > 0) return;
  s[2 * r] = sum;
  s[2 * r + 1] = here ? logit_at<WIDE>(l, label, c.all) - most : 0;
}

/* Maximum and sum of exponentials, online: each thread rescales its sum at a larger
 * value, once a vector. */
template <bool WIDE, typename T>
__global__ void __launch_bounds__(BLOCK)
    stats_of_rows(const T *l, const int32_t *labels, float *m, float *s, Columns c) {
  constexpr int N = EACH_OF<T>;
  int64_t r = blockIdx.x, label = labels[r] - c.first;
  l += r * c.all;
  float mine = -INFINITY, sum = 0;
  each_logits<WIDE>(l, c, [&](const float(&x)[N]) {
    float top = mine;
    UNROLL
    for (int j = 0; j < N; j++) top = x[j] > top ? x[j] : top;
    if (top > mine) {
      sum *= exp_of<T>(mine - top);
      mine = top;
    }
    float base = mine == -INFINITY ? 0 : mine; /* of which exp is 0, if all are -inf */
    UNROLL
    for (int j = 0; j < N; j++) sum += exp_of<T>(x[j] - base);
  });
  float most = block_sum<BLOCK>(mine, true);
  /* A thread without a column has -inf and adds 0, even if all have none. */
  sum = block_sum<BLOCK>(mine == -INFINITY ? sum : sum * expf(mine - most));
  bool here = labels[r] != IGNORED && label >= 0 && label < c.n;
  if (threadIdx.x > 0) return;
  m[r] = most;
  s[2 * r] = sum;
  s[2 * r + 1] = here ? logit_at<WIDE>(l, label, c.all) - most : 0;
}

__global__ void __launch_bounds__(BLOCK)
    shift_rows(const float *s, const float *m, const float *most, const int32_t *labels,
               float *to, int64_t rows, Columns c) {
  int64_t r = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (r >= rows) return;
  int64_t label = labels[r] - c.first;
  bool here = labels[r] != IGNORED && label >= 0 && label < c.n;
  to[2 * r] = c.n > 0 ? s[2 * r] * expf(m[r] - most[r]) : 0;
  to[2 * r + 1] = here ? s[2 * r + 1] + (m[r] - most[r]) : 0;
}

/* A gradient for each row, or one for all. dl may be l: each element is read and written
 * by one thread. */
template <bool WIDE, typename T>
__global__ void __launch_bounds__(BLOCK)
    dx_rows(const T *l, const int32_t *labels, const float *m, const float *s,
            const float *seed, int64_t each, float z, T *dl, Columns c) {
  constexpr int N = EACH_OF<T>;
  int64_t r = blockIdx.x, label = labels[r] - c.first;
  bool counts = labels[r] != IGNORED;
  float g = seed[r * each], most = m[r], total = s[2 * r];
  float up = z != 0 ? 1.0f + 2 * z * (most + logf(total)) : 1.0f, k = g / total * up;
  l += r * c.all, dl += r * c.all;
  for (int64_t i = (int64_t)threadIdx.x * N; i < c.all; i += BLOCK * N) {
    Pack<T, N> x = {};
    if (counts) get<WIDE>(x, l, i, c.all);
    bool has = i <= label && label < i + N, all = counts && i + N <= c.n;
    UNROLL
    for (int j = 0; j < N; j++) {
      float e = exp_of<T>(load(x.v[j]) - most), v = e * k;
      if (has && i + j == label) v = (e / total * up - 1.0f) * g;
      x.v[j] = rounded<T>(all || (counts && i + j < c.n) ? v : 0);
    }
    put<WIDE>(dl, i, c.all, x);
  }
}

/* Calls f with the type of logits, and whether their rows are whole vectors, and those of
 * `also`, which lie as they do. */
template <typename F> static void by_logits(const KernelArgs *a, const void *also, F f) {
  by_type(a->in[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    by_bool(wide_rows<T>(cuda_last(&a->in[0]), a->in[0].p, also),
            [&](auto wide) { f(p, wide); });
  });
}

void cuda_ce_max(Device *d, const KernelArgs *a) {
  by_logits(a, a->in[0].p, [&](auto *p, auto wide) {
    typedef TYPE_OF(p) T;
    LAUNCH((max_rows<decltype(wide)::is, T>), (unsigned)cuda_rows(&a->in[0]), BLOCK,
           cuda_stream(d), data<const T>(&a->in[0]), data<float>(&a->out[0]),
           slice_of(a));
  });
}

void cuda_ce_sum(Device *d, const KernelArgs *a) {
  by_logits(a, a->in[0].p, [&](auto *p, auto wide) {
    typedef TYPE_OF(p) T;
    LAUNCH((sum_rows<decltype(wide)::is, T>), (unsigned)cuda_rows(&a->in[0]), BLOCK,
           cuda_stream(d), data<const T>(&a->in[0]), data<const int32_t>(&a->in[1]),
           data<const float>(&a->in[2]), data<float>(&a->out[0]), slice_of(a));
  });
}

void cuda_ce_stats(Device *d, const KernelArgs *a) {
  by_logits(a, a->in[0].p, [&](auto *p, auto wide) {
    typedef TYPE_OF(p) T;
    LAUNCH((stats_of_rows<decltype(wide)::is, T>), (unsigned)cuda_rows(&a->in[0]), BLOCK,
           cuda_stream(d), data<const T>(&a->in[0]), data<const int32_t>(&a->in[1]),
           data<float>(&a->out[0]), data<float>(&a->out[1]), slice_of(a));
  });
}

void cuda_ce_dx(Device *d, const KernelArgs *a) {
  by_logits(a, a->out[0].p, [&](auto *p, auto wide) {
    typedef TYPE_OF(p) T;
    LAUNCH((dx_rows<decltype(wide)::is, T>), (unsigned)cuda_rows(&a->in[0]), BLOCK,
           cuda_stream(d), data<const T>(&a->in[0]), data<const int32_t>(&a->in[1]),
           data<const float>(&a->in[2]), data<const float>(&a->in[3]),
           data<const float>(&a->in[4]), (int64_t)(cuda_count(&a->in[4]) > 1), a->attr->z,
           data<T>(&a->out[0]), slice_of(a));
  });
}

void cuda_ce_shift(Device *d, const KernelArgs *a) {
  int64_t rows = cuda_count(&a->in[1]);
  LAUNCH((shift_rows), (unsigned)((rows + BLOCK - 1) / BLOCK), BLOCK, cuda_stream(d),
         data<const float>(&a->in[0]), data<const float>(&a->in[1]),
         data<const float>(&a->in[2]), data<const int32_t>(&a->in[3]),
         data<float>(&a->out[0]), rows, columns_of(a, a->attr->n));
}

/* A sum over rows only, in f64: of each block, then of all. */
__global__ void __launch_bounds__(BLOCK)
    losses_of_rows(const float *s, const int32_t *labels, const float *m, double z,
                   double *part, int64_t n) {
  double sum = 0;
  for (int64_t r = (int64_t)blockIdx.x * BLOCK + threadIdx.x; r < n;
       r += (int64_t)gridDim.x * BLOCK) {
    if (labels[r] == IGNORED) continue;
    double total = log((double)s[2 * r]), all = m ? m[r] + total : 0;
    sum += total - s[2 * r + 1] + z * all * all;
  }
  sum = block_sum<BLOCK>(sum);
  if (threadIdx.x == 0) part[blockIdx.x] = sum;
}

void cuda_ce_loss(Device *d, const KernelArgs *a) {
  int64_t rows = cuda_count(&a->in[1]);
  double *part = (double *)a->work;
  LAUNCH((losses_of_rows), cuda_loss_blocks(rows, CUDA_LOSS_ROWS), BLOCK, cuda_stream(d),
         data<const float>(&a->in[0]), data<const int32_t>(&a->in[1]),
         a->attr->z != 0 ? data<const float>(&a->in[2]) : (const float *)NULL,
         (double)a->attr->z, part, rows);
  add_losses(d, part, cuda_loss_blocks(rows, CUDA_LOSS_ROWS), data<float>(&a->out[0]));
}
