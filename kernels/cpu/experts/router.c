/* router.c - MoE routing: logits, top-k choice and its gradient, load, auxiliary losses.
 * All sums and scores are in f32, whatever the compute type. */
#include <float.h>

#include "kernels/cpu/vecmath.h"

/* ---- logits ---- */

INLINE void router_logits(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  int64_t experts = a->in[1].dim[0], c = a->in[1].dim[1];
  float *l = a->out[0].p;
  for (int64_t r = lo; r < hi; r++)
    for (int64_t e = 0; e < experts; e++) {
      const void *x = at(a->in[0].p, t, r * c), *w = at(a->in[1].p, t, e * c);
      float sum = 0;
#pragma omp simd reduction(+ : sum)
      for (int64_t i = 0; i < c; i++) sum += get(x, t, i) * get(w, t, i);
      l[r * experts + e] = sum;
    }
}
BY_TYPE(router_logits, in[0])

void cpu_router_logits(Device *dev, const KernelArgs *a) {
  int64_t work = a->in[1].dim[0] * a->in[1].dim[1];
  each_part(dev, a, a->in[0].dim[0], row_grain(work), router_logits_part);
}

INLINE void router_logits_dx(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  enum { TILE = 256 };
  int64_t experts = a->in[1].dim[0], c = a->in[1].dim[1];
  const float *dl = a->in[0].p;
  for (int64_t r = lo; r < hi; r++)
    for (int64_t c0 = 0; c0 < c; c0 += TILE) {
      float sum[TILE] = {0};
      int n = (int)MIN(TILE, c - c0);
      for (int64_t e = 0; e < experts; e++) {
        const void *w = at(a->in[1].p, t, e * c + c0);
        float d = dl[r * experts + e];
#pragma omp simd
        for (int i = 0; i < n; i++) sum[i] += d * get(w, t, i);
      }
      void *dx = at(a->out[0].p, t, r * c + c0);
#pragma omp simd
      for (int i = 0; i < n; i++) put(dx, t, i, sum[i]);
    }
}
BY_TYPE(router_logits_dx, in[1])

void cpu_router_logits_dx(Device *dev, const KernelArgs *a) {
  int64_t work = a->in[1].dim[0] * a->in[1].dim[1];
  each_part(dev, a, a->in[0].dim[0], row_grain(work), router_logits_dx_part);
}

/* Threads own columns, so every element is summed in the order of the tokens. */
INLINE void router_logits_dw(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  int64_t rows = a->in[0].dim[0], c = a->in[0].dim[1], experts = a->in[1].dim[1];
  const float *dl = a->in[1].p;
  const KTensor *dw = &a->out[0];
  enum { TILE = 256 };
  for (int64_t e = 0; e < experts; e++)
    for (int64_t from = lo; from < hi; from += TILE) {
      int n = (int)MIN(TILE, hi - from);
      float sum[TILE] = {0};
      for (int i = 0; i < n && a->accumulate; i++)
        sum[i] = get(dw->p, dw->dtype, e * c + from + i);
      for (int64_t r = 0; r < rows; r++) {
        const void *x = at(a->in[0].p, t, r * c + from);
        float d = dl[r * experts + e];
#pragma omp simd
        for (int i = 0; i < n; i++) sum[i] += d * get(x, t, i);
      }
      for (int i = 0; i < n; i++) put(dw->p, dw->dtype, e * c + from + i, sum[i]);
    }
}
BY_TYPE(router_logits_dw, in[0])

void cpu_router_logits_dw(Device *dev, const KernelArgs *a) {
  each_part(dev, a, a->in[0].dim[1], COLUMN_GRAIN, router_logits_dw_part);
}

/* ---- scores ---- */

/* The softmax of a row; returns the logarithm of the sum of exponentials. */
static float softmax_of(const float *l, int64_t n, float *p) {
  float most = -INFINITY, sum = 0;
  for (int64_t i = 0; i < n; i++) most = l[i] > most ? l[i] : most;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; i++) sum += p[i] = vexp(l[i] - most);
  for (int64_t i = 0; i < n; i++) p[i] /= sum;
  return most + logf(sum);
}

static void scores_of(const OpAttr *at, const float *l, int64_t n, float *p) {
  if (at->score == SCORE_SOFTMAX) {
    softmax_of(l, n, p);
    return;
  }
  for (int64_t i = 0; i < n; i++) p[i] = sigmoid(l[i]);
}

/* ---- the choice ---- */

/* Index of the largest element, the first of equal ones; -1 if all are -inf. */
static int64_t largest(const float *key, int64_t n) {
  int64_t best = -1;
  float most = -INFINITY;
  for (int64_t i = 0; i < n; i++)
    if (key[i] > most) most = key[i], best = i;
  return best;
}

