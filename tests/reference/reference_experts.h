/* reference_experts.h - a part of reference_ops.c: the reference of mixture of experts.
 */
#ifndef WEFT_TESTS_REF_EXPERTS_H
#define WEFT_TESTS_REF_EXPERTS_H

static void same_elements(RefArgs *a) {
  for (int64_t i = 0; i < ref_count(&a->in[0]); i++) OUT(0)[i] = IN(0)[i];
}
static void flatten(RefArgs *a) { same_elements(a); }
static void unflatten(RefArgs *a) { same_elements(a); }

/* ---- the router ---- */

static void router_logits(RefArgs *a) {
  int64_t n = a->in[0].dim[0], c = a->in[0].dim[1], experts = a->in[1].dim[0];
  for (int64_t i = 0; i < n * experts; i++) {
    OUT(0)[i] = 0;
    for (int64_t k = 0; k < c; k++)
      OUT(0)[i] += IN(0)[i / experts * c + k] * IN(1)[i % experts * c + k];
  }
}

static void router_logits_dx(RefArgs *a) {
  int64_t n = a->in[0].dim[0], experts = a->in[0].dim[1], c = a->in[1].dim[1];
  for (int64_t i = 0; i < n * c; i++) {
    OUT(0)[i] = 0;
    for (int64_t e = 0; e < experts; e++)
      OUT(0)[i] += IN(0)[i / c * experts + e] * IN(1)[e * c + i % c];
  }
}

static void router_logits_dw(RefArgs *a) {
  int64_t n = a->in[0].dim[0], c = a->in[0].dim[1], experts = a->in[1].dim[1];
  start(a, 0);
  for (int64_t i = 0; i < experts * c; i++)
    for (int64_t r = 0; r < n; r++)
      OUT(0)[i] += IN(1)[r * experts + i / c] * IN(0)[r * c + i % c];
}

static double exps(const double *l, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += exp(l[i]);
  return sum;
}

static double score(const RefArgs *a, const double *l, int64_t n, int64_t i) {
  return a->attr->score == SCORE_SIGMOID ? sigmoid(l[i]) : exp(l[i]) / exps(l, n);
}

/* The rank of v[i] in descending order; of equal ones the earlier is first. */
static int64_t place_of(const double *v, int64_t n, int64_t i) {
  int64_t before = 0;
  for (int64_t j = 0; j < n; j++) before += v[j] > v[i] || (v[j] == v[i] && j < i);
  return before;
}

static void keep_groups(const RefArgs *a, double *key, int64_t n) {
  int64_t size = n / a->attr->groups;
  int64_t best = a->attr->n ? a->attr->n : 2;
  double sum[EXPERTS_MAX] = {0};
  for (int64_t i = 0; i < n; i++)
    if (place_of(key + i / size * size, size, i % size) < best) sum[i / size] += key[i];
  for (int64_t i = 0; i < n; i++)
    if (place_of(sum, a->attr->groups, i / size) >= a->attr->topk_group)
      key[i] = -INFINITY;
}

static void route(RefArgs *a) {
  int64_t n = a->in[0].dim[1], k = a->attr->topk;
  for (int64_t r = 0; r < a->in[0].dim[0]; r++) {
    double key[EXPERTS_MAX], sum = 0;
    const double *l = IN(0) + r * n;
    bool keys = a->nin == 2 && a->in[1].ndim == 2;
    for (int64_t i = 0; i < n; i++)
      key[i] = keys ? IN(1)[r * n + i] : score(a, l, n, i) + (a->nin == 2 ? IN(1)[i] : 0);
    if (a->attr->groups) keep_groups(a, key, n);
    for (int64_t i = 0; i < n; i++) {
      int64_t place = place_of(key, n, i);
      if (place >= k) continue;
      OUT(1)[r * k + place] = (double)i;
      sum += score(a, l, n, i);
    }
    for (int64_t j = r * k; j < (r + 1) * k; j++) OUT(0)
    [j] = a->attr->scale * score(a, l, n, (int64_t)OUT(1)[j]) /
          (a->attr->norm_topk ? sum : 1);
  }
}

