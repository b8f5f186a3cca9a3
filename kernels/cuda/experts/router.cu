/* router.cu - MoE routing: logits, top-k choice and its gradient, load, auxiliary losses.
 * Sums and scores are f32. One block per row of logits. */
#include <float.h>

#include "kernels/cuda/gemm/multiply_bf16.cuh"
#include "kernels/cuda/rows.cuh"

/* ---- logits ---- */

template <typename TA, typename TB, typename TO>
__global__ void __launch_bounds__(BLOCK)
    multiply_types(Matrix<TA> a, Matrix<TB> b, TO *c, int64_t m, int64_t n, int64_t k,
                   bool add) {
  multiply_tile(a, b, c, m, n, k, (int64_t)blockIdx.y * TILE_M,
                (int64_t)blockIdx.x * TILE_N, add);
}

template <typename TA, typename TB, typename TO>
static void product(Device *d, Matrix<TA> a, Matrix<TB> b, TO *c, int64_t m, int64_t n,
                    int64_t k, bool add) {
  Dim3 grid((unsigned)((n + TILE_N - 1) / TILE_N), (unsigned)((m + TILE_M - 1) / TILE_M));
  LAUNCH((multiply_types<TA, TB, TO>), grid, BLOCK, cuda_stream(d), a, b, c, m, n, k,
         add);
}

/* Three summands in bf16, which are x to the bit: tensor cores multiply them, and logits
 * stay as exact as f32. */
enum { PLANES = 3 };
__global__ void __launch_bounds__(BLOCK)
    split_planes(const float *x, bfloat *to, int64_t n) {
  EACH_ELEMENT(i, n) {
    float left = x[i];
    UNROLL
    for (int k = 0; k < PLANES; k++) {
      bfloat part = rounded<bfloat>(left);
      to[k * n + i] = part;
      left -= load(part);
    }
  }
}

/* The product of dl, which lies as `row` and `col` say in scratch, with bf16. */
static void multiply_planes(Device *d, const KernelArgs *a, const KTensor *dl,
                            int64_t row, int64_t col, const Matrix<bfloat> &b, int64_t m,
                            int64_t n, int64_t k) {
  int64_t all = cuda_count(dl);
  bfloat *planes = (bfloat *)a->work;
  LAUNCH((split_planes), blocks_for(all), BLOCK, cuda_stream(d), data<const float>(dl),
         planes, all);
  multiply_bf16(d, Matrix<bfloat>{planes, row, col}, b, a->out[0].p, a->out[0].dtype, m,
                n, k, a->accumulate, Planes{PLANES, all});
}

void cuda_router_logits(Device *d, const KernelArgs *a) {
  int64_t rows = a->in[0].dim[0], c = a->in[0].dim[1], experts = a->in[1].dim[0];
  by_type(a->in[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    Matrix<T> x = {data<const T>(&a->in[0]), c, 1}, w = {data<const T>(&a->in[1]), 1, c};
    if constexpr (sizeof(T) == sizeof(bfloat))
      multiply_bf16(d, x, w, a->out[0].p, DT_F32, rows, experts, c, false);
    else
      product(d, x, w, data<float>(&a->out[0]), rows, experts, c, false);
  });
}

void cuda_router_logits_dx(Device *d, const KernelArgs *a) {
  int64_t rows = a->in[0].dim[0], experts = a->in[0].dim[1], c = a->in[1].dim[1];
  by_type(a->in[1].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    Matrix<float> dl = {data<const float>(&a->in[0]), experts, 1};
    Matrix<T> w = {data<const T>(&a->in[1]), c, 1};
    if constexpr (sizeof(T) == sizeof(bfloat))
      multiply_planes(d, a, &a->in[0], experts, 1, w, rows, c, experts);
    else
      product(d, dl, w, data<T>(&a->out[0]), rows, c, experts, false);
  });
}

