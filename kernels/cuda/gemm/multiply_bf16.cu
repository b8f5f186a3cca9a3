/* multiply_bf16.cu - see multiply_bf16.cuh. */
#include "multiply_bf16.cuh"

#include "kernels/cuda/rows.cuh"
#include "multiply_mma.cuh"

static unsigned tiles_of(int64_t n) { return (unsigned)((n + MMA_SIDE - 1) / MMA_SIDE); }

/* Rows that begin and end at multiples of 16 bytes. */
static bool wide(const void *p, int64_t stride, int64_t width) {
  return aligned(p) && stride % 8 == 0 && width % 8 == 0;
}

/* ---- one product ---- */

template <bool A_K, bool B_K, bool WIDE>
__global__ void __launch_bounds__(MMA_THREADS)
    multiply_product(Operand a, Operand b, AnyResult c, int m, int n, int k, int planes,
                     bool add) {
  multiply_mma<A_K, B_K, WIDE>(a, b, c, m, n, k, planes, (int)blockIdx.y * MMA_SIDE,
                               (int)blockIdx.x * MMA_SIDE, add);
}

void multiply_bf16(Device *d, const Matrix<bfloat> &a, const Matrix<bfloat> &b, void *c,
                   DType type, int64_t m, int64_t n, int64_t k, bool add, Planes planes) {
  bool a_k = a.col == 1, b_k = b.col != 1;
  Operand x = {a.p, a_k ? a.row : a.col, planes.plane};
  Operand y = {b.p, b_k ? b.col : b.row, 0};
  bool both = wide(x.p, x.stride, a_k ? k : m) && wide(y.p, y.stride, b_k ? k : n) &&
              planes.plane % 8 == 0 && n % 2 == 0 && aligned(c);
  assert((a_k || a.row == 1) && (!b_k || b.row == 1) && (a_k || !b_k));
  assert(m <= INT32_MAX && n <= INT32_MAX && k <= INT32_MAX / planes.n);
  Dim3 grid(tiles_of(n), tiles_of(m));
  auto start = [&](auto along_a, auto along_b) {
    by_bool(both, [&](auto aligned) {
      LAUNCH_ROOM((multiply_product<decltype(along_a)::is, decltype(along_b)::is,
                                    decltype(aligned)::is>),
                  grid, MMA_THREADS, MMA_ROOM, cuda_stream(d), x, y,
                  (AnyResult{c, type == DT_BF16}), (int)m, (int)n, (int)k, planes.n, add);
    });
  };
  if (!a_k)
    start(Known<false>{}, Known<false>{});
  else if (b_k)
    start(Known<true>{}, Known<true>{});
  else
    start(Known<true>{}, Known<false>{});
}

/* ---- products of experts ---- */

struct ExpertTile {
  int expert, row; /* of the expert's rows */
};

/* Tile y over the tiles of all experts; expert -1 past the last. Each warp looks for it,
 * a lane at one of 32 experts. */
static __device__ ExpertTile expert_tile(const int32_t *ends, int experts, int y) {
  int lane = threadIdx.x % WARP, before = 0;
  for (int e0 = 0; e0 < experts; e0 += WARP) {
    int e = e0 + lane, tiles = 0;
    if (e < experts) tiles = (ends[e + 1] - ends[e] + MMA_SIDE - 1) / MMA_SIDE;
    int to = tiles; /* tiles of these experts up to and with the lane's */
    UNROLL
    for (int o = 1; o < WARP; o *= 2) {
      int other = __shfl_sync(0xffffffffu, to, lane >= o ? lane - o : lane);
      to += lane >= o ? other : 0;
    }
    int at = y - before - (to - tiles);
    bool mine = at >= 0 && at < tiles;
    int expert = lanes_sum(mine ? e + 1 : 0), tile = lanes_sum(mine ? at : 0);
    if (expert) return ExpertTile{expert - 1, tile * MMA_SIDE};
    before += __shfl_sync(0xffffffffu, to, WARP - 1);
  }
  return ExpertTile{-1, 0};
}

template <bool W_K, bool WIDE>
__global__ void __launch_bounds__(MMA_THREADS)
    multiply_expert_rows(const bfloat *x, Operand w, const int32_t *ends, bfloat *y,
                         int experts, int n, int k) {
  ExpertTile at = expert_tile(ends, experts, (int)blockIdx.y);
  if (at.expert < 0) return;
  int64_t first = ends[at.expert];
  int rows = ends[at.expert + 1] - (int)first;
  Operand mine = {x + first * k, k, 0};
  w.p += (int64_t)at.expert * n * k;
  multiply_mma<true, W_K, WIDE>(mine, w, y + first * n, rows, n, k, 1, at.row,
                                (int)blockIdx.x * MMA_SIDE, false);
}

void multiply_experts(Device *d, const bfloat *x, const bfloat *w, const int32_t *ends,
                      bfloat *y, int64_t experts, int64_t rows, int64_t n, int64_t k,
                      int64_t w_row, int64_t w_col) {
  bool w_k = w_row == 1;
  int64_t stride = w_k ? w_col : w_row;
  bool both = wide(x, k, k) && wide(w, stride, w_k ? k : n) && n % 2 == 0 && aligned(y);
  Dim3 grid(tiles_of(n), (unsigned)(rows / MMA_SIDE + experts));
  assert(n <= INT32_MAX && k <= INT32_MAX && rows <= INT32_MAX);
  by_bool(w_k, [&](auto along) {
    by_bool(both, [&](auto aligned) {
      LAUNCH_ROOM((multiply_expert_rows<decltype(along)::is, decltype(aligned)::is>),
                  grid, MMA_THREADS, MMA_ROOM, cuda_stream(d), x, (Operand{w, stride, 0}),
                  ends, y, (int)experts, (int)n, (int)k);
    });
  });
}

/* Grid: columns, rows, experts. */
template <bool WIDE>
__global__ void __launch_bounds__(MMA_THREADS)
    multiply_expert_dw(const bfloat *a, const bfloat *b, const int32_t *ends,
                       AnyResult dw, int m, int n, bool add) {
  int64_t e = blockIdx.z, first = ends[e];
  Operand x = {a + first * m, m, 0}, y = {b + first * n, n, 0};
  dw.p = (char *)dw.p + e * m * n * (dw.narrow ? sizeof(bfloat) : sizeof(float));
  multiply_mma<false, false, WIDE>(x, y, dw, m, n, ends[e + 1] - (int)first, 1,
                                   (int)blockIdx.y * MMA_SIDE, (int)blockIdx.x * MMA_SIDE,
                                   add);
}

void multiply_expert_weights(Device *d, const bfloat *a, const bfloat *b,
                             const int32_t *ends, void *dw, DType type, int64_t experts,
                             int64_t m, int64_t n, bool add) {
  Dim3 grid(tiles_of(n), tiles_of(m), (unsigned)experts);
  assert(m <= INT32_MAX && n <= INT32_MAX);
  by_bool(wide(a, m, m) && wide(b, n, n) && aligned(dw), [&](auto aligned) {
    LAUNCH_ROOM((multiply_expert_dw<decltype(aligned)::is>), grid, MMA_THREADS, MMA_ROOM,
                cuda_stream(d), a, b, ends, (AnyResult{dw, type == DT_BF16}), (int)m,
                (int)n, add);
  });
}
