/* permute.cu - MoE token dispatch on one rank: permute, combine and their gradients; the
 * update of a router's bias. Destinations depend on the order of the tokens only. */
#include "kernels/cuda/kernel.cuh"
#include "vm/program/program.h"

/* ---- flatten ---- */

template <typename U>
__global__ void __launch_bounds__(BLOCK) copy_elements(const U *x, U *y, int64_t n) {
  int64_t step = (int64_t)gridDim.x * blockDim.x;
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
    y[i] = x[i];
}

static void copy_all(Device *d, const KernelArgs *a) {
  int64_t n = cuda_count(&a->out[0]);
  if (a->out[0].dtype == DT_BF16)
    LAUNCH((copy_elements<uint16_t>), blocks_for(n), BLOCK, cuda_stream(d),
           data<const uint16_t>(&a->in[0]), data<uint16_t>(&a->out[0]), n);
  else
    LAUNCH((copy_elements<uint32_t>), blocks_for(n), BLOCK, cuda_stream(d),
           data<const uint32_t>(&a->in[0]), data<uint32_t>(&a->out[0]), n);
}

void cuda_flatten(Device *d, const KernelArgs *a) { copy_all(d, a); }
void cuda_unflatten(Device *d, const KernelArgs *a) { copy_all(d, a); }

/* ---- permute ---- */

/* As in the CPU kernel: choices of one group share a capacity limit. */
struct Choices {
  const int32_t *id;
  const float *weight;
  int64_t n, first, here, most;
  int64_t sender, owner,
      owners; /* choices of a rank; experts per limit; number of such groups here */
  bool by_weight;
};

static Choices choices_of(const KernelArgs *a) {
  const OpAttr *at = a->attr;
  int64_t n = cuda_count(&a->in[1]), here = a->out[1].dim[0] - 1, owners = here;
  if (at->bound > 0) owners = at->cut ? 1 : MAX(at->parts, 1);
  return Choices{data<const int32_t>(&a->in[1]),
                 data<const float>(&a->in[2]),
                 n,
                 at->cut ? a->index * here : 0,
                 here,
                 attr_rows_taken(at, n),
                 n / MAX(at->n, 1),
                 here / owners,
                 owners,
                 at->drop == DROP_PROBS};
}

static __device__ int64_t group_of(const Choices &c, int64_t i) {
  int64_t e = c.id[i] - c.first;
  if (e < 0 || e >= c.here) return -1;
  return i / c.sender * c.owners + e / c.owner;
}

/* The number of choices of the same group that precede choice i when some are dropped. */
static __device__ int64_t heavier(const Choices &c, int64_t i) {
  int64_t before = 0;
  for (int64_t j = 0; j < c.n; j++) {
    bool more = c.weight[j] > c.weight[i] || (c.weight[j] == c.weight[i] && j < i);
    before += more && group_of(c, j) == group_of(c, i);
  }
  return before;
}

/* Inclusive prefix sum of `mine` over the block, in before[threadIdx.x]. */
static __device__ void add_before(int *before, int mine) {
  before[threadIdx.x] = mine;
  __syncthreads();
  for (int step = 1; step < BLOCK; step *= 2) {
    int more = (int)threadIdx.x >= step ? before[threadIdx.x - step] : 0;
    __syncthreads();
    before[threadIdx.x] += more;
    __syncthreads();
  }
}

/* Writes 0 to `rows` for choices that get a row here. */
__global__ void __launch_bounds__(BLOCK) take_all(Choices c, int32_t *rows) {
  int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
  for (; i < c.n; i += (int64_t)gridDim.x * BLOCK)
    rows[i] = group_of(c, i) < 0 ? ROW_ELSEWHERE : 0;
}

/* One block per group walks the choices in order, a block's width at a time. */
__global__ void __launch_bounds__(BLOCK) take_most(Choices c, int32_t *rows) {
  __shared__ int before[BLOCK];
  int64_t seen = 0;
  for (int64_t at = 0; at < c.n; at += BLOCK) {
    int64_t i = at + threadIdx.x;
    int mine = i < c.n && group_of(c, i) == (int64_t)blockIdx.x;
    add_before(before, mine);
    int64_t place = seen + before[threadIdx.x] - mine;
    if (mine && (c.by_weight ? heavier(c, i) : place) >= c.most) rows[i] = ROW_DROPPED;
    seen += before[BLOCK - 1];
    __syncthreads();
  }
}