void cuda_router_logits_dw(Device *d, const KernelArgs *a) {
  int64_t rows = a->in[0].dim[0], c = a->in[0].dim[1], experts = a->in[1].dim[1];
  by_type(a->in[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    Matrix<float> dl = {data<const float>(&a->in[1]), 1, experts};
    Matrix<T> x = {data<const T>(&a->in[0]), c, 1};
    if constexpr (sizeof(T) == sizeof(bfloat)) {
      multiply_planes(d, a, &a->in[1], 1, experts, x, experts, c, rows);
      return;
    }
    by_type(a->out[0].dtype, [&](auto *g) {
      product(d, dl, x, data<TYPE_OF(g)>(&a->out[0]), experts, c, rows, a->accumulate);
    });
  });
}

/* ---- scores ---- */

static __device__ float sigmoid_of(float x) { return 1.0f / (1.0f + expf(-x)); }

/* Attributes and shapes of the routing. */
struct Routing {
  int64_t experts, topk, groups, topk_group, best;
  bool sigmoid, norm;
  float scale;
};

static Routing routing_of(const KernelArgs *a) {
  const OpAttr *at = a->attr;
  return Routing{a->in[0].dim[1],    at->topk,          at->groups,
                 at->topk_group,     at->n ? at->n : 2, at->score == SCORE_SIGMOID,
                 at->norm_topk != 0, at->scale};
}

/* Softmax of a row to p, in shared memory; returns the log of the sum. */
static __device__ float softmax_row(const float *l, int64_t n, float *p) {
  float most = -INFINITY, sum = 0;
  for (int64_t i = threadIdx.x; i < n; i += BLOCK) most = l[i] > most ? l[i] : most;
  most = block_sum<BLOCK>(most, true);
  for (int64_t i = threadIdx.x; i < n; i += BLOCK) sum += p[i] = expf(l[i] - most);
  sum = block_sum<BLOCK>(sum);
  for (int64_t i = threadIdx.x; i < n; i += BLOCK) p[i] /= sum;
  __syncthreads();
  return most + logf(sum);
}

static __device__ void scores_row(const Routing &r, const float *l, float *p) {
  if (!r.sigmoid) {
    softmax_row(l, r.experts, p);
    return;
  }
  for (int64_t i = threadIdx.x; i < r.experts; i += BLOCK) p[i] = sigmoid_of(l[i]);
  __syncthreads();
}

/* ---- the choice ---- */

/* Index of the largest, the first of equal ones, in all threads; -1 if all are -inf. */
static __device__ int largest(const float *key, int64_t n) {
  float most = -INFINITY;
  for (int64_t i = threadIdx.x; i < n; i += BLOCK) most = key[i] > most ? key[i] : most;
  most = block_sum<BLOCK>(most, true);
  int first = -EXPERTS_MAX;
  if (most > -INFINITY)
    for (int64_t i = threadIdx.x; i < n; i += BLOCK)
      if (key[i] == most && -(int)i > first) first = -(int)i;
  first = block_sum<BLOCK>(first, true);
  return first == -EXPERTS_MAX ? -1 : -first;
}

/* The sum of the `best` largest of n, largest first; a few of few. */
static __device__ float sum_of_best(const float *key, int64_t n, int64_t best) {
  float last = INFINITY, sum = 0;
  for (int64_t taken = 0; taken < best;) {
    float next = -INFINITY;
    int equal = 0;
    for (int64_t i = 0; i < n; i++) {
      if (key[i] < last && key[i] > next) next = key[i], equal = 0;
      equal += key[i] == next;
    }
    if (!(next > -INFINITY)) return -INFINITY;
    for (; equal > 0 && taken < best; equal--, taken++) sum += next;
    last = next;
  }
  return sum;
}