/* As Megatron has it: rows and columns are scaled in turn, each to the sum that all of
 * its kind get, with both lists of factors; what is returned are those of columns. */
static void sinkhorn(RefArgs *a) {
  int64_t n = a->in[0].dim[2], groups = a->out[0].dim[0];
  int64_t rows = ref_count(&a->in[0]) / n / groups;
  double *by_row = calloc((size_t)rows, sizeof *by_row);
  for (int64_t g = 0; g < groups; g++) {
    const double *l = IN(0) + g * rows * n;
    double *by = OUT(0) + g * n, moved = 1;
    for (int64_t i = 0; i < n; i++) by[i] = 1;
    for (int step = 0; a->attr->n && step < 1000 && moved > 1e-4; step++) {
      for (int64_t r = 0; r < rows; r++) {
        double sum = 1e-8;
        for (int64_t i = 0; i < n; i++) sum += by[i] * exp(l[r * n + i]);
        by_row[r] = 1 / (double)rows / sum;
      }
      moved = 0;
      for (int64_t i = 0; i < n; i++) {
        double sum = 1e-8, was = by[i];
        for (int64_t r = 0; r < rows; r++) sum += by_row[r] * exp(l[r * n + i]);
        by[i] = 1 / (double)n / sum;
        moved += fabs(by[i] - was) / (double)n;
      }
    }
    for (int64_t i = 0; i < n; i++) by[i] = log(by[i]);
  }
  free(by_row);
}

static void sequence_bias(RefArgs *a) {
  int64_t n = a->in[0].dim[2], all = ref_count(&a->in[0]);
  int64_t each = all / a->in[1].dim[0];
  for (int64_t i = 0; i < all; i++) OUT(0)[i] = IN(0)[i] + IN(1)[i / each * n + i % n];
}

/* The derivative of score i with respect to logit j. */
static double score_slope(const RefArgs *a, const double *l, int64_t n, int64_t i,
                          int64_t j) {
  double s = score(a, l, n, i);
  if (a->attr->score == SCORE_SIGMOID) return i == j ? s * (1 - s) : 0;
  return s * ((i == j) - score(a, l, n, j));
}

static void route_dx(RefArgs *a) {
  int64_t n = a->in[0].dim[1], k = a->attr->topk;
  for (int64_t r = 0; r < a->in[0].dim[0]; r++) {
    const double *l = IN(0) + r * n, *id = IN(1) + r * k, *dw = IN(2) + r * k;
    double sum = 0;
    for (int64_t j = 0; j < k; j++) sum += score(a, l, n, (int64_t)id[j]);
    for (int64_t i = 0; i < n; i++) {
      double d = 0, dsum = 0;
      for (int64_t j = 0; j < k; j++) dsum += score_slope(a, l, n, (int64_t)id[j], i);
      for (int64_t j = 0; j < k; j++) {
        double s = score(a, l, n, (int64_t)id[j]);
        double ds = score_slope(a, l, n, (int64_t)id[j], i);
        d += dw[j] * (a->attr->norm_topk ? (ds - s / sum * dsum) / sum : ds);
      }
      OUT(0)[r * n + i] = a->attr->scale * d;
    }
  }
}

static void expert_counts(RefArgs *a) {
  int64_t row = a->attr->experts + 1, rows = ref_count(&a->out[0]) / row;
  int64_t choices = ref_count(&a->in[0]), labels = ref_count(&a->in[1]);
  for (int64_t i = 0; i < rows * row; i++) OUT(0)[i] = 0;
  for (int64_t i = 0; i < choices; i++)
    OUT(0)[i * rows / choices * row + (int64_t)IN(0)[i]]++;
  for (int64_t i = 0; i < labels; i++)
    OUT(0)[i * rows / labels * row + row - 1] += IN(1)[i] != -100;
}

