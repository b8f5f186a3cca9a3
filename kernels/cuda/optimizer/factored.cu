/* factored.cu - the step of Adafactor; see kernels/cpu/optimizer/factored.c. A block of
 * threads takes a row, or some columns, and what a matrix says as a whole is made once,
 * by a block each, in the scratch. */
#include "step_kernels.cuh"

#include "vm/graph/factored_places.h"

static FactoredPlaces places_of(const KernelArgs *a, const KTensor *g, int64_t matrices) {
  const OpAttr *t = a->attr;
  return factored_places(matrices, t->rows, t->cols, t->n, t->dim, t->parts, t->pieces,
                         a->index, (int64_t)t->first, cuda_count(g), a->shard);
}

static unsigned blocks_of_rows(const FactoredPlaces *f) {
  return blocks_for(f->matrices * f->here, 1);
}

/* ---- sums ---- */

__global__ void __launch_bounds__(BLOCK) clear_sums(double *to, int64_t n) {
  EACH_ELEMENT(i, n) to[i] = 0;
}

static void clear(Device *d, const KTensor *t) {
  int64_t n = cuda_count(t);
  LAUNCH((clear_sums), blocks_for(n), BLOCK, cuda_stream(d), data<double>(t), n);
}

template <typename P, typename G>
__global__ void __launch_bounds__(BLOCK)
    square_rows(const FactoredPlaces f, const P *p, const G *g, const double *scal,
                double *s, int64_t wide, bool factored) {
  double clip = (float)scal[SC_CLIP];
  for (int64_t k = blockIdx.x; k < f.matrices * f.here; k += gridDim.x) {
    RowRun r = factored_row(&f, k);
    if (r.row < 0 || !r.n) continue;
    double sum = 0, own = 0;
    for (int64_t i = r.from + threadIdx.x; i < r.from + r.n; i += BLOCK) {
      double x = load(g[i]) * clip, y = load(p[i]);
      sum += x * x, own += y * y;
    }
    sum = block_sum<BLOCK>(sum), own = block_sum<BLOCK>(own);
    double *to = s + r.matrix * wide;
    if (threadIdx.x == 0) to[wide - f.rows + r.row] = own;
    if (threadIdx.x == 0 && factored) to[r.row] = sum;
  }
}

/* A block has four threads a row, of 16 bytes each, and so many rows side by side. */
enum { ROW_LANES = 4, ROWS_BESIDE = BLOCK / ROW_LANES };

/* Runs of as many rows as a block has threads, of which each finds one, so that nobody
 * divides while columns are read. */
struct RowRuns {
  int64_t at[BLOCK];            /* where the shard has, or would have, column 0 */
  int64_t lo[BLOCK], hi[BLOCK]; /* columns that it has */
};

static __device__ void find_runs(RowRuns &r, const FactoredPlaces &f, int64_t m,
                                 int64_t first) {
  int i = (int)threadIdx.x;
  __syncthreads();
  r.lo[i] = r.hi[i] = 0;
  if (first + i < f.here) {
    RowRun run = factored_row(&f, m * f.here + first + i);
    r.at[i] = run.from - run.first, r.lo[i] = run.first;
    r.hi[i] = run.first + (run.row < 0 ? 0 : run.n);
  }
  __syncthreads();
}

/* Adds the squares of columns [j, j + N) of the thread's rows. WIDE: a run has all of
 * these columns, or none; the rows are read before any is added. */
template <bool WIDE, typename G, int N>
static __device__ __forceinline__ void add_squares(const RowRuns &r, const G *g, int mine,
                                                   int64_t j, double clip,
                                                   double (&sum)[N]) {
  Pack<G, N> v[ROW_LANES];
  UNROLL
  for (int u = 0; u < ROW_LANES && WIDE; u++) {
    int k = mine + u * ROWS_BESIDE;
    if (j >= r.lo[k] && j < r.hi[k]) v[u] = *(const Pack<G, N> *)(g + (r.at[k] + j));
  }
  UNROLL
  for (int u = 0; u < ROW_LANES; u++) {
    int k = mine + u * ROWS_BESIDE;
    if (WIDE && (j < r.lo[k] || j >= r.hi[k])) continue;
    UNROLL
    for (int e = 0; e < N; e++) {
      if (!WIDE && (j + e < r.lo[k] || j + e >= r.hi[k])) continue;
      double x = load(WIDE ? v[u].v[e] : g[r.at[k] + j + e]) * clip;
      sum[e] += x * x;
    }
  }
}

