/* permute.c - MoE token dispatch on one rank: permute, combine and their gradients; the
 * update of a router's bias. Destinations are assigned in token order, so they are the
 * same in every run. */
#include "kernels/cpu/kernel.h"
#include "vm/program/program.h"

/* ---- permute ---- */

/* The local index of a choice's expert, or -1 if it is on another rank. */
static int64_t local_expert(const KernelArgs *a, int64_t i) {
  int64_t here = a->out[1].dim[0] - 1;
  int64_t e = ((const int32_t *)a->in[1].p)[i] - (a->attr->cut ? a->index * here : 0);
  return e >= 0 && e < here ? e : -1;
}

/* True if x is dropped before y. A NaN is the heaviest, as torch.topk has it. */
static bool lighter(Choice x, Choice y) {
  if (isnan(x.weight) || isnan(y.weight))
    return isnan(x.weight) && isnan(y.weight) ? x.at > y.at : isnan(y.weight);
  return x.weight != y.weight ? x.weight < y.weight : x.at > y.at;
}

static void sift(Choice *c, int64_t i, int64_t n) {
  for (int64_t k; (k = 2 * i + 1) < n; i = k) {
    if (k + 1 < n && lighter(c[k + 1], c[k])) k++;
    if (!lighter(c[k], c[i])) return;
    Choice x = c[i];
    c[i] = c[k], c[k] = x;
  }
}

/* Marks all but the `most` heaviest of n choices, by a heap with the lightest as root. */
static void drop_light(Choice *c, int64_t n, int64_t most, int32_t *rows) {
  for (int64_t i = n / 2; i-- > 0;) sift(c, i, n);
  for (; n > most; n--) {
    rows[c[0].at] = ROW_DROPPED;
    c[0] = c[n - 1];
    sift(c, 0, n - 1);
  }
}

/* ---- capacity ---- */

/* Choices that share a capacity limit: those of one rank's tokens for one expert or, with
 * attr.bound, for the experts of one rank. */
typedef struct Limit {
  int64_t choices, sender; /* choices in all; choices of one rank */
  int64_t owner, owners;   /* experts per limit; number of such groups of experts here */
  int64_t most;
} Limit;

static Limit limit_of(const KernelArgs *a) {
  const OpAttr *at = a->attr;
  int64_t here = a->out[1].dim[0] - 1;
  Limit l = {.choices = count_of(&a->in[1]), .owners = here};
  l.sender = l.choices / MAX(at->n, 1);
  l.most = attr_rows_taken(at, l.choices);
  if (at->bound > 0) l.owners = at->cut ? 1 : MAX(at->parts, 1);
  l.owner = here / l.owners;
  return l;
}

/* The limit that applies to a choice of its rank's tokens; -1: its expert is
 * elsewhere. */
static int64_t group_of(const KernelArgs *a, const Limit *l, int64_t i) {
  int64_t e = local_expert(a, i);
  return e < 0 ? e : e / l->owner;
}

/* Drops the lightest choices of one rank's tokens, from `first` on. */
static void drop_by_weight(const KernelArgs *a, const Limit *l, int64_t first,
                           const int64_t *count) {
  Choice *c = a->work;
  for (int64_t g = 0; g < l->owners; g++) {
    int64_t n = 0;
    if (count[g] <= l->most) continue;
    for (int64_t i = first; i < first + l->sender; i++)
      if (group_of(a, l, i) == g)
        c[n++] = (Choice){((const float *)a->in[2].p)[i], (int32_t)i};
    drop_light(c, n, l->most, a->out[2].p);
  }
}

static void drop_last(const KernelArgs *a, const Limit *l, int64_t first) {
  int64_t count[EXPERTS_MAX] = {0};
  int32_t *rows = a->out[2].p;
  for (int64_t i = first; i < first + l->sender; i++)
    if (rows[i] >= 0 && ++count[group_of(a, l, i)] > l->most) rows[i] = ROW_DROPPED;
}

static bool take_rows_of(const KernelArgs *a, const Limit *l, int64_t first) {
  int64_t count[EXPERTS_MAX] = {0};
  int32_t *rows = a->out[2].p;
  bool fits = true;
  for (int64_t i = first; i < first + l->sender; i++) {
    int64_t g = group_of(a, l, i);
    rows[i] = g < 0 ? ROW_ELSEWHERE : 0;
    if (g >= 0) fits &= ++count[g] <= l->most;
  }
  if (fits) return true;
  if (a->attr->drop == DROP_PROBS)
    drop_by_weight(a, l, first, count);
  else
    drop_last(a, l, first);
  return a->attr->drop != DROP_NONE;
}

/* Marks the choices that get a row here; false if one over capacity must not be
 * dropped. */
static bool take_rows(const KernelArgs *a) {
  Limit l = limit_of(a);
  bool right = true;
  assert(l.owners <= EXPERTS_MAX);
  for (int64_t first = 0; first < l.choices; first += l.sender)
    right &= take_rows_of(a, &l, first);
  return right;
}

/* rows: the row of each choice; offsets: the first row of each expert. */
static void place_rows(const KernelArgs *a) {
  int64_t here = a->out[1].dim[0] - 1, choices = count_of(&a->in[1]);
  int32_t *offsets = a->out[1].p, *rows = a->out[2].p, next[EXPERTS_MAX];
  memset(offsets, 0, (size_t)(here + 1) * sizeof *offsets);
  for (int64_t i = 0; i < choices; i++)
    if (rows[i] >= 0) offsets[local_expert(a, i) + 1]++;
  for (int64_t e = 0; e < here; e++) {
    next[e] = offsets[e];
    offsets[e + 1] += offsets[e];
  }
  for (int64_t i = 0; i < choices; i++)
    if (rows[i] >= 0) rows[i] = next[local_expert(a, i)]++;
}