/* One block per expert counts its rows into offsets[e + 1]. */
__global__ void __launch_bounds__(BLOCK)
    count_rows(Choices c, const int32_t *rows, int32_t *offsets) {
  int found = 0;
  for (int64_t i = threadIdx.x; i < c.n; i += BLOCK)
    found += rows[i] >= 0 && c.id[i] - c.first == (int64_t)blockIdx.x;
  found = block_sum<BLOCK>(found);
  if (threadIdx.x == 0) offsets[blockIdx.x + 1] = found;
}

__global__ void add_up(int64_t experts, int32_t *offsets) {
  offsets[0] = 0;
  for (int64_t e = 0; e < experts; e++) offsets[e + 1] += offsets[e];
}

/* One block per expert, as above. */
__global__ void __launch_bounds__(BLOCK)
    place_rows(Choices c, const int32_t *offsets, int32_t *rows) {
  __shared__ int before[BLOCK];
  int64_t next = offsets[blockIdx.x];
  for (int64_t at = 0; at < c.n; at += BLOCK) {
    int64_t i = at + threadIdx.x;
    int mine = i < c.n && c.id[i] - c.first == (int64_t)blockIdx.x && rows[i] >= 0;
    add_before(before, mine);
    if (mine) rows[i] = (int32_t)(next + before[threadIdx.x] - 1);
    next += before[BLOCK - 1];
    __syncthreads();
  }
}

template <typename T>
__global__ void __launch_bounds__(BLOCK) move_rows(const T *x, const int32_t *rows, T *y,
                                                   int64_t n, int64_t k, int64_t width) {
  int64_t step = (int64_t)gridDim.x * blockDim.x;
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n * width;
       i += step) {
    int64_t row = rows[i / width];
    if (row >= 0) y[row * width + i % width] = x[i / width / k * width + i % width];
  }
}

template <typename T>
__global__ void __launch_bounds__(BLOCK)
    clear_rows(const int32_t *end, T *y, int64_t rows, int64_t width) {
  int64_t step = (int64_t)gridDim.x * blockDim.x;
  int64_t i = *end * width + (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  for (; i < rows * width; i += step) y[i] = rounded<T>(0);
}

/* Fills with NaN the rows of choices over capacity that must not be dropped: the step
 * then ends as not finite. */
template <typename T>
__global__ void __launch_bounds__(BLOCK)
    spoil(const int32_t *rows, T *y, int64_t n, int64_t width) {
  int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
  for (; i < n; i += (int64_t)gridDim.x * BLOCK)
    for (int64_t c = 0; c < width && rows[i] == ROW_DROPPED; c++) y[c] = rounded<T>(NAN);
}

static void take_rows(Device *d, const Choices &c, int32_t *rows) {
  LAUNCH((take_all), blocks_for(c.n), BLOCK, cuda_stream(d), c, rows);
  if (c.most >= c.n) return;
  int64_t groups = c.n / c.sender * c.owners;
  LAUNCH((take_most), (unsigned)groups, BLOCK, cuda_stream(d), c, rows);
}

void cuda_permute(Device *d, const KernelArgs *a) {
  Choices c = choices_of(a);
  int32_t *offsets = data<int32_t>(&a->out[1]), *rows = data<int32_t>(&a->out[2]);
  int64_t width = cuda_last(&a->in[0]), k = cuda_last(&a->in[1]);
  bool whole = a->attr->drop == DROP_NONE && c.most < c.n;
  take_rows(d, c, rows);
  LAUNCH((count_rows), (unsigned)c.here, BLOCK, cuda_stream(d), c, rows, offsets);
  LAUNCH((add_up), 1, 1, cuda_stream(d), c.here, offsets);
  LAUNCH((place_rows), (unsigned)c.here, BLOCK, cuda_stream(d), c, offsets, rows);
  by_type(a->in[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    T *y = data<T>(&a->out[0]);
    LAUNCH((move_rows<T>), blocks_for(c.n * width), BLOCK, cuda_stream(d),
           data<const T>(&a->in[0]), rows, y, c.n, k, width);
    LAUNCH((clear_rows<T>), blocks_for(cuda_count(&a->out[0])), BLOCK, cuda_stream(d),
           offsets + c.here, y, a->out[0].dim[0], width);
    if (whole)
      LAUNCH((spoil<T>), blocks_for(c.n), BLOCK, cuda_stream(d), rows, y, c.n, width);
  });
}

/* ---- sums over a token's choices ---- */

/* weight NULL: all 1. */
template <typename T>
__global__ void __launch_bounds__(BLOCK)
    sum_choices(const T *x, const int32_t *rows, const float *weight, T *y, int64_t n,
                int64_t k, int64_t width) {
  int64_t step = (int64_t)gridDim.x * blockDim.x;
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
    float sum = 0;
    for (int64_t j = i / width * k; j < (i / width + 1) * k; j++)
      if (rows[j] >= 0)
        sum += (weight ? weight[j] : 1) * load(x[rows[j] * width + i % width]);
    y[i] = rounded<T>(sum);
  }
}

