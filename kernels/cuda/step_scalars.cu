/* step_scalars.cu - once-a-step kernels on the f64 scalars: label count, loss seed, loss,
 * gradient norm, clip coefficient. */
#include "rows.cuh"
#include "vm/program/program.h"

static double *scalars(const KernelArgs *a) {
  assert(a->nin == 0 || a->in[a->nin - 1].p == a->out[0].p);
  return data<double>(&a->out[0]);
}

/* ---- sums ---- */

__global__ void __launch_bounds__(BLOCK)
    count_labelled(const int32_t *labels, double *scal, int64_t n) {
  int count = 0;
  for (int64_t i = threadIdx.x; i < n; i += BLOCK) count += labels[i] != -100;
  count = block_sum<BLOCK>(count);
  if (threadIdx.x == 0) scal[SC_TOKENS] = (double)count;
}

/* One block a source, in f64. */
__global__ void __launch_bounds__(BLOCK)
    losses_of_sources(const float *s, const int32_t *labels, const int32_t *source,
                      double *scal, int64_t n) {
  double sum = 0, count = 0;
  for (int64_t r = threadIdx.x; r < n; r += BLOCK) {
    if (labels[r] == -100 || source[r] != (int32_t)blockIdx.x) continue;
    sum += log((double)s[2 * r]) - s[2 * r + 1];
    count += 1;
  }
  sum = block_sum<BLOCK>(sum);
  count = block_sum<BLOCK>(count);
  if (threadIdx.x > 0) return;
  scal[SC_SOURCES + 2 * blockIdx.x] += sum;
  scal[SC_SOURCES + 2 * blockIdx.x + 1] += count;
}

void cuda_acc_sources(Device *d, const KernelArgs *a) {
  LAUNCH((losses_of_sources), (unsigned)a->attr->n, BLOCK, cuda_stream(d),
         data<const float>(&a->in[0]), data<const int32_t>(&a->in[1]),
         data<const int32_t>(&a->in[2]), scalars(a), cuda_count(&a->in[1]));
}

/* 32 bits suffice to count expert rows. */
__global__ void __launch_bounds__(BLOCK)
    count_expert_rows(const int32_t *ends, double *scal, int64_t experts) {
  int most = 0;
  for (int64_t e = threadIdx.x; e < experts; e += BLOCK)
    if (ends[e + 1] - ends[e] > most) most = ends[e + 1] - ends[e];
  most = block_sum<BLOCK>(most, true);
  if (threadIdx.x > 0) return;
  if (most > scal[SC_ROWS_MAX]) scal[SC_ROWS_MAX] = most;
  scal[SC_ROWS] += ends[experts];
  scal[SC_ROWS_EXPERTS] += (double)experts;
}

void cuda_acc_rows(Device *d, const KernelArgs *a) {
  LAUNCH((count_expert_rows), 1, BLOCK, cuda_stream(d), data<const int32_t>(&a->in[0]),
         scalars(a), a->in[0].dim[0] - 1);
}

__global__ void __launch_bounds__(BLOCK)
    count_dropped(const int32_t *rows, double *scal, int64_t n) {
  int count = 0;
  for (int64_t i = threadIdx.x; i < n; i += BLOCK) count += rows[i] == ROW_DROPPED;
  count = block_sum<BLOCK>(count);
  if (threadIdx.x == 0) scal[SC_DROPPED] += (double)count;
}

void cuda_acc_dropped(Device *d, const KernelArgs *a) {
  LAUNCH((count_dropped), 1, BLOCK, cuda_stream(d), data<const int32_t>(&a->in[0]),
         scalars(a), cuda_count(&a->in[0]));
}

void cuda_count_labels(Device *d, const KernelArgs *a) {
  LAUNCH((count_labelled), 1, BLOCK, cuda_stream(d), data<const int32_t>(&a->in[0]),
         scalars(a), cuda_count(&a->in[0]));
}