/* The sum of the `best` largest of n, largest first; a few of few. */
static float sum_of_best(const float *key, int64_t n, int best) {
  float last = INFINITY, sum = 0;
  for (int taken = 0; taken < best;) {
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
static void keep_groups(const OpAttr *at, float *key, int64_t n) {
  int64_t size = n / at->groups;
  float sum[EXPERTS_MAX];
  bool kept[EXPERTS_MAX] = {false};
  for (int64_t g = 0; g < at->groups; g++)
    sum[g] = sum_of_best(key + g * size, size, at->n ? at->n : 2);
  for (int k = 0; k < at->topk_group; k++) {
    int64_t g = largest(sum, at->groups);
    if (g < 0) break;
    kept[g] = true, sum[g] = -INFINITY;
  }
  for (int64_t i = 0; i < n; i++)
    if (!kept[i / size]) key[i] = -INFINITY;
}

static float sum_of_chosen(const float *p, const int32_t *ids, int k) {
  float sum = 0;
  for (int j = 0; j < k; j++) sum += p[ids[j]];
  return sum;
}

/* A key that is a NaN becomes the largest number, as torch.topk has it: its expert is
 * chosen, and the weight is a NaN. A row of them chooses the first experts. */
static void raise_nans(float *key, int64_t n) {
  for (int64_t i = 0; i < n; i++) key[i] = isnan(key[i]) ? FLT_MAX : key[i];
}

static void route_rows(const KernelArgs *a, int64_t lo, int64_t hi) {
  const OpAttr *at = a->attr;
  int64_t n = a->in[0].dim[1];
  int k = at->topk;
  bool keys = a->nin == 2 && a->in[1].ndim == 2;
  for (int64_t r = lo; r < hi; r++) {
    float p[EXPERTS_MAX], key[EXPERTS_MAX];
    float *weight = (float *)a->out[0].p + r * k;
    int32_t *id = (int32_t *)a->out[1].p + r * k;
    scores_of(at, (const float *)a->in[0].p + r * n, n, p);
    for (int64_t i = 0; i < n && !keys; i++)
      key[i] = p[i] + (a->nin == 2 ? get(a->in[1].p, a->in[1].dtype, i) : 0);
    if (keys) memcpy(key, (const float *)a->in[1].p + r * n, (size_t)n * sizeof *key);
    raise_nans(key, n);
    if (at->groups) keep_groups(at, key, n);
    for (int j = 0; j < k; j++) {
      int64_t best = largest(key, n);
      id[j] = (int32_t)(best < 0 ? j : best);
      key[id[j]] = -INFINITY;
    }
    /* Divided as Hugging Face does it: a single weight is 1 to the bit, and equal ones
     * are equal, whatever their scores. */
    float sum = at->norm_topk ? sum_of_chosen(p, id, k) : 1;
    for (int j = 0; j < k; j++) weight[j] = p[id[j]] / sum * at->scale;
  }
}

void cpu_route(Device *dev, const KernelArgs *a) {
  int64_t row = a->in[0].dim[1] * (1 + a->attr->topk);
  each_part(dev, a, a->in[0].dim[0], row_grain(row), route_rows);
}

/* For weights normalized to 1, subtracts `less`, the mean of their gradients. */
static void route_dx_rows(const KernelArgs *a, int64_t lo, int64_t hi) {
  const OpAttr *at = a->attr;
  int64_t n = a->in[0].dim[1];
  int k = at->topk;
  for (int64_t r = lo; r < hi; r++) {
    float p[EXPERTS_MAX];
    float *dl = (float *)a->out[0].p + r * n;
    const int32_t *id = (const int32_t *)a->in[1].p + r * k;
    const float *dw = (const float *)a->in[2].p + r * k;
    scores_of(at, (const float *)a->in[0].p + r * n, n, p);
    float sum = at->norm_topk ? sum_of_chosen(p, id, k) : 1, by = 1 / sum, less = 0;
    memset(dl, 0, (size_t)n * sizeof *dl);
    /* Divided as in route_rows: a single weight is 1, and its gradient 0 to the bit, or
     * an optimizer would step by the sign of what was rounded. */
    for (int j = 0; j < k; j++) less += dw[j] * (p[id[j]] / sum);
    if (at->score == SCORE_SOFTMAX && !at->norm_topk)
      for (int64_t i = 0; i < n; i++) dl[i] = -at->scale * p[i] * less;
    if (at->score == SCORE_SIGMOID && !at->norm_topk) less = 0;
    bool whole = at->score == SCORE_SOFTMAX && !at->norm_topk;
    for (int j = 0; j < k; j++) {
      float s = p[id[j]], d = at->scale * s * by * (dw[j] - (whole ? 0 : less));
      dl[id[j]] += at->score == SCORE_SIGMOID ? d * (1 - s) : d;
    }
  }
}

void cpu_route_dx(Device *dev, const KernelArgs *a) {
  each_part(dev, a, a->in[0].dim[0], row_grain(4 * a->in[0].dim[1]), route_dx_rows);
}

/* ---- load and auxiliary losses ---- */

static void add_choices(const int32_t *id, int64_t choices, float *n) {
  for (int64_t i = 0; i < choices; i++) n[id[i]]++;
}

/* Each row of counts is of as many tokens, in their order. */
void cpu_expert_counts(Device *dev, const KernelArgs *a) {
  int64_t experts = last_dim(&a->out[0]) - 1, rows = rows_of(&a->out[0]);
  int64_t choices = count_of(&a->in[0]) / rows, labels = count_of(&a->in[1]) / rows;
  for (int64_t r = 0; r < rows; r++) {
    const int32_t *label = (const int32_t *)a->in[1].p + r * labels;
    float *n = (float *)a->out[0].p + r * (experts + 1);
    memset(n, 0, (size_t)(experts + 1) * sizeof *n);
    add_choices((const int32_t *)a->in[0].p + r * choices, choices, n);
    for (int64_t i = 0; i < labels; i++) n[experts] += label[i] != -100;
  }
}

/* Sums are of whole numbers, exact below 2^24. */
void cpu_running_counts(Device *dev, const KernelArgs *a) {
  int64_t experts = last_dim(&a->in[0]) - 1;
  const float *n = a->in[0].p;
  float *y = a->out[0].p, *sum = a->out[1].p;
  sum[experts]++;
  for (int64_t e = 0; e < experts; e++) y[e] = (sum[e] += n[e]) / sum[experts];
  y[experts] = n[experts];
}

void cpu_expert_load(Device *dev, const KernelArgs *a) {
  if (!a->accumulate)
    memset(a->out[0].p, 0, (size_t)count_of(&a->out[0]) * sizeof(float));
  add_choices(a->in[0].p, count_of(&a->in[0]), a->out[0].p);
}

/* Per-row coefficients of the losses: of n[e] p[e] and of the z loss. */
typedef struct LossTerms {
  float balance, z;
} LossTerms;

/* The counts that a row of logits is compared with. */
static const float *counts_for(const KernelArgs *a, int64_t row) {
  int64_t rows = rows_of(&a->in[0]) / rows_of(&a->in[1]);
  return (const float *)a->in[1].p + row / rows * last_dim(&a->in[1]);
}

static LossTerms terms_of(const KernelArgs *a, const float *count) {
  const OpAttr *at = a->attr;
  int64_t experts = last_dim(&a->in[0]);
  double tokens = at->n, labels = count[experts];
  return (LossTerms){
      (float)(labels * at->aux * (double)experts / (tokens * tokens * at->topk)),
      (float)(labels * at->z / tokens)};
}

/* The row's p, its softmax in `q`, the scores' sum in *total; returns log-sum-exp. */
static float row_of_loss(const OpAttr *at, const float *l, int64_t n, float *p, float *q,
                         float *total) {
  float lse = softmax_of(l, n, q);
  *total = 1;
  if (at->score == SCORE_SOFTMAX) {
    memcpy(p, q, (size_t)n * sizeof *p);
    return lse;
  }
  *total = 0;
  for (int64_t i = 0; i < n; i++) *total += p[i] = sigmoid(l[i]);
  for (int64_t i = 0; i < n; i++) p[i] /= *total;
  return lse;
}

static float mean_load(const float *count, const float *p, int64_t n) {
  float sum = 0;
  for (int64_t i = 0; i < n; i++) sum += count[i] * p[i];
  return sum;
}

void cpu_router_loss(Device *dev, const KernelArgs *a) {
  int64_t n = last_dim(&a->in[0]);
  double sum = 0;
  for (int64_t r = 0; r < rows_of(&a->in[0]); r++) {
    float p[EXPERTS_MAX], q[EXPERTS_MAX], total;
    const float *count = counts_for(a, r);
    LossTerms k = terms_of(a, count);
    float lse = row_of_loss(a->attr, (const float *)a->in[0].p + r * n, n, p, q, &total);
    sum += (double)k.balance * mean_load(count, p, n) + (double)k.z * lse * lse;
  }
  *(float *)a->out[0].p = (float)sum;
}

static void router_loss_dx_rows(const KernelArgs *a, int64_t lo, int64_t hi) {
  int64_t n = last_dim(&a->in[0]);
  float g = *(const float *)a->in[2].p;
  for (int64_t r = lo; r < hi; r++) {
    float p[EXPERTS_MAX], q[EXPERTS_MAX], total;
    float *dl = (float *)a->out[0].p + r * n;
    const float *count = counts_for(a, r);
    LossTerms k = terms_of(a, count);
    float lse = row_of_loss(a->attr, (const float *)a->in[0].p + r * n, n, p, q, &total);
    float less = mean_load(count, p, n);
    for (int64_t i = 0; i < n; i++) {
      float slope = p[i];
      if (a->attr->score == SCORE_SIGMOID) slope *= 1 - p[i] * total;
      dl[i] = g * (k.balance * slope * (count[i] - less) + 2 * k.z * lse * q[i]);
    }
  }
}

void cpu_router_loss_dx(Device *dev, const KernelArgs *a) {
  each_part(dev, a, rows_of(&a->in[0]), row_grain(4 * last_dim(&a->in[0])),
            router_loss_dx_rows);
}