/* Grid: columns, matrices. */
template <bool WIDE, typename G>
__global__ void __launch_bounds__(BLOCK)
    square_cols(const FactoredPlaces f, const G *g, const double *scal, double *s,
                int64_t wide) {
  constexpr int N = EACH_OF<G>, TILE = ROW_LANES * N;
  __shared__ RowRuns runs;
  __shared__ double all[ROWS_BESIDE][TILE + 1];
  int lane = threadIdx.x % ROW_LANES, mine = threadIdx.x / ROW_LANES;
  int64_t j0 = (int64_t)blockIdx.x * TILE, j = j0 + lane * N;
  double clip = (float)scal[SC_CLIP];
  for (int64_t m = blockIdx.y; m < f.matrices; m += gridDim.y) {
    double sum[N] = {};
    for (int64_t i = 0; i < f.here; i += BLOCK) {
      find_runs(runs, f, m, i);
      add_squares<WIDE>(runs, g, mine, j, clip, sum);
    }
    UNROLL
    for (int e = 0; e < N; e++) all[mine][lane * N + e] = sum[e];
    __syncthreads();
    for (int c = threadIdx.x; c < TILE && j0 + c < f.at.cols; c += BLOCK) {
      int64_t col = factored_col(&f, j0 + c);
      double x = all[0][c];
      for (int w = 1; w < ROWS_BESIDE; w++) x += all[w][c];
      if (col >= 0) s[m * wide + f.rows + col] = x;
    }
  }
}

/* Whether whole vectors of columns are in the shard or not, and are aligned. */
static bool whole_columns(const FactoredPlaces *f, const KTensor *g) {
  int64_t n = 16 / cuda_dtype_size(g->dtype);
  return aligned(g->p) && f->at.cols % n == 0 && f->n % n == 0 &&
         (f->at.first - f->base) % n == 0;
}

static void sums_of_columns(Device *d, const KernelArgs *a, const FactoredPlaces &f) {
  const int64_t most = 65535, rows_each = a->out[0].dim[1];
  by_type(a->in[1].dtype, [&](auto *q) {
    typedef TYPE_OF(q) G;
    Dim3 grid((unsigned)packs_of(f.at.cols, ROW_LANES * EACH_OF<G>),
              (unsigned)(f.matrices < most ? f.matrices : most));
    by_bool(whole_columns(&f, &a->in[1]), [&](auto known) {
      LAUNCH((square_cols<decltype(known)::is, G>), grid, BLOCK, cuda_stream(d), f,
             data<const G>(&a->in[1]), data<const double>(&a->in[2]),
             data<double>(&a->out[0]), rows_each);
    });
  });
}

void cuda_factored_sums(Device *d, const KernelArgs *a) {
  FactoredPlaces f = places_of(a, &a->in[1], a->out[0].dim[0]);
  const double *scal = data<const double>(&a->in[2]);
  int64_t wide = a->out[0].dim[1];
  bool factored = a->attr->rows > 0;
  double *s = data<double>(&a->out[0]);
  clear(d, &a->out[0]);
  by_type(a->in[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) P;
    by_type(a->in[1].dtype, [&](auto *q) {
      typedef TYPE_OF(q) G;
      LAUNCH((square_rows<P, G>), blocks_of_rows(&f), BLOCK, cuda_stream(d), f,
             data<const P>(&a->in[0]), data<const G>(&a->in[1]), scal, s, wide, factored);
    });
  });
  if (factored) sums_of_columns(d, a, f);
}

/* ---- averages ---- */

static __device__ float toward(float old, double x, double by) {
  return (float)(old + by * (x - old));
}

__global__ void __launch_bounds__(BLOCK)
    average_factors(const float *v, const double *s, const double *scal, float *to,
                    int64_t n, int64_t rows, int64_t cols, double decay) {
  double by = pow(scal[SC_STEP], decay);
  int64_t wide = rows + cols;
  if (scal[SC_HOLD] != 0) return;
  EACH_ELEMENT(k, n) {
    int64_t m = k / wide, i = k % wide;
    to[k] = toward(v[k], s[m * (wide + rows) + i] / (double)(i < rows ? cols : rows), by);
  }
}