/* What a thread adds, and in which order, depends on the number of elements only. */
template <bool WIDE, typename G>
__global__ void __launch_bounds__(BLOCK)
    square_sums(const G *g, double *part, int64_t n, int64_t each) {
  constexpr int N = EACH_OF<G>;
  int64_t from = blockIdx.x * each, to = from + each < n ? from + each : n;
  double sum = 0;
  UNROLL_BY_4
  for (int64_t i = from + threadIdx.x * N; i < to; i += BLOCK * N) {
    Pack<G, N> v;
    get<WIDE>(v, g, i, to);
    UNROLL
    for (int j = 0; j < N; j++) sum += (double)load(v.v[j]) * load(v.v[j]);
  }
  sum = block_sum<BLOCK>(sum);
  if (threadIdx.x == 0) part[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(BLOCK)
    add_square_sums(const double *part, double *scal, int parts, int to) {
  double sum = 0;
  for (int i = threadIdx.x; i < parts; i += BLOCK) sum += part[i];
  sum = block_sum<BLOCK>(sum);
  if (threadIdx.x == 0) scal[to] += sum;
}

/* Sums of squares of so many parts of the first operand, in its scratch. */
static int norm_parts(Device *d, const KernelArgs *a) {
  int64_t n = cuda_count(&a->in[0]), each = (n + CUDA_NORM_BLOCKS - 1) / CUDA_NORM_BLOCKS;
  if (each < BLOCK * 4) each = BLOCK * 4;
  each = (each + 7) / 8 * 8; /* whole vectors */
  int blocks = (int)((n + each - 1) / each);
  double *part = (double *)a->work;
  if (blocks)
    by_type(a->in[0].dtype, [&](auto *p) {
      typedef TYPE_OF(p) G;
      by_bool(wide_rows<G>(n, a->in[0].p), [&](auto wide) {
        LAUNCH((square_sums<decltype(wide)::is, G>), blocks, BLOCK, cuda_stream(d),
               data<const G>(&a->in[0]), part, n, each);
      });
    });
  return blocks;
}

void cuda_sqnorm(Device *d, const KernelArgs *a) {
  int blocks = norm_parts(d, a);
  LAUNCH((add_square_sums), 1, BLOCK, cuda_stream(d), (const double *)a->work, scalars(a),
         blocks, a->attr->n);
}

/* Every block adds up the same parts in the same order. */
__global__ void __launch_bounds__(BLOCK)
    divide_by_norm(const float *x, float *y, int64_t n, const double *part, int parts,
                   float eps) {
  double sum = 0;
  for (int i = threadIdx.x; i < parts; i += BLOCK) sum += part[i];
  float norm = (float)sqrt(block_sum<BLOCK>(sum)), by = norm < eps ? eps : norm;
  int64_t step = (int64_t)gridDim.x * BLOCK;
  for (int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x; i < n; i += step)
    y[i] = x[i] / by;
}

void cuda_unit_norm(Device *d, const KernelArgs *a) {
  int parts = norm_parts(d, a);
  int64_t n = cuda_count(&a->in[0]);
  LAUNCH((divide_by_norm), blocks_for(n), BLOCK, cuda_stream(d),
         data<const float>(&a->in[0]), data<float>(&a->out[0]), n,
         (const double *)a->work, parts, a->attr->eps);
}

/* ---- one thread ---- */

static __device__ double clip_factor(double norm, double clip) {
  double c = clip / (norm + 1e-6);
  return clip > 0 && !(c >= 1.0) ? c : 1.0;
}

struct Seed {
  float *seed;
  int count; /* 0: label tokens */
  __device__ void operator()(double *scal) const {
    double tokens = scal[SC_TOKENS] > 1.0 ? scal[SC_TOKENS] : 1.0;
    *seed = (float)(scal[SC_SCALE] / (count > 0 ? (double)count : tokens));
  }
};
struct AccLoss {
  const float *loss;
  __device__ void operator()(double *scal) const { scal[SC_LOSS] += *loss; }
};
struct ClipCoef {
  double clip;
  __device__ void operator()(double *scal) const {
    double scale = scal[SC_SCALE], norm = sqrt(scal[SC_NORM2]) / scale;
    bool skip = !isfinite(norm) || !isfinite(scal[SC_LOSS]) || !(scal[SC_TOKENS] > 0),
         stepped = scal[SC_GUESS] != 0;
    scal[SC_NORM] = norm;
    scal[SC_CLIP] = clip_factor(norm, clip) / scale;
    scal[SC_SKIP] = skip;
    bool right = !skip && scal[SC_GUESS] == scal[SC_CLIP];
    scal[SC_UNDO] = stepped && !right;
    scal[SC_HOLD] = skip || (stepped && right);
  }
};
/* If a part of the norm exceeds the limit, the whole does, too, by a factor not known
 * yet. */
struct ClipGuess {
  double max;
  bool whole;
  __device__ void operator()(double *scal) const {
    double scale = scal[SC_SCALE], norm = sqrt(scal[SC_NORM2]) / scale;
    double clip = clip_factor(norm, max);
    bool held = !isfinite(norm) || (!whole && clip < 1) || scal[SC_CAREFUL] != 0;
    scal[SC_CLIP] = clip / scale;
    scal[SC_HOLD] = held;
    scal[SC_GUESS] = held ? 0 : clip / scale;
  }
};
struct ScalAdd {
  int to, from;
  __device__ void operator()(double *scal) const { scal[to] += scal[from]; }
};
struct ScalZero {
  int64_t n;
  __device__ void operator()(double *scal) const {
    for (int64_t i = SC_ZERO_FROM; i < n; i++) scal[i] = 0;
  }
};

template <typename F> __global__ void one_thread(double *scal, F f) { f(scal); }
template <typename F> static void on_scalars(Device *d, double *scal, F f) {
  LAUNCH((one_thread<F>), 1, 1, cuda_stream(d), scal, f);
}

void cuda_seed(Device *d, const KernelArgs *a) {
  on_scalars(d, data<double>(&a->in[0]), Seed{data<float>(&a->out[0]), a->attr->n});
}
void cuda_acc_loss(Device *d, const KernelArgs *a) {
  on_scalars(d, scalars(a), AccLoss{data<const float>(&a->in[0])});
}
void cuda_clip_coef(Device *d, const KernelArgs *a) {
  on_scalars(d, scalars(a), ClipCoef{a->attr->clip});
}
void cuda_clip_guess(Device *d, const KernelArgs *a) {
  on_scalars(d, scalars(a), ClipGuess{a->attr->clip, a->attr->n != 0});
}
void cuda_scal_add(Device *d, const KernelArgs *a) {
  on_scalars(d, scalars(a), ScalAdd{a->attr->n, a->attr->dim});
}
void cuda_scal_zero(Device *d, const KernelArgs *a) {
  on_scalars(d, scalars(a), ScalZero{cuda_count(&a->out[0])});
}
