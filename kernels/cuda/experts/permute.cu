/* permute.cu - MoE token dispatch on one rank: rows of tokens to their experts; the
 * update of a router's bias. Destinations depend on the order of the tokens only. */
#include "kernels/cuda/rows.cuh"
#include "vm/program/program.h"

/* ---- flatten ---- */

void cuda_flatten(Device *d, const KernelArgs *a) { cuda_copy(d, a); }
void cuda_unflatten(Device *d, const KernelArgs *a) { cuda_copy(d, a); }

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

/* Whether the choice is of one of `n` experts from `first` on. */
static __device__ bool is_of(const Choices &c, int64_t i, int64_t first, int64_t n) {
  return c.id[i] >= first && c.id[i] < first + n;
}

/* In the order of the weights; both zeros are one, and a NaN is the heaviest. */
static __device__ uint32_t key_of(float weight) {
  uint32_t u;
  if (isnan(weight)) return UINT32_MAX;
  weight += 0.0f;
  memcpy(&u, &weight, sizeof u);
  return u >> 31 ? ~u : u | 0x80000000u;
}

/* Of a block: choices [from, to) of one sender, of the experts from `first` on that share
 * a limit. */
struct Sharers {
  int64_t from, to, first;
};

static __device__ Sharers group_of_block(const Choices &c) {
  int64_t from = blockIdx.x / c.owners * c.sender;
  return Sharers{from, from + c.sender, c.first + blockIdx.x % c.owners * c.owner};
}

/* The sum of `mine` over the threads before this one, and over all in *all. Barriers of
 * the next call separate two calls, if they take turns at the two halves of `part`. */
static __device__ int sum_before(int (&part)[2][BLOCK / WARP], int turn, int mine,
                                 int *all) {
  int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, to = mine, before = 0;
  UNROLL
  for (int o = 1; o < WARP; o *= 2) {
    int other = __shfl_sync(0xffffffffu, to, lane >= o ? lane - o : lane);
    to += lane >= o ? other : 0;
  }
  if (lane == WARP - 1) part[turn][warp] = to;
  __syncthreads();
  *all = 0;
  UNROLL
  for (int w = 0; w < BLOCK / WARP; w++) {
    before += w < warp ? part[turn][w] : 0;
    *all += part[turn][w];
  }
  return before + to - mine;
}

/* The key of the lightest choice of the group that gets a row, from the highest digit on,
 * and how many with this key get one. A digit is the largest with which as many keys are
 * at least as large as are to be taken. */
static __device__ uint32_t lightest_taken(const Choices &c, const Sharers &g, int *left) {
  constexpr int BITS = 4, DIGITS = 1 << BITS;
  __shared__ int part[BLOCK / WARP][DIGITS];
  uint32_t limit = 0;
  for (int at = 32 - BITS; at >= 0; at -= BITS) {
    int least[DIGITS] = {}; /* keys whose digit is as large */
    UNROLL_BY_4
    for (int64_t i = g.from + threadIdx.x; i < g.to; i += BLOCK) {
      uint32_t key = key_of(c.weight[i]), digit = key >> at & (DIGITS - 1);
      bool mine = is_of(c, i, g.first, c.owner) && (key ^ limit) >> at < DIGITS;
      UNROLL
      for (int d = 1; d < DIGITS; d++) least[d] += mine && digit >= (uint32_t)d;
    }
    UNROLL
    for (int d = 1; d < DIGITS; d++) {
      least[d] = lanes_sum(least[d]);
      if (threadIdx.x % WARP == 0) part[threadIdx.x / WARP][d] = least[d];
    }
    __syncthreads();
    int above = 0;
    for (int d = DIGITS - 1; d > 0; d--) {
      int all = 0;
      for (int w = 0; w < BLOCK / WARP; w++) all += part[w][d];
      if (all >= *left) {
        limit |= (uint32_t)d << at;
        break;
      }
      above = all;
    }
    *left -= above;
    __syncthreads();
  }
  return limit;
}

/* Writes 0 to `rows` for choices that get a row here. */
__global__ void __launch_bounds__(BLOCK) take_all(Choices c, int32_t *rows) {
  int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
  for (; i < c.n; i += (int64_t)gridDim.x * BLOCK)
    rows[i] = is_of(c, i, c.first, c.here) ? 0 : ROW_ELSEWHERE;
}