static size_t row_bytes(const KTensor *t) {
  return (size_t)last_dim(t) * (size_t)dtype_size(t->dtype);
}

static void permute_part(const KernelArgs *a, int64_t lo, int64_t hi) {
  const int32_t *rows = a->out[2].p;
  size_t row = row_bytes(&a->in[0]);
  int64_t k = last_dim(&a->in[1]);
  for (int64_t i = lo; i < hi; i++)
    if (rows[i] >= 0)
      memcpy((char *)a->out[0].p + (size_t)rows[i] * row,
             (const char *)a->in[0].p + (size_t)(i / k) * row, row);
}

/* Clears the rows from `used` on. */
static void clear_rows(const KTensor *x, int64_t used) {
  size_t row = row_bytes(x);
  memset((char *)x->p + (size_t)used * row, 0, (size_t)(x->dim[0] - used) * row);
}

void cpu_permute(Device *dev, const KernelArgs *a) {
  assert(a->in[0].dtype == a->out[0].dtype);
  const KTensor *y = &a->out[0];
  bool right = take_rows(a);
  place_rows(a);
  each_part(dev, a, count_of(&a->in[1]), row_grain(last_dim(&a->in[0])), permute_part);
  clear_rows(y, ((const int32_t *)a->out[1].p)[a->out[1].dim[0] - 1]);
  for (int64_t i = 0; !right && i < last_dim(y); i++) put(y->p, y->dtype, i, NAN);
}

/* ---- sums over a token's choices ---- */

/* weight NULL: all 1. */
INLINE void sum_choices(const KTensor *x, const KTensor *rows, const float *weight,
                        const KTensor *y, int64_t lo, int64_t hi, DType t) {
  enum { TILE = 256 };
  int64_t k = last_dim(rows), c = last_dim(x);
  for (int64_t r = lo; r < hi; r++) {
    const int32_t *row = (const int32_t *)rows->p + r * k;
    for (int64_t c0 = 0; c0 < c; c0 += TILE) {
      float sum[TILE] = {0};
      int n = (int)MIN(TILE, c - c0);
      for (int64_t j = 0; j < k; j++) {
        if (row[j] < 0) continue;
        const void *from = at(x->p, t, row[j] * c + c0);
        float w = weight ? weight[r * k + j] : 1;
#pragma omp simd
        for (int i = 0; i < n; i++) sum[i] += w * get(from, t, i);
      }
      void *to = at(y->p, t, r * c + c0);
#pragma omp simd
      for (int i = 0; i < n; i++) put(to, t, i, sum[i]);
    }
  }
}

INLINE void permute_dx(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  sum_choices(&a->in[0], &a->in[1], NULL, &a->out[0], lo, hi, t);
}
BY_TYPE(permute_dx, in[0])

void cpu_permute_dx(Device *dev, const KernelArgs *a) {
  each_part(dev, a, a->out[0].dim[0], row_grain(count_of(&a->out[0])), permute_dx_part);
}

INLINE void combine(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  sum_choices(&a->in[0], &a->in[2], a->in[1].p, &a->out[0], lo, hi, t);
}
BY_TYPE(combine, in[0])

void cpu_combine(Device *dev, const KernelArgs *a) {
  int64_t row = last_dim(&a->in[0]) * last_dim(&a->in[2]);
  each_part(dev, a, a->out[0].dim[0], row_grain(row), combine_part);
}

/* Each row belongs to one choice, so tokens write to distinct rows. */
INLINE void combine_dx(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  int64_t k = last_dim(&a->in[1]), c = last_dim(&a->in[0]);
  const float *weight = a->in[1].p;
  const int32_t *rows = a->in[2].p;
  float *dweight = a->out[1].p;
  for (int64_t i = lo * k; i < hi * k; i++) {
    float sum = 0, w = weight[i];
    if (rows[i] >= 0) {
      const void *x = at(a->in[0].p, t, rows[i] * c), *dy = at(a->in[3].p, t, i / k * c);
      void *dx = at(a->out[0].p, t, rows[i] * c);
#pragma omp simd reduction(+ : sum)
      for (int64_t j = 0; j < c; j++) {
        float d = get(dy, t, j);
        sum += d * get(x, t, j);
        put(dx, t, j, w * d);
      }
    }
    dweight[i] = sum;
  }
}
BY_TYPE(combine_dx, in[0])

void cpu_combine_dx(Device *dev, const KernelArgs *a) {
  const int32_t *rows = a->in[2].p;
  int64_t used = 0;
  for (int64_t i = 0; i < count_of(&a->in[2]); i++) used += rows[i] >= 0;
  clear_rows(&a->out[0], used);
  int64_t row = last_dim(&a->in[0]) * last_dim(&a->in[1]);
  each_part(dev, a, a->in[1].dim[0], row_grain(row), combine_dx_part);
}

/* ---- router bias ---- */

void cpu_bias_step(Device *dev, const KernelArgs *a) {
  const float *was = a->in[0].p;
  float *p = a->out[0].p, rate = a->attr->scale, mean = a->attr->theta;
  const float *load = a->in[1].p;
  const double *scal = a->in[2].p;
  const KTensor *copy = &a->out[1];
  bool over = a->attr->n > 0 && scal[SC_STEP] > a->attr->n;
  bool moves = scal[SC_HOLD] == 0 && !over;
  for (int64_t i = 0; i < count_of(&a->out[0]); i++) {
    float step = load[i] < mean ? rate : load[i] > mean ? -rate : 0;
    p[i] = was[i] + (moves ? step : 0);
    put(copy->p, copy->dtype, i, p[i]);
  }
}
