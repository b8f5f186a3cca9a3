/* step_scalars.c - once-a-step kernels on the f64 scalars: label count, loss seed, loss,
 * gradient norm, clip coefficient. All but sqnorm touch a few bytes only. */
#include "kernel.h"
#include "vm/program/program.h"

/* The f64 scalars are operand and result of these ops, at one address. */
static double *scalars(const KernelArgs *a) {
  assert(a->nin == 0 || a->in[a->nin - 1].p == a->out[0].p);
  return a->out[0].p;
}

void cpu_count_labels(Device *dev, const KernelArgs *a) {
  const int32_t *labels = a->in[0].p;
  int64_t n = count_of(&a->in[0]), count = 0;
#pragma omp simd reduction(+ : count)
  for (int64_t i = 0; i < n; i++) count += labels[i] != -100;
  scalars(a)[SC_TOKENS] = (double)count;
}

void cpu_seed(Device *dev, const KernelArgs *a) {
  const double *scal = a->in[0].p;
  double by = a->attr->n > 0 ? a->attr->n : MAX(scal[SC_TOKENS], 1.0);
  *(float *)a->out[0].p = (float)(scal[SC_SCALE] / by);
}

void cpu_acc_loss(Device *dev, const KernelArgs *a) {
  scalars(a)[SC_LOSS] += *(const float *)a->in[0].p;
}

void cpu_acc_sources(Device *dev, const KernelArgs *a) {
  const float *s = a->in[0].p;
  const int32_t *labels = a->in[1].p, *source = a->in[2].p;
  double *scal = scalars(a) + SC_SOURCES;
  for (int64_t r = 0, n = count_of(&a->in[1]); r < n; r++) {
    if (labels[r] == -100 || source[r] < 0 || source[r] >= a->attr->n) continue;
    scal[2 * source[r]] += log(s[2 * r]) - s[2 * r + 1];
    scal[2 * source[r] + 1]++;
  }
}

void cpu_acc_rows(Device *dev, const KernelArgs *a) {
  const int32_t *ends = a->in[0].p;
  int64_t experts = a->in[0].dim[0] - 1;
  double *scal = scalars(a);
  for (int64_t e = 0; e < experts; e++)
    scal[SC_ROWS_MAX] = MAX(scal[SC_ROWS_MAX], ends[e + 1] - ends[e]);
  scal[SC_ROWS] += ends[experts];
  scal[SC_ROWS_EXPERTS] += (double)experts;
}

void cpu_acc_dropped(Device *dev, const KernelArgs *a) {
  const int32_t *rows = a->in[0].p;
  int64_t n = 0;
  for (int64_t i = 0; i < count_of(&a->in[0]); i++) n += rows[i] == ROW_DROPPED;
  scalars(a)[SC_DROPPED] += (double)n;
}

/* The gradient is summed in a fixed number of blocks whose bounds depend on its size
 * only; the sums of the blocks are then added in order. */
typedef struct SqNorm {
  const void *g;
  DType t;
  int64_t n, block;
  double *sum; /* of each block */
} SqNorm;

INLINE void square_blocks(const SqNorm *s, int64_t lo, int64_t hi, DType t) {
  for (int64_t b = lo; b < hi; b++) {
    int64_t end = MIN(s->n, (b + 1) * s->block);
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = b * s->block; i < end; i++)
      sum += (double)get(s->g, t, i) * get(s->g, t, i);
    s->sum[b] = sum;
  }
}

static void sqnorm_part(const KernelArgs *a, int64_t lo, int64_t hi) {
  const SqNorm *s = a->state;
  WITH_TYPE(s->t, square_blocks, s, lo, hi)
}

/* The sum of the squares of the first operand. */
static double sum_squares(Device *dev, const KernelArgs *a) {
  SqNorm s = {
      .g = a->in[0].p, .t = a->in[0].dtype, .n = count_of(&a->in[0]), .sum = a->work};
  s.block = MAX((s.n + SQNORM_BLOCKS - 1) / SQNORM_BLOCKS, 1024);
  int64_t blocks = (s.n + s.block - 1) / s.block;
  KernelArgs part = {.state = &s};
  each_part(dev, &part, blocks, MAX(1, ELEMENT_GRAIN / s.block), sqnorm_part);
  double sum = 0;
  for (int64_t b = 0; b < blocks; b++) sum += s.sum[b];
  return sum;
}

void cpu_sqnorm(Device *dev, const KernelArgs *a) {
  scalars(a)[a->attr->n] += sum_squares(dev, a);
}

static void unit_norm_part(const KernelArgs *a, int64_t lo, int64_t hi) {
  const float *x = a->in[0].p, by = *(const float *)a->state;
  float *y = a->out[0].p;
  for (int64_t i = lo; i < hi; i++) y[i] = x[i] / by;
}

void cpu_unit_norm(Device *dev, const KernelArgs *a) {
  float norm = (float)sqrt(sum_squares(dev, a)), least = a->attr->eps;
  float by = norm < least ? least : norm;
  KernelArgs part = *a;
  part.state = &by;
  each_part(dev, &part, count_of(&a->in[0]), ELEMENT_GRAIN, unit_norm_part);
}

static double clip_factor(double norm, double clip) {
  return clip > 0 ? MIN(1.0, clip / (norm + 1e-6)) : 1.0;
}

void cpu_clip_coef(Device *dev, const KernelArgs *a) {
  double *scal = scalars(a), scale = scal[SC_SCALE];
  double norm = sqrt(scal[SC_NORM2]) / scale;
  bool skip = !isfinite(norm) || !isfinite(scal[SC_LOSS]) || !(scal[SC_TOKENS] > 0);
  bool stepped = scal[SC_GUESS] != 0;
  scal[SC_NORM] = norm;
  scal[SC_CLIP] = clip_factor(norm, a->attr->clip) / scale;
  scal[SC_SKIP] = skip;
  bool right = !skip && scal[SC_GUESS] == scal[SC_CLIP];
  scal[SC_UNDO] = stepped && !right;
  scal[SC_HOLD] = skip || (stepped && right);
}

/* If a part of the norm exceeds the limit, the whole does, too, by a factor not known
 * yet. */
void cpu_clip_guess(Device *dev, const KernelArgs *a) {
  double *scal = scalars(a), scale = scal[SC_SCALE];
  double norm = sqrt(scal[SC_NORM2]) / scale;
  double clip = clip_factor(norm, a->attr->clip);
  bool whole = a->attr->n != 0;
  bool held = !isfinite(norm) || (!whole && clip < 1) || scal[SC_CAREFUL] != 0;
  scal[SC_CLIP] = clip / scale;
  scal[SC_HOLD] = held;
  scal[SC_GUESS] = held ? 0 : clip / scale;
}

void cpu_scal_add(Device *dev, const KernelArgs *a) {
  double *scal = scalars(a);
  scal[a->attr->n] += scal[a->attr->dim];
}

void cpu_scal_zero(Device *dev, const KernelArgs *a) {
  double *scal = scalars(a);
  for (int64_t i = SC_ZERO_FROM; i < count_of(&a->out[0]); i++) scal[i] = 0;
}
