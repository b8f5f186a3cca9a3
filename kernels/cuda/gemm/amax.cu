/* amax.cu - largest magnitudes, of which scales of fp8 come: of runs of elements that lie
 * one behind the other (tensors, groups of rows, rows), or of columns. Large ones are cut
 * into parts, whose largest are in the scratch; a maximum is the same in any order. A NaN
 * is no magnitude: it is one after rounding, too. */
#include "kernels/cuda/rows.cuh"
#include "fp8_product.h"
#include "vm/graph/op_fp8.h"

static __device__ __forceinline__ float larger(float most, float x) {
  x = fabsf(x);
  return x > most ? x : most;
}

/* Block b has part b % cut of run b / cut. */
template <bool WIDE, typename T>
__global__ void __launch_bounds__(BLOCK)
    amax_runs(const T *x, float *out, int64_t each, int64_t part, int cut) {
  constexpr int N = EACH_OF<T>;
  int run = blockIdx.x / cut, mine = blockIdx.x - run * cut;
  const T *from = x + run * each;
  int64_t end = (mine + 1) * part < each ? (mine + 1) * part : each;
  float most = 0;
  UNROLL_BY_4
  for (int64_t i = mine * part + threadIdx.x * N; i < end; i += BLOCK * N) {
    Pack<T, N> v;
    get<WIDE>(v, from, i, end);
    UNROLL
    for (int j = 0; j < N; j++) most = larger(most, load(v.v[j]));
  }
  most = block_sum<BLOCK>(most, true);
  if (threadIdx.x == 0) out[blockIdx.x] = most;
}

/* A thread has a vector of columns; grid: columns, parts of the rows, groups of rows. */
template <bool WIDE, typename T>
__global__ void __launch_bounds__(BLOCK)
    amax_columns(const T *x, float *out, int64_t width, int64_t rows, int64_t part) {
  constexpr int N = EACH_OF<T>;
  int64_t c = ((int64_t)blockIdx.x * BLOCK + threadIdx.x) * N;
  int64_t r = blockIdx.y * part, end = r + part < rows ? r + part : rows;
  if (c >= width) return;
  x += blockIdx.z * rows * width;
  float most[N] = {};
  UNROLL_BY_4
  for (; r < end; r++) {
    Pack<T, N> v;
    get<WIDE>(v, x + r * width, c, width);
    UNROLL
    for (int j = 0; j < N; j++) most[j] = larger(most[j], load(v.v[j]));
  }
  out += ((int64_t)blockIdx.z * gridDim.y + blockIdx.y) * width;
  for (int j = 0; j < N && c + j < width; j++) out[c + j] = most[j];
}

/* out[z][i] of the parts [z][..][i], n in all: rows are too many for another dimension of
 * the grid. */
__global__ void __launch_bounds__(BLOCK)
    amax_parts(const float *part, float *out, int64_t n, int64_t width, int cut) {
  int64_t to = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
  if (to >= n) return;
  int64_t z = width == 1 ? to : to / width;
  part += z * cut * width + (to - z * width);
  float most = 0;
  UNROLL_BY_4
  for (int k = 0; k < cut; k++) most = larger(most, part[k * width]);
  out[to] = most;
}

static unsigned cut_of(int64_t n, int64_t each) {
  return (unsigned)((n + each - 1) / each);
}

template <typename T>
static void of_runs(Device *d, const KernelArgs *a, float *to, int cut) {
  constexpr int N = EACH_OF<T>;
  const T *x = data<const T>(&a->in[0]);
  int64_t runs = cuda_count(&a->out[0]), each = cuda_count(&a->in[0]) / runs;
  int64_t part = (each + cut - 1) / cut;
  part = (part + N - 1) / N * N;
  by_bool(aligned(x) && each % N == 0, [&](auto wide) {
    LAUNCH((amax_runs<decltype(wide)::is, T>), (unsigned)(runs * cut), BLOCK,
           cuda_stream(d), x, to, each, part, cut);
  });
}

template <typename T>
static void of_columns(Device *d, const KernelArgs *a, float *to, int cut) {
  constexpr int N = EACH_OF<T>;
  const T *x = data<const T>(&a->in[0]);
  int64_t width = cuda_last(&a->in[0]), groups = cuda_count(&a->out[0]) / width;
  int64_t rows = cuda_rows(&a->in[0]) / groups, part = (rows + cut - 1) / cut;
  Dim3 grid(cut_of(width, BLOCK * N), (unsigned)cut, (unsigned)groups);
  by_bool(aligned(x) && width % N == 0, [&](auto wide) {
    LAUNCH((amax_columns<decltype(wide)::is, T>), grid, BLOCK, cuda_stream(d), x, to,
           width, rows, part);
  });
}

void cuda_amax(Device *d, const KernelArgs *a) {
  int cut = (int)cuda_amax_cut(a);
  float *out = data<float>(&a->out[0]), *to = cut > 1 ? (float *)a->work : out;
  bool columns = a->attr->fp8_how & FP8_COLUMNS;
  by_type(a->in[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    if (columns)
      of_columns<T>(d, a, to, cut);
    else
      of_runs<T>(d, a, to, cut);
  });
  if (cut == 1) return;
  int64_t n = cuda_count(&a->out[0]), width = columns ? cuda_last(&a->in[0]) : 1;
  LAUNCH(amax_parts, cut_of(n, BLOCK), BLOCK, cuda_stream(d), (const float *)a->work, out,
         n, width, cut);
}