/* Sets the keys outside of the best groups to -inf. */
static __device__ void keep_groups(const Routing &r, float *key, float *sum, int *kept) {
  int64_t size = r.experts / r.groups;
  for (int64_t g = threadIdx.x; g < r.groups; g += BLOCK) {
    sum[g] = sum_of_best(key + g * size, size, r.best);
    kept[g] = 0;
  }
  __syncthreads();
  for (int64_t k = 0; k < r.topk_group; k++) {
    int g = largest(sum, r.groups);
    if (threadIdx.x == 0 && g >= 0) kept[g] = 1, sum[g] = -INFINITY;
    __syncthreads();
  }
  for (int64_t i = threadIdx.x; i < r.experts; i += BLOCK)
    if (!kept[i / size]) key[i] = -INFINITY;
  __syncthreads();
}

template <typename T>
__global__ void __launch_bounds__(BLOCK)
    route_row(const float *l, const T *bias, const float *keys, float *weight,
              int32_t *id, Routing r) {
  __shared__ float p[EXPERTS_MAX], key[EXPERTS_MAX], sums[EXPERTS_MAX];
  __shared__ int kept[EXPERTS_MAX];
  l += blockIdx.x * r.experts, weight += blockIdx.x * r.topk, id += blockIdx.x * r.topk;
  scores_row(r, l, p);
  for (int64_t i = threadIdx.x; i < r.experts; i += BLOCK) {
    float k = keys ? keys[blockIdx.x * r.experts + i] : p[i] + (bias ? load(bias[i]) : 0);
    key[i] = isnan(k) ? FLT_MAX : k; /* chosen, as raise_nans of the CPU's has it */
  }
  __syncthreads();
  if (r.groups) keep_groups(r, key, sums, kept);
  for (int64_t k = 0; k < r.topk; k++) {
    int best = largest(key, r.experts);
    if (best < 0) best = (int)k;
    if (threadIdx.x == 0) id[k] = best, key[best] = -INFINITY;
    __syncthreads();
  }
  if (threadIdx.x > 0) return;
  float sum = 0;
  for (int64_t k = 0; k < r.topk; k++) sum += p[id[k]];
  for (int64_t k = 0; k < r.topk; k++)
    weight[k] = p[id[k]] / (r.norm ? sum : 1) * r.scale;
}

void cuda_route(Device *d, const KernelArgs *a) {
  bool keys = a->nin == 2 && a->in[1].ndim == 2, bias = a->nin == 2 && !keys;
  by_type(a->nin == 2 ? a->in[1].dtype : DT_F32, [&](auto *p) {
    typedef TYPE_OF(p) T;
    LAUNCH((route_row<T>), (unsigned)a->in[0].dim[0], BLOCK, cuda_stream(d),
           data<const float>(&a->in[0]), bias ? data<const T>(&a->in[1]) : (const T *)0,
           keys ? data<const float>(&a->in[1]) : (const float *)0,
           data<float>(&a->out[0]), data<int32_t>(&a->out[1]), routing_of(a));
  });
}

/* For weights normalized to 1, subtracts `less`, the mean of their gradients; of a single
 * one that is 0 to the bit. */
__global__ void __launch_bounds__(BLOCK)
    route_dx_row(const float *l, const int32_t *id, const float *dw, float *dl,
                 Routing r) {
  __shared__ float p[EXPERTS_MAX];
  l += blockIdx.x * r.experts, dl += blockIdx.x * r.experts;
  id += blockIdx.x * r.topk, dw += blockIdx.x * r.topk;
  scores_row(r, l, p);
  float sum = 0, less = 0;
  for (int64_t k = 0; k < r.topk; k++) sum += p[id[k]];
  float total = r.norm ? sum : 1, by = 1 / total;
  for (int64_t k = 0; k < r.topk; k++) less += dw[k] * (p[id[k]] / total);
  bool whole = !r.sigmoid && !r.norm;
  for (int64_t i = threadIdx.x; i < r.experts; i += BLOCK) {
    float d = whole ? -r.scale * p[i] * less : 0;
    for (int64_t k = 0; k < r.topk; k++)
      if (id[k] == i) {
        float x = r.scale * p[i] * by * (dw[k] - (r.norm ? less : 0));
        d += r.sigmoid ? x * (1 - p[i]) : x;
      }
    dl[i] = d;
  }
}