static void sum_on(Device *d, const KernelArgs *a, const KTensor *rows,
                   const float *weight) {
  int64_t n = cuda_count(&a->out[0]);
  by_type(a->out[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    LAUNCH((sum_choices<T>), blocks_for(n), BLOCK, cuda_stream(d),
           data<const T>(&a->in[0]), data<const int32_t>(rows), weight,
           data<T>(&a->out[0]), n, cuda_last(rows), cuda_last(&a->out[0]));
  });
}

void cuda_permute_dx(Device *d, const KernelArgs *a) { sum_on(d, a, &a->in[1], NULL); }

void cuda_combine(Device *d, const KernelArgs *a) {
  sum_on(d, a, &a->in[2], data<const float>(&a->in[1]));
}

/* Clears the rows that no choice uses, which are behind the others. */
template <typename T>
__global__ void __launch_bounds__(BLOCK)
    clear_unused(const int32_t *rows, T *y, int64_t n, int64_t all, int64_t width) {
  int used = 0;
  for (int64_t i = threadIdx.x; i < n; i += BLOCK) used += rows[i] >= 0;
  used = block_sum<BLOCK>(used);
  int64_t i = used * width + (int64_t)blockIdx.x * BLOCK + threadIdx.x;
  for (; i < all * width; i += (int64_t)gridDim.x * BLOCK) y[i] = rounded<T>(0);
}

/* One block per choice; each has a row of its own. */
template <typename T>
__global__ void __launch_bounds__(BLOCK)
    combine_dx_row(const T *x, const float *weight, const int32_t *rows, const T *dy,
                   T *dx, float *dweight, int64_t k, int64_t width) {
  int64_t i = blockIdx.x, row = rows[i];
  float sum = 0;
  for (int64_t c = threadIdx.x; c < width && row >= 0; c += BLOCK) {
    float g = load(dy[i / k * width + c]);
    sum += g * load(x[row * width + c]);
    dx[row * width + c] = rounded<T>(weight[i] * g);
  }
  sum = block_sum<BLOCK>(sum);
  if (threadIdx.x == 0) dweight[i] = sum;
}

void cuda_combine_dx(Device *d, const KernelArgs *a) {
  const KTensor *w = &a->in[1];
  int64_t n = cuda_count(w), k = cuda_last(w), width = cuda_last(&a->in[0]);
  const int32_t *rows = data<const int32_t>(&a->in[2]);
  enum { CLEARING = 64 };
  by_type(a->in[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    LAUNCH((clear_unused<T>), CLEARING, BLOCK, cuda_stream(d), rows, data<T>(&a->out[0]),
           n, a->in[0].dim[0], width);
    LAUNCH((combine_dx_row<T>), (unsigned)n, BLOCK, cuda_stream(d),
           data<const T>(&a->in[0]), data<const float>(w), rows, data<const T>(&a->in[3]),
           data<T>(&a->out[0]), data<float>(&a->out[1]), k, width);
  });
}

/* ---- rows between ranks ---- n[p][e] of each of e experts go to, or come from, rank p
 */

__global__ void __launch_bounds__(BLOCK)
    sizes_of(const int32_t *ends, int32_t *n, int64_t count) {
  for (int64_t i = threadIdx.x; i < count; i += BLOCK) n[i] = ends[i + 1] - ends[i];
}