static void running_counts(RefArgs *a) {
  int64_t experts = ref_count(&a->in[0]) - 1;
  double before = IN(1)[experts];
  for (int64_t e = 0; e < experts; e++) {
    OUT(0)[e] = (IN(0)[e] + IN(1)[e]) / (before + 1);
    OUT(1)[e] = IN(0)[e] + IN(1)[e];
  }
  OUT(0)[experts] = IN(0)[experts];
  OUT(1)[experts] = before + 1;
}

static void expert_load(RefArgs *a) {
  start(a, 0);
  for (int64_t i = 0; i < ref_count(&a->in[0]); i++) OUT(0)[(int64_t)IN(0)[i]]++;
}

/* What a row adds to the loss, of which the logits of row `r` are `l`. */
static double row_loss(const RefArgs *a, const double *l, int64_t n, int64_t r) {
  const OpAttr *at = a->attr;
  int64_t counts = ref_count(&a->in[1]) / (n + 1);
  const double *count = IN(1) + r * counts / (ref_count(&a->in[0]) / n) * (n + 1);
  double all = at->n, sum = 0, balance = 0, lse = log(exps(l, n));
  for (int64_t i = 0; i < n; i++) sum += score(a, l, n, i);
  for (int64_t i = 0; i < n; i++)
    balance += count[i] / (all * at->topk) * score(a, l, n, i) / sum;
  return count[n] * (at->aux * (double)n * balance + at->z * lse * lse) / all;
}

static int64_t experts_of(const RefArgs *a) { return a->in[0].dim[a->in[0].ndim - 1]; }

static void router_loss(RefArgs *a) {
  int64_t n = experts_of(a);
  OUT(0)[0] = 0;
  for (int64_t r = 0; r < ref_count(&a->in[0]) / n; r++)
    OUT(0)[0] += row_loss(a, IN(0) + r * n, n, r);
}

/* By high-order finite differences, independent of the kernels' formula. */
static void router_loss_dx(RefArgs *a) {
  static const double at[] = {1, 2, 3}, by[] = {0.75, -0.15, 1.0 / 60};
  int64_t n = experts_of(a);
  for (int64_t i = 0; i < ref_count(&a->in[0]); i++) {
    double *l = IN(0) + i / n * n, old = IN(0)[i], d = 0;
    for (int k = 0; k < 3; k++) {
      const double h = 2e-3 * at[k];
      IN(0)[i] = old + h;
      d += by[k] * row_loss(a, l, n, i / n);
      IN(0)[i] = old - h;
      d -= by[k] * row_loss(a, l, n, i / n);
    }
    IN(0)[i] = old;
    OUT(0)[i] = IN(2)[0] * d / 2e-3;
  }
}

/* ---- dispatch and combine ---- */

/* True if two choices share a capacity limit. */
static bool share_limit(const RefArgs *a, int64_t i, int64_t j) {
  const OpAttr *at = a->attr;
  int64_t each = ref_count(&a->in[1]) / MAX(at->n, 1);
  if (at->bound == 0) return i / each == j / each && IN(1)[i] == IN(1)[j];
  double of = at->experts / MAX(at->parts, 1);
  return i / each == j / each && floor(IN(1)[i] / of) == floor(IN(1)[j] / of);
}

/* The mean number of choices per limit, times the factor. */
static double limit(const RefArgs *a) {
  const OpAttr *at = a->attr;
  double n = (double)ref_count(&a->in[1]);
  double most = at->capacity * n / MAX(at->n, 1) / at->experts;
  if (at->bound > 0) most = at->bound * n / MAX(at->n, 1) / MAX(at->parts, 1);
  return at->capacity > 0 || at->parts > 1 ? ceil(most - 1e-9) : INFINITY;
}