template <typename G>
__global__ void __launch_bounds__(BLOCK)
    average_squares(const RowRun r, const G *g, const float *v, const double *scal,
                    float *to, double decay) {
  double by = pow(scal[SC_STEP], decay), clip = (float)scal[SC_CLIP];
  if (scal[SC_HOLD] != 0) return;
  EACH_ELEMENT(k, r.n) {
    double x = load(g[r.from + k]) * clip;
    to[r.from + k] = toward(v[r.from + k], x * x, by);
  }
}

void cuda_factored_average(Device *d, const KernelArgs *a) {
  const float *v = data<const float>(&a->in[1]);
  const double *scal = data<const double>(&a->in[3]);
  float *to = data<float>(&a->out[0]);
  double decay = a->attr->beta2_decay;
  if (a->attr->rows) {
    int64_t n = cuda_count(&a->out[0]);
    LAUNCH((average_factors), blocks_for(n), BLOCK, cuda_stream(d), v,
           data<const double>(&a->in[2]), scal, to, n, (int64_t)a->attr->rows,
           (int64_t)a->attr->cols, decay);
    return;
  }
  FactoredPlaces f = places_of(a, &a->in[0], 1);
  RowRun r = factored_row(&f, 0);
  by_type(a->in[0].dtype, [&](auto *q) {
    typedef TYPE_OF(q) G;
    LAUNCH((average_squares<G>), blocks_for(r.n), BLOCK, cuda_stream(d), r,
           data<const G>(&a->in[0]), v, scal, to, decay);
  });
}

/* ---- what a matrix says as a whole ---- */

struct Whole {
  double epsilon, least_rms, threshold, decay, factor;
  int64_t wide; /* of a row of sums; 0: only the mean is made */
  int64_t factored, relative, scaled;
};

static Whole whole_of(const KernelArgs *a) {
  const OpAttr *t = a->attr;
  Whole w;
  memset(&w, 0, sizeof w);
  w.epsilon = t->epsilon, w.least_rms = t->least_rms, w.threshold = t->threshold;
  w.decay = t->weight_decay, w.factor = attr_lr(t, 1);
  w.factored = t->rows > 0, w.relative = t->relative_step != 0;
  w.scaled = t->scale_parameter != 0;
  return w;
}

/* For matrix blockIdx.x: the mean of its averages of rows, and its rate. */
__global__ void __launch_bounds__(BLOCK)
    means_and_rates(const FactoredPlaces f, const Whole w, const float *v,
                    const double *s, const double *u, const double *scal, double *to) {
  int64_t m = blockIdx.x;
  double mean = 0, p2 = 0, u2 = 0, n = (double)(f.rows * f.cols);
  for (int64_t i = threadIdx.x; i < f.rows; i += BLOCK) {
    if (w.factored) mean += v[m * (f.rows + f.cols) + i];
    if (w.wide) p2 += s[(m + 1) * w.wide - f.rows + i], u2 += u[m * f.rows + i];
  }
  mean = block_sum<BLOCK>(mean), p2 = block_sum<BLOCK>(p2), u2 = block_sum<BLOCK>(u2);
  if (threadIdx.x > 0) return;
  double rate = w.factor * scal[SC_LR], rms = sqrt(p2 / n), over = sqrt(u2 / n);
  double most = 1 / sqrt(scal[SC_STEP]);
  if (w.relative && most < rate) rate = most;
  if (w.scaled) rate *= rms > w.least_rms ? rms : w.least_rms;
  over /= w.threshold;
  mean /= (double)f.rows;
  to[2 * m] = mean < w.epsilon ? w.epsilon : mean;
  to[2 * m + 1] = over > 1 ? rate / over : rate;
}

/* The variance of column j of a row's run, element `at` of the shard. */
static __device__ double variance(const FactoredPlaces *f, const RowRun *r,
                                  const float *v, double mean, const Whole *w,
                                  int64_t i) {
  double x = w->factored ? 0 : v[r->from + i], least = w->epsilon * w->epsilon;
  int64_t col = w->factored ? factored_col(f, r->first + i) : -1;
  if (col >= 0) {
    const float *of = v + r->matrix * (f->rows + f->cols);
    x = (double)of[r->row] * of[f->rows + col] / mean;
  }
  return x < least ? least : x;
}