/* One block per group walks the choices in order, a block's width at a time. Lighter ones
 * than the limit get no row, and as light ones only as many as are left; by position all
 * are as light. */
__global__ void __launch_bounds__(BLOCK) take_most(Choices c, int32_t *rows) {
  __shared__ int part[2][BLOCK / WARP];
  Sharers g = group_of_block(c);
  int seen = 0, left = (int)c.most;
  uint32_t limit = c.by_weight ? lightest_taken(c, g, &left) : 0;
  int turn = 0, all;
  for (int64_t at = g.from; at < g.to; at += BLOCK, turn ^= 1) {
    int64_t i = at + threadIdx.x;
    bool mine = i < g.to && is_of(c, i, g.first, c.owner);
    uint32_t key = mine && c.by_weight ? key_of(c.weight[i]) : 0;
    bool as_light = mine && key == limit;
    int place = seen + sum_before(part, turn, as_light, &all);
    if (mine && (key < limit || (as_light && place >= left))) rows[i] = ROW_DROPPED;
    seen += all;
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

/* One block per expert walks the choices in order, EACH neighbours for each thread. */
__global__ void __launch_bounds__(BLOCK)
    place_rows(Choices c, const int32_t *offsets, int32_t *rows) {
  constexpr int EACH = 4;
  __shared__ int part[2][BLOCK / WARP];
  int64_t next = offsets[blockIdx.x];
  int turn = 0, all;
  for (int64_t at = 0; at < c.n; at += BLOCK * EACH, turn ^= 1) {
    int64_t i = at + threadIdx.x * EACH;
    bool mine[EACH];
    int n = 0;
    UNROLL
    for (int j = 0; j < EACH; j++) {
      mine[j] =
          i + j < c.n && c.id[i + j] - c.first == (int64_t)blockIdx.x && rows[i + j] >= 0;
      n += mine[j];
    }
    int64_t to = next + sum_before(part, turn, n, &all);
    UNROLL
    for (int j = 0; j < EACH; j++)
      if (mine[j]) rows[i + j] = (int32_t)to++;
    next += all;
  }
}

/* A token's row goes to the rows of its k choices. Grid: vectors of columns, tokens. */
template <bool WIDE, typename T>
__global__ void __launch_bounds__(BLOCK)
    move_rows(const T *x, const int32_t *rows, T *y, int64_t tokens, int64_t k,
              int64_t width) {
  constexpr int N = EACH_OF<T>;
  int64_t c = column_of(N);
  if (c >= width) return;
  for_rows(0, tokens, [&](int64_t t) {
    Pack<T, N> v;
    get<WIDE>(v, x + t * width, c, width);
    for (int64_t j = 0; j < k; j++) {
      int64_t row = rows[t * k + j];
      if (row >= 0) put<WIDE>(y + row * width, c, width, v);
    }
  });
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
    int64_t packs = packs_of(width, EACH_OF<T>), tokens = c.n / k, all = a->out[0].dim[0];
    RowGrid moved = row_grid(packs, tokens), cleared = row_grid(packs, all);
    by_bool(wide_rows<T>(width, a->in[0].p, y), [&](auto wide) {
      constexpr bool WIDE = decltype(wide)::is;
      LAUNCH((move_rows<WIDE, T>), moved.blocks, moved.threads, cuda_stream(d),
             data<const T>(&a->in[0]), rows, y, tokens, k, width);
      LAUNCH((clear_rows<WIDE, T>), cleared.blocks, cleared.threads, cuda_stream(d),
             offsets + c.here, y, all, width);
    });
    if (whole)
      LAUNCH((spoil<T>), blocks_for(c.n), BLOCK, cuda_stream(d), rows, y, c.n, width);
  });
}

/* ---- router bias ---- */

template <typename T>
__global__ void __launch_bounds__(BLOCK)
    step_bias(const float *was, const float *load, const double *scal, float *p, T *copy,
              int64_t n, float rate, float mean, int steps) {
  int64_t step = (int64_t)gridDim.x * blockDim.x;
  bool moves = scal[SC_HOLD] == 0 && (steps <= 0 || scal[SC_STEP] <= steps);
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
    float by = load[i] < mean ? rate : load[i] > mean ? -rate : 0;
    p[i] = was[i] + (moves ? by : 0);
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
           a->attr->scale, a->attr->theta, a->attr->n);
  });
}