void cuda_route_dx(Device *d, const KernelArgs *a) {
  LAUNCH((route_dx_row), (unsigned)a->in[0].dim[0], BLOCK, cuda_stream(d),
         data<const float>(&a->in[0]), data<const int32_t>(&a->in[1]),
         data<const float>(&a->in[2]), data<float>(&a->out[0]), routing_of(a));
}

/* ---- load and auxiliary losses ---- */

/* One block per expert, which counts its choices. */
__global__ void __launch_bounds__(BLOCK)
    count_choices(const int32_t *id, float *to, int64_t n, bool add) {
  int found = 0;
  for (int64_t i = threadIdx.x; i < n; i += BLOCK) found += id[i] == (int32_t)blockIdx.x;
  found = block_sum<BLOCK>(found);
  if (threadIdx.x == 0) to[blockIdx.x] = (float)found + (add ? to[blockIdx.x] : 0);
}

__global__ void __launch_bounds__(BLOCK)
    count_valid(const int32_t *label, float *to, int64_t n) {
  int found = 0;
  for (int64_t i = threadIdx.x; i < n; i += BLOCK) found += label[i] != -100;
  found = block_sum<BLOCK>(found);
  if (threadIdx.x == 0) *to = (float)found;
}

void cuda_expert_counts(Device *d, const KernelArgs *a) {
  int64_t row = a->out[0].dim[a->out[0].ndim - 1], rows = cuda_count(&a->out[0]) / row;
  int64_t choices = cuda_count(&a->in[0]) / rows, labels = cuda_count(&a->in[1]) / rows;
  for (int64_t r = 0; r < rows; r++) {
    float *to = data<float>(&a->out[0]) + r * row;
    LAUNCH((count_choices), (unsigned)(row - 1), BLOCK, cuda_stream(d),
           data<const int32_t>(&a->in[0]) + r * choices, to, choices, false);
    LAUNCH((count_valid), 1, BLOCK, cuda_stream(d),
           data<const int32_t>(&a->in[1]) + r * labels, to + row - 1, labels);
  }
}

__global__ void __launch_bounds__(BLOCK)
    add_counts(const float *n, float *y, float *sum, int64_t experts) {
  float microbatches = sum[experts] + 1;
  __syncthreads();
  for (int64_t e = threadIdx.x; e < experts; e += BLOCK)
    y[e] = (sum[e] += n[e]) / microbatches;
  if (threadIdx.x > 0) return;
  y[experts] = n[experts];
  sum[experts] = microbatches;
}

void cuda_running_counts(Device *d, const KernelArgs *a) {
  LAUNCH((add_counts), 1, BLOCK, cuda_stream(d), data<const float>(&a->in[0]),
         data<float>(&a->out[0]), data<float>(&a->out[1]), cuda_count(&a->in[0]) - 1);
}

void cuda_expert_load(Device *d, const KernelArgs *a) {
  LAUNCH((count_choices), (unsigned)cuda_count(&a->out[0]), BLOCK, cuda_stream(d),
         data<const int32_t>(&a->in[0]), data<float>(&a->out[0]), cuda_count(&a->in[0]),
         a->accumulate);
}

struct LossOf {
  int64_t experts, topk, tokens;
  bool sigmoid;
  float aux, z;
  int64_t rows; /* of logits that one row of counts is for */
};

static LossOf loss_of(const KernelArgs *a) {
  int64_t experts = a->in[0].dim[a->in[0].ndim - 1];
  int64_t rows = cuda_count(&a->in[0]) / experts;
  int64_t counts = cuda_count(&a->in[1]) / (experts + 1);
  return LossOf{
      experts,      a->attr->topk, a->attr->n,   a->attr->score == SCORE_SIGMOID,
      a->attr->aux, a->attr->z,    rows / counts};
}