/* ---- the step ---- */

template <typename G>
__global__ void __launch_bounds__(BLOCK)
    norm_rows(const FactoredPlaces f, const Whole w, const G *g, const float *v,
              const double *mean, const double *scal, double *to) {
  double clip = (float)scal[SC_CLIP];
  if (scal[SC_HOLD] != 0) return;
  for (int64_t k = blockIdx.x; k < f.matrices * f.here; k += gridDim.x) {
    RowRun r = factored_row(&f, k);
    if (r.row < 0 || !r.n) continue;
    double sum = 0;
    for (int64_t i = threadIdx.x; i < r.n; i += BLOCK) {
      double x = load(g[r.from + i]) * clip;
      sum += x * x / variance(&f, &r, v, mean[2 * r.matrix], &w, i);
    }
    sum = block_sum<BLOCK>(sum);
    if (threadIdx.x == 0) to[r.matrix * f.rows + r.row] = sum;
  }
}

void cuda_factored_norm(Device *d, const KernelArgs *a) {
  FactoredPlaces f = places_of(a, &a->in[0], a->out[0].dim[0]);
  Whole w = whole_of(a);
  const float *v = data<const float>(&a->in[1]);
  const double *scal = data<const double>(&a->in[2]);
  double *mean = (double *)a->work, *to = data<double>(&a->out[0]);
  clear(d, &a->out[0]);
  LAUNCH((means_and_rates), (unsigned)f.matrices, BLOCK, cuda_stream(d), f, w, v,
         (const double *)NULL, (const double *)NULL, scal, mean);
  by_type(a->in[0].dtype, [&](auto *q) {
    typedef TYPE_OF(q) G;
    LAUNCH((norm_rows<G>), blocks_of_rows(&f), BLOCK, cuda_stream(d), f, w,
           data<const G>(&a->in[0]), v, (const double *)mean, scal, to);
  });
}

template <typename P, typename G, typename T>
__global__ void __launch_bounds__(BLOCK)
    step_rows(const FactoredPlaces f, const Whole w, const P *p, const G *g,
              const float *v, const double *whole, const double *scal, P *to, T *copy) {
  double clip = (float)scal[SC_CLIP], keep = 1.0 - w.factor * scal[SC_LR] * w.decay;
  bool copies = (const void *)copy != (const void *)to;
  if (scal[SC_HOLD] != 0) return;
  for (int64_t k = blockIdx.x; k < f.matrices * f.here; k += gridDim.x) {
    RowRun r = factored_row(&f, k);
    if (!r.n) continue;
    double mean = whole[2 * r.matrix], rate = whole[2 * r.matrix + 1];
    for (int64_t i = threadIdx.x; i < r.n; i += BLOCK) {
      int64_t at = r.from + i;
      double x = r.row < 0 ? 1 : variance(&f, &r, v, mean, &w, i);
      float y = (float)(load(p[at]) * keep - rate * (load(g[at]) * clip / sqrt(x)));
      to[at] = rounded<P>(y);
      if (copies) copy[at] = rounded<T>(sizeof(P) == 2 ? load(to[at]) : y);
    }
  }
}

void cuda_factored_step(Device *d, const KernelArgs *a) {
  FactoredPlaces f = places_of(a, &a->in[1], a->in[4].dim[0]);
  Whole w = whole_of(a);
  const float *v = data<const float>(&a->in[2]);
  const double *scal = data<const double>(&a->in[5]);
  double *whole = (double *)a->work;
  w.wide = a->in[3].dim[1];
  LAUNCH((means_and_rates), (unsigned)f.matrices, BLOCK, cuda_stream(d), f, w, v,
         data<const double>(&a->in[3]), data<const double>(&a->in[4]), scal, whole);
  by_type(a->in[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) P;
    by_type(a->in[1].dtype, [&](auto *q) {
      typedef TYPE_OF(q) G;
      by_type(a->out[1].dtype, [&](auto *c) {
        typedef TYPE_OF(c) T;
        LAUNCH((step_rows<P, G, T>), blocks_of_rows(&f), BLOCK, cuda_stream(d), f, w,
               data<const P>(&a->in[0]), data<const G>(&a->in[1]), v,
               (const double *)whole, scal, data<P>(&a->out[0]), data<T>(&a->out[1]));
      });
    });
  });
}