static void permute(RefArgs *a) {
  int64_t c = a->in[0].dim[1], k = a->in[1].dim[1], here = a->out[1].dim[0] - 1;
  int64_t choices = ref_count(&a->in[1]), first = a->attr->cut ? a->index * here : 0;
  double most = limit(a), row = 0;
  for (int64_t i = 0; i < choices; i++) OUT(2)[i] = -1;
  for (int64_t i = 0; i < ref_count(&a->out[0]); i++) OUT(0)[i] = 0;
  for (int64_t e = 0; e < here; e++) {
    OUT(1)[e] = row;
    for (int64_t i = 0; i < choices; i++) {
      if ((int64_t)IN(1)[i] != first + e) continue;
      double before = 0;
      for (int64_t j = 0; j < choices && isfinite(most); j++) {
        bool heavier = IN(2)[j] > IN(2)[i] || (IN(2)[j] == IN(2)[i] && j < i);
        before += share_limit(a, i, j) && (a->attr->drop == DROP_PROBS ? heavier : j < i);
      }
      if (before >= most) {
        OUT(2)[i] = -2;
        continue;
      }
      for (int64_t j = 0; j < c; j++) OUT(0)[(int64_t)row * c + j] = IN(0)[i / k * c + j];
      OUT(2)[i] = row++;
    }
  }
  OUT(1)[here] = row;
}

static void permute_dx(RefArgs *a) {
  int64_t c = a->in[0].dim[1], k = a->in[1].dim[1];
  for (int64_t i = 0; i < ref_count(&a->out[0]); i++) OUT(0)[i] = 0;
  for (int64_t i = 0; i < ref_count(&a->in[1]); i++)
    for (int64_t j = 0; j < c && IN(1)[i] >= 0; j++)
      OUT(0)[i / k * c + j] += IN(0)[(int64_t)IN(1)[i] * c + j];
}

static void expert_sizes(RefArgs *a) {
  for (int64_t i = 0; i < ref_count(&a->out[0]); i++) OUT(0)[i] = IN(0)[i + 1] - IN(0)[i];
}

static void expert_ends(RefArgs *a) {
  int64_t experts = a->in[0].dim[1];
  for (int64_t e = 0; e <= experts; e++) {
    OUT(0)[e] = 0;
    for (int64_t i = 0; i < ref_count(&a->in[0]); i++)
      OUT(0)[e] += i % experts < e ? IN(0)[i] : 0;
  }
}

/* Moves rows one by one, in their order. */
static void regroup(RefArgs *a) {
  bool inverse = a->attr->inverse;
  int64_t p = a->in[1].dim[0], e = a->in[1].dim[1], row = 0;
  int64_t place = inverse ? a->out[0].dim[1] : a->in[0].dim[1];
  int64_t c = inverse ? a->out[0].dim[2] : a->in[0].dim[2];
  for (int64_t i = 0; i < ref_count(&a->out[0]); i++) OUT(0)[i] = 0;
  for (int64_t b = 0; b < p * e; b++) {
    int64_t rank = a->attr->kind ? b % p : b / e, expert = a->attr->kind ? b / p : b % e;
    int64_t at = rank * place, n = (int64_t)IN(1)[rank * e + expert];
    for (int64_t f = 0; f < expert; f++) at += (int64_t)IN(1)[rank * e + f];
    for (int64_t i = 0; i < n * c; i++)
      OUT(0)[(inverse ? at : row) * c + i] = IN(0)[(inverse ? row : at) * c + i];
    row += n;
  }
}

static void combine(RefArgs *a) {
  int64_t c = a->in[0].dim[1], k = a->in[1].dim[1];
  for (int64_t i = 0; i < ref_count(&a->out[0]); i++) OUT(0)[i] = 0;
  for (int64_t i = 0; i < ref_count(&a->in[2]); i++)
    for (int64_t j = 0; j < c && IN(2)[i] >= 0; j++)
      OUT(0)[i / k * c + j] += IN(1)[i] * IN(0)[(int64_t)IN(2)[i] * c + j];
}

static void combine_dx(RefArgs *a) {
  int64_t c = a->in[0].dim[1], k = a->in[1].dim[1];
  for (int64_t i = 0; i < ref_count(&a->out[0]); i++) OUT(0)[i] = 0;
  for (int64_t i = 0; i < ref_count(&a->in[2]); i++) {
    OUT(1)[i] = 0;
    for (int64_t j = 0; j < c && IN(2)[i] >= 0; j++) {
      int64_t at = (int64_t)IN(2)[i] * c + j;
      OUT(0)[at] = IN(1)[i] * IN(3)[i / k * c + j];
      OUT(1)[i] += IN(0)[at] * IN(3)[i / k * c + j];
    }
  }
}