/* The counts that a row of logits is compared with. */
static __device__ const float *counts_for(const LossOf &k, const float *count,
                                          int64_t row) {
  return count + row / k.rows * (k.experts + 1);
}

/* Per-row coefficients of the losses: of n[e] p[e] and of the z loss. */
static __device__ void terms_of(const LossOf &k, const float *count, float *balance,
                                float *z) {
  double tokens = (double)k.tokens, labels = count[k.experts];
  *balance =
      (float)(labels * k.aux * (double)k.experts / (tokens * tokens * (double)k.topk));
  *z = (float)(labels * k.z / tokens);
}

/* p; the softmax in q; the sum of the scores in p; the sum of count * p. */
static __device__ float loss_row(const LossOf &k, const float *l, const float *count,
                                 float *p, float *q, float *total, float *load_sum) {
  float lse = softmax_row(l, k.experts, q), sum = 0, all = 0;
  for (int64_t i = threadIdx.x; i < k.experts; i += BLOCK) {
    p[i] = k.sigmoid ? sigmoid_of(l[i]) : q[i];
    all += p[i];
  }
  all = block_sum<BLOCK>(all);
  *total = k.sigmoid ? all : 1;
  for (int64_t i = threadIdx.x; i < k.experts; i += BLOCK) {
    p[i] /= *total;
    sum += count[i] * p[i];
  }
  *load_sum = block_sum<BLOCK>(sum);
  return lse;
}

/* Each block sums some rows, in order and in f64. */
__global__ void __launch_bounds__(BLOCK)
    loss_rows(const float *l, const float *count, double *part, int64_t rows, LossOf k) {
  __shared__ float p[EXPERTS_MAX], q[EXPERTS_MAX];
  float balance, z, total, load_sum;
  double sum = 0;
  for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
    const float *n = counts_for(k, count, r);
    terms_of(k, n, &balance, &z);
    float lse = loss_row(k, l + r * k.experts, n, p, q, &total, &load_sum);
    sum += (double)balance * load_sum + (double)z * lse * lse;
  }
  if (threadIdx.x == 0) part[blockIdx.x] = sum;
}

void cuda_router_loss(Device *d, const KernelArgs *a) {
  int64_t rows = cuda_count(&a->in[0]) / a->in[0].dim[a->in[0].ndim - 1];
  double *part = (double *)a->work;
  int blocks = cuda_loss_blocks(rows, 1);
  LAUNCH((loss_rows), blocks, BLOCK, cuda_stream(d), data<const float>(&a->in[0]),
         data<const float>(&a->in[1]), part, rows, loss_of(a));
  add_losses(d, part, blocks, data<float>(&a->out[0]));
}

__global__ void __launch_bounds__(BLOCK)
    loss_dx_row(const float *l, const float *count, const float *g, float *dl, LossOf k) {
  __shared__ float p[EXPERTS_MAX], q[EXPERTS_MAX];
  float balance, z, total, load_sum;
  l += blockIdx.x * k.experts, dl += blockIdx.x * k.experts;
  count = counts_for(k, count, blockIdx.x);
  terms_of(k, count, &balance, &z);
  float lse = loss_row(k, l, count, p, q, &total, &load_sum);
  for (int64_t i = threadIdx.x; i < k.experts; i += BLOCK) {
    float slope = k.sigmoid ? p[i] * (1 - p[i] * total) : p[i];
    dl[i] = *g * (balance * slope * (count[i] - load_sum) + 2 * z * lse * q[i]);
  }
}

void cuda_router_loss_dx(Device *d, const KernelArgs *a) {
  int64_t rows = cuda_count(&a->in[0]) / a->in[0].dim[a->in[0].ndim - 1];
  LAUNCH((loss_dx_row), (unsigned)rows, BLOCK, cuda_stream(d),
         data<const float>(&a->in[0]), data<const float>(&a->in[1]),
         data<const float>(&a->in[2]), data<float>(&a->out[0]), loss_of(a));
}
