/* ce.cu - cross entropy in steps over a slice of the vocabulary: maximum, sum of
 * exponentials, loss, gradient. Columns from attr.vocab on are padding. A block per
 * row. */
#include "kernel.cuh"

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

template <typename T>
__global__ void __launch_bounds__(BLOCK) max_rows(const T *l, float *m, Columns c) {
  l += blockIdx.x * c.all;
  float most = -INFINITY;
  for (int64_t i = threadIdx.x; i < c.n; i += BLOCK) {
    float x = load(l[i]);
    most = x > most ? x : most;
  }
  most = block_sum<BLOCK>(most, true);
  if (threadIdx.x == 0) m[blockIdx.x] = most;
}

template <typename T>
__global__ void __launch_bounds__(BLOCK)
    sum_rows(const T *l, const int32_t *labels, const float *m, float *s, Columns c) {
  int64_t r = blockIdx.x, label = labels[r] - c.first;
  l += r * c.all;
  float most = m[r], sum = 0;
  for (int64_t i = threadIdx.x; i < c.n; i += BLOCK) sum += expf(load(l[i]) - most);
  sum = block_sum<BLOCK>(sum);
  bool here = labels[r] != IGNORED && label >= 0 && label < c.n;
  if (threadIdx.x > 0) return;
  s[2 * r] = sum;
  s[2 * r + 1] = here ? load(l[label]) - most : 0;
}

/* Maximum and sum of exponentials, online: each thread rescales its sum at a larger
 * value. */
template <typename T>
__global__ void __launch_bounds__(BLOCK)
    stats_of_rows(const T *l, const int32_t *labels, float *m, float *s, Columns c) {
  int64_t r = blockIdx.x, label = labels[r] - c.first;
  l += r * c.all;
  float mine = -INFINITY, sum = 0;
  for (int64_t i = threadIdx.x; i < c.n; i += BLOCK) {
    float x = load(l[i]);
    if (x > mine) {
      sum *= expf(mine - x);
      mine = x;
    }
    sum += x == mine && x == -INFINITY ? 0 : expf(x - mine);
  }
  float most = block_sum<BLOCK>(mine, true);
  /* A thread without a column has -inf and adds 0, even if all have none. */
  sum = block_sum<BLOCK>(mine == -INFINITY ? sum : sum * expf(mine - most));
  bool here = labels[r] != IGNORED && label >= 0 && label < c.n;
  if (threadIdx.x > 0) return;
  m[r] = most;
  s[2 * r] = sum;
  s[2 * r + 1] = here ? load(l[label]) - most : 0;
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
template <typename T>
__global__ void __launch_bounds__(BLOCK)
    dx_rows(const T *l, const int32_t *labels, const float *m, const float *s,
            const float *seed, int64_t each, float z, T *dl, Columns c) {
  int64_t r = blockIdx.x, label = labels[r] - c.first;
  bool counts = labels[r] != IGNORED;
  float g = seed[r * each], most = m[r], total = s[2 * r];
  float up = z != 0 ? 1.0f + 2 * z * (most + logf(total)) : 1.0f, k = g / total * up;
  l += r * c.all, dl += r * c.all;
  for (int64_t i = threadIdx.x; i < c.all; i += BLOCK) {
    float v = 0;
    if (counts && i < c.n) {
      float e = expf(load(l[i]) - most);
      v = i == label ? (e / total * up - 1.0f) * g : e * k;
    }
    dl[i] = rounded<T>(v);
  }
}

void cuda_ce_max(Device *d, const KernelArgs *a) {
  by_type(a->in[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    LAUNCH((max_rows<T>), (unsigned)cuda_rows(&a->in[0]), BLOCK, cuda_stream(d),
           data<const T>(&a->in[0]), data<float>(&a->out[0]), slice_of(a));
  });
}

void cuda_ce_sum(Device *d, const KernelArgs *a) {
  by_type(a->in[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    LAUNCH((sum_rows<T>), (unsigned)cuda_rows(&a->in[0]), BLOCK, cuda_stream(d),
           data<const T>(&a->in[0]), data<const int32_t>(&a->in[1]),
           data<const float>(&a->in[2]), data<float>(&a->out[0]), slice_of(a));
  });
}

void cuda_ce_stats(Device *d, const KernelArgs *a) {
  by_type(a->in[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    LAUNCH((stats_of_rows<T>), (unsigned)cuda_rows(&a->in[0]), BLOCK, cuda_stream(d),
           data<const T>(&a->in[0]), data<const int32_t>(&a->in[1]),
           data<float>(&a->out[0]), data<float>(&a->out[1]), slice_of(a));
  });
}

void cuda_ce_shift(Device *d, const KernelArgs *a) {
  int64_t rows = cuda_count(&a->in[1]);
  LAUNCH((shift_rows), (unsigned)((rows + BLOCK - 1) / BLOCK), BLOCK, cuda_stream(d),
         data<const float>(&a->in[0]), data<const float>(&a->in[1]),
         data<const float>(&a->in[2]), data<const int32_t>(&a->in[3]),
         data<float>(&a->out[0]), rows, columns_of(a, a->attr->n));
}

void cuda_ce_dx(Device *d, const KernelArgs *a) {
  by_type(a->in[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    LAUNCH((dx_rows<T>), (unsigned)cuda_rows(&a->in[0]), BLOCK, cuda_stream(d),
           data<const T>(&a->in[0]), data<const int32_t>(&a->in[1]),
           data<const float>(&a->in[2]), data<const float>(&a->in[3]),
           data<const float>(&a->in[4]), (int64_t)(cuda_count(&a->in[4]) > 1), a->attr->z,
           data<T>(&a->out[0]), slice_of(a));
  });
}

/* A sum over rows only: one block, in f64. */
__global__ void __launch_bounds__(BLOCK)
    loss_of_rows(const float *s, const int32_t *labels, const float *m, double z,
                 float *loss, int64_t n) {
  double sum = 0;
  for (int64_t r = threadIdx.x; r < n; r += BLOCK) {
    if (labels[r] == IGNORED) continue;
    double total = log((double)s[2 * r]), all = m ? m[r] + total : 0;
    sum += total - s[2 * r + 1] + z * all * all;
  }
  sum = block_sum<BLOCK>(sum);
  if (threadIdx.x == 0) *loss = (float)sum;
}

void cuda_ce_loss(Device *d, const KernelArgs *a) {
  LAUNCH((loss_of_rows), 1, BLOCK, cuda_stream(d), data<const float>(&a->in[0]),
         data<const int32_t>(&a->in[1]),
         a->attr->z != 0 ? data<const float>(&a->in[2]) : (const float *)NULL,
         (double)a->attr->z, data<float>(&a->out[0]), cuda_count(&a->in[1]));
}