/* The expert of a row, or -1. */
static int64_t expert_of(const double *offsets, int64_t experts, int64_t row) {
  for (int64_t e = 0; e < experts; e++)
    if ((double)row >= offsets[e] && (double)row < offsets[e + 1]) return e;
  return -1;
}

/* Where the weight of expert e from input i to output o is. */
static int64_t grouped_at(const RefArgs *a, int64_t e, int64_t o, int64_t i, int64_t O,
                          int64_t I) {
  return e * O * I + (a->attr->layout ? i * O + o : o * I + i);
}

static void grouped_linear(RefArgs *a) {
  int64_t experts = a->in[1].dim[0], O = last(&a->out[0]), I = last(&a->in[0]);
  for (int64_t i = 0; i < ref_count(&a->out[0]); i++) {
    int64_t e = expert_of(IN(2), experts, i / O);
    OUT(0)[i] = 0;
    for (int64_t k = 0; k < I && e >= 0; k++)
      OUT(0)[i] += IN(0)[i / O * I + k] * IN(1)[grouped_at(a, e, i % O, k, O, I)];
  }
}

static void grouped_linear_dx(RefArgs *a) {
  int64_t experts = a->in[1].dim[0], O = last(&a->in[0]), I = last(&a->out[0]);
  for (int64_t i = 0; i < ref_count(&a->out[0]); i++) {
    int64_t e = expert_of(IN(2), experts, i / I);
    OUT(0)[i] = 0;
    for (int64_t k = 0; k < O && e >= 0; k++)
      OUT(0)[i] += IN(0)[i / I * O + k] * IN(1)[grouped_at(a, e, k, i % I, O, I)];
  }
}

static void grouped_linear_dw(RefArgs *a) {
  int64_t experts = a->out[0].dim[0], O = a->in[1].dim[1], I = a->in[0].dim[1];
  start(a, 0);
  for (int64_t r = 0; r < a->in[0].dim[0]; r++) {
    int64_t e = expert_of(IN(2), experts, r);
    for (int64_t i = 0; i < O * I && e >= 0; i++) {
      double *dw = OUT(0) + grouped_at(a, e, i / I, i % I, O, I);
      *dw += IN(1)[r * O + i / I] * IN(0)[r * I + i % I];
    }
  }
}

static void grouped_bias(RefArgs *a) {
  int64_t experts = a->in[1].dim[0], O = last(&a->in[0]);
  for (int64_t i = 0; i < ref_count(&a->out[0]); i++) {
    int64_t e = expert_of(IN(2), experts, i / O);
    double b = e >= 0 && !(a->attr->cut && a->index) ? IN(1)[e * O + i % O] : 0;
    OUT(0)[i] = e >= 0 ? IN(0)[i] + b : 0;
  }
}

static void grouped_bias_dw(RefArgs *a) {
  int64_t experts = a->out[0].dim[0], O = last(&a->in[0]);
  start(a, 0);
  for (int64_t i = 0; i < ref_count(&a->in[0]) && !(a->attr->cut && a->index); i++) {
    int64_t e = expert_of(IN(1), experts, i / O);
    if (e >= 0) OUT(0)[e * O + i % O] += IN(0)[i];
  }
}

static void bias_step(RefArgs *a) {
  bool held = IN(2)[SC_HOLD] != 0 || (a->attr->n > 0 && IN(2)[SC_STEP] > a->attr->n);
  for (int64_t i = 0; i < ref_count(&a->in[0]); i++) {
    double low = IN(1)[i]<a->attr->theta, high = IN(1)[i]> a->attr->theta;
    OUT(0)[i] = IN(0)[i] + (held ? 0 : a->attr->scale * (low - high));
    OUT(1)[i] = OUT(0)[i];
  }
}

#endif