void cuda_expert_sizes(Device *d, const KernelArgs *a) {
  LAUNCH(sizes_of, 1, BLOCK, cuda_stream(d), data<const int32_t>(&a->in[0]),
         data<int32_t>(&a->out[0]), cuda_count(&a->out[0]));
}

__global__ void __launch_bounds__(BLOCK)
    ends_of(const int32_t *n, int32_t *ends, int64_t ranks, int64_t experts) {
  for (int64_t e = threadIdx.x; e <= experts; e += BLOCK) {
    int32_t sum = 0;
    for (int64_t i = 0; i < ranks * experts; i++) sum += i % experts < e ? n[i] : 0;
    ends[e] = sum;
  }
}

void cuda_expert_ends(Device *d, const KernelArgs *a) {
  LAUNCH(ends_of, 1, BLOCK, cuda_stream(d), data<const int32_t>(&a->in[0]),
         data<int32_t>(&a->out[0]), a->in[0].dim[0], a->in[0].dim[1]);
}

/* The order of rows: see regroup in ops.def. */
struct Order {
  const int32_t *n;
  int64_t ranks, experts, place, row;
  bool by_expert, inverse;
};

template <typename T>
__global__ void __launch_bounds__(BLOCK) clear_all(T *y, int64_t n) {
  int64_t step = (int64_t)gridDim.x * blockDim.x;
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
    y[i] = rounded<T>(0.0f);
}

/* One block per expert and source rank. */
template <typename T>
__global__ void __launch_bounds__(BLOCK) move_blocks(const T *x, T *y, Order o) {
  int64_t block = blockIdx.x, p = block / o.experts, e = block % o.experts;
  int64_t place = p * o.place, row = 0;
  for (int64_t i = 0; i < o.ranks * o.experts; i++) {
    int64_t q = i / o.experts, f = i % o.experts;
    bool before = o.by_expert ? f < e || (f == e && q < p) : i < block;
    if (before) row += o.n[i];
    if (q == p && f < e) place += o.n[i];
  }
  int64_t from = o.inverse ? row : place, to = o.inverse ? place : row;
  for (int64_t i = threadIdx.x; i < o.n[block] * o.row; i += BLOCK)
    y[to * o.row + i] = x[from * o.row + i];
}

void cuda_regroup(Device *d, const KernelArgs *a) {
  const KTensor *places = a->attr->inverse ? &a->out[0] : &a->in[0], *n = &a->in[1];
  Order o = {data<const int32_t>(n), n->dim[0],      n->dim[1],
             places->dim[1],         places->dim[2], a->attr->kind != 0,
             a->attr->inverse != 0};
  int64_t all = cuda_count(&a->out[0]);
  by_type(a->out[0].dtype, [&](auto *t) {
    typedef TYPE_OF(t) T;
    LAUNCH((clear_all<T>), blocks_for(all), BLOCK, cuda_stream(d), data<T>(&a->out[0]),
           all);
    LAUNCH((move_blocks<T>), (unsigned)(o.ranks * o.experts), BLOCK, cuda_stream(d),
           data<const T>(&a->in[0]), data<T>(&a->out[0]), o);
  });
}

/* ---- router bias ---- */

template <typename T>
__global__ void __launch_bounds__(BLOCK)
    step_bias(const float *was, const float *load, const double *scal, float *p, T *copy,
              int64_t n, float rate, float mean) {
  int64_t step = (int64_t)gridDim.x * blockDim.x;
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
    float by = load[i] < mean ? rate : load[i] > mean ? -rate : 0;
    p[i] = was[i] + (scal[SC_HOLD] == 0 ? by : 0);
    copy[i] = rounded<T>(p[i]);
  }
}

void cuda_bias_step(Device *d, const KernelArgs *a) {
  int64_t n = cuda_count(&a->out[0]);
  by_type(a->out[1].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    LAUNCH((step_bias<T>), blocks_for(n), BLOCK, cuda_stream(d),
           data<const float>(&a->in[0]), data<const float>(&a->in[1]),
           data<const double>(&a->in[2]), data<float>(&a->out[0]), data<T>(&a->out[1]), n,
           a->attr->scale, a->attr->theta);
  });
}
