/* reference_step.h - a part of reference_ops.c: conversions of placement, and the ops
 * that run once a step. */
#ifndef WEFT_TESTS_REF_STEP_H
#define WEFT_TESTS_REF_STEP_H

/* ---- conversions of placement ---- */

/* Where element i of piece p of a dimension of length l0 comes from; -1: padding. */
static int64_t source(const RefArgs *a, int64_t p, int64_t i, int64_t l0, int64_t l) {
  int64_t parts = a->attr->parts > 1 ? a->attr->parts : 1;
  int64_t run = l / parts, part = l0 / parts, in_part = p * run + i % run;
  if (a->attr->mirror && i / run == 1) in_part = part - (p + 1) * run + i % run;
  return in_part < part ? i / run * part + in_part : -1;
}

static void slice(RefArgs *a) {
  int dim = a->attr->dim;
  int64_t inner = 1, l0 = a->in[0].dim[dim], l = a->out[0].dim[dim];
  for (int i = dim + 1; i < a->in[0].ndim; i++) inner *= a->in[0].dim[i];
  for (int64_t j = 0; j < ref_count(&a->out[0]); j++) {
    int64_t outer = j / inner / l, s = source(a, a->index, j / inner % l, l0, l);
    OUT(0)[j] = s < 0 ? 0 : IN(0)[(outer * l0 + s) * inner + j % inner];
  }
}

/* For element j of the pieces (n, outer, L, inner) its index in the whole, or -1. */
static int64_t unpacked(const RefArgs *a, const RefTensor *pieces, const RefTensor *whole,
                        int64_t j) {
  int64_t inner = pieces->dim[3], l = pieces->dim[2], outer = pieces->dim[1];
  int64_t s = source(a, j / inner / l / outer, j / inner % l, whole->dim[1], l);
  int64_t o = j / inner / l % outer;
  return s < 0 ? -1 : (o * whole->dim[1] + s) * inner + j % inner;
}

static void pack(RefArgs *a) {
  for (int64_t j = 0; j < ref_count(&a->out[0]); j++) {
    int64_t s = unpacked(a, &a->out[0], &a->in[0], j);
    OUT(0)[j] = s < 0 ? 0 : IN(0)[s];
  }
}

static void unpack(RefArgs *a) {
  for (int64_t j = 0; j < ref_count(&a->in[0]); j++) {
    int64_t s = unpacked(a, &a->in[0], &a->out[0], j);
    if (s >= 0) OUT(0)[s] = IN(0)[j];
  }
}

/* ---- once a step ---- out[0] holds the scalars before and after ---- */

static void count_labels(RefArgs *a) {
  OUT(0)[SC_TOKENS] = 0;
  for (int64_t i = 0; i < ref_count(&a->in[0]); i++)
    OUT(0)[SC_TOKENS] += IN(0)[i] != -100;
}

static void seed(RefArgs *a) {
  OUT(0)[0] = IN(0)[SC_SCALE] / (a->attr->n ? a->attr->n : fmax(IN(0)[SC_TOKENS], 1));
}

static void acc_loss(RefArgs *a) { OUT(0)[SC_LOSS] += IN(0)[0]; }

static void acc_sources(RefArgs *a) {
  for (int64_t r = 0; r < ref_count(&a->in[1]); r++) {
    int k = SC_SOURCES + 2 * (int)IN(2)[r];
    if (IN(1)[r] == -100) continue;
    OUT(0)[k] += log(IN(0)[2 * r]) - IN(0)[2 * r + 1];
    OUT(0)[k + 1]++;
  }
}

static void acc_rows(RefArgs *a) {
  int64_t experts = a->in[0].dim[0] - 1;
  for (int64_t e = 0; e < experts; e++) {
    OUT(0)[SC_ROWS_MAX] = fmax(OUT(0)[SC_ROWS_MAX], IN(0)[e + 1] - IN(0)[e]);
    OUT(0)[SC_ROWS] += IN(0)[e + 1] - IN(0)[e];
    OUT(0)[SC_ROWS_EXPERTS]++;
  }
}

static void acc_dropped(RefArgs *a) {
  for (int64_t i = 0; i < ref_count(&a->in[0]); i++) OUT(0)[SC_DROPPED] += IN(0)[i] == -2;
}

static void sqnorm(RefArgs *a) {
  for (int64_t i = 0; i < ref_count(&a->in[0]); i++)
    OUT(0)[a->attr->n] += IN(0)[i] * IN(0)[i];
}

static double clip_factor(double norm, double clip) {
  return clip > 0 && norm + 1e-6 > clip ? clip / (norm + 1e-6) : 1;
}

static void clip_coef(RefArgs *a) {
  double norm = sqrt(IN(0)[SC_NORM2]) / IN(0)[SC_SCALE], guess = IN(0)[SC_GUESS];
  bool skip = !(isfinite(norm) && isfinite(IN(0)[SC_LOSS]) && IN(0)[SC_TOKENS] > 0);
  OUT(0)[SC_NORM] = norm;
  OUT(0)[SC_CLIP] = clip_factor(norm, a->attr->clip) / IN(0)[SC_SCALE];
  OUT(0)[SC_SKIP] = skip;
  OUT(0)[SC_UNDO] = guess != 0 && (skip || guess != OUT(0)[SC_CLIP]);
  OUT(0)[SC_HOLD] = skip || guess == OUT(0)[SC_CLIP];
}

static void clip_guess(RefArgs *a) {
  double scale = IN(0)[SC_SCALE], norm = sqrt(IN(0)[SC_NORM2]) / scale;
  double clip = clip_factor(norm, a->attr->clip);
  bool held = !isfinite(norm) || IN(0)[SC_CAREFUL] != 0 || (a->attr->n == 0 && clip != 1);
  OUT(0)[SC_CLIP] = clip / scale;
  OUT(0)[SC_HOLD] = held;
  OUT(0)[SC_GUESS] = held ? 0 : clip / scale;
}

static void adamw(RefArgs *a) {
  const double *sc = IN(4);
  const OpAttr *at = a->attr;
  if (sc[SC_HOLD] != 0) return;
  for (int64_t i = 0; i < ref_count(&a->in[0]); i++) {
    double p = IN(0)[i], g = IN(1)[i] * sc[SC_CLIP];
    double m = at->beta1 * IN(2)[i] + (1 - at->beta1) * g;
    double v = at->beta2 * IN(3)[i] + (1 - at->beta2) * g * g;
    double step = m == 0 ? 0 : m / sc[SC_BC1] / (sqrt(v / sc[SC_BC2]) + at->eps);
    p -= attr_lr(at, sc[SC_LR]) * (step + at->weight_decay * p);
    OUT(0)[i] = OUT(3)[i] = p;
    OUT(1)[i] = m;
    OUT(2)[i] = v;
  }
}

/* As adamw of a gradient with the decay, which is then none. */
static void adam(RefArgs *a) {
  const double *sc = IN(4);
  const OpAttr *at = a->attr;
  if (sc[SC_HOLD] != 0) return;
  for (int64_t i = 0; i < ref_count(&a->in[0]); i++) {
    double p = IN(0)[i], g = IN(1)[i] * sc[SC_CLIP] + at->weight_decay * p;
    double m = at->beta1 * IN(2)[i] + (1 - at->beta1) * g;
    double v = at->beta2 * IN(3)[i] + (1 - at->beta2) * g * g;
    double step = m == 0 ? 0 : m / sc[SC_BC1] / (sqrt(v / sc[SC_BC2]) + at->eps);
    OUT(0)[i] = OUT(3)[i] = p - attr_lr(at, sc[SC_LR]) * step;
    OUT(1)[i] = m;
    OUT(2)[i] = v;
  }
}

static void sgd(RefArgs *a) {
  const double *sc = IN(3);
  const OpAttr *at = a->attr;
  if (sc[SC_HOLD] != 0) return;
  for (int64_t i = 0; i < ref_count(&a->in[0]); i++) {
    double x = IN(1)[i] * sc[SC_CLIP] + at->weight_decay * IN(0)[i], m = x;
    if (at->momentum != 0)
      m = at->momentum * IN(2)[i] + (sc[SC_STEP] == 1 ? 1 : 1 - at->dampening) * x;
    double by = at->nesterov != 0 ? x + at->momentum * m : m;
    OUT(0)[i] = OUT(2)[i] = IN(0)[i] - attr_lr(at, sc[SC_LR]) * by;
    OUT(1)[i] = m;
  }
}

static void sgd_plain(RefArgs *a) {
  const double *sc = IN(2);
  const OpAttr *at = a->attr;
  if (sc[SC_HOLD] != 0) return;
  for (int64_t i = 0; i < ref_count(&a->in[0]); i++) {
    double x = IN(1)[i] * sc[SC_CLIP] + at->weight_decay * IN(0)[i];
    OUT(0)[i] = OUT(1)[i] = IN(0)[i] - attr_lr(at, sc[SC_LR]) * x;
  }
}

/* What an optimizer of one state overwrites. */
static void keep_state(RefArgs *a) {
  for (int64_t i = 0; i < ref_count(&a->in[0]); i++) {
    OUT(3)[i] = IN(0)[i];
    OUT(4)[i] = IN(2)[i];
  }
}

static void sgd_try(RefArgs *a) {
  keep_state(a);
  sgd(a);
}

static void lion(RefArgs *a) {
  const double *sc = IN(3);
  const OpAttr *at = a->attr;
  if (sc[SC_HOLD] != 0) return;
  for (int64_t i = 0; i < ref_count(&a->in[0]); i++) {
    double p = IN(0)[i], g = IN(1)[i] * sc[SC_CLIP], m = IN(2)[i];
    double to = at->beta1 * m + (1 - at->beta1) * g;
    double sign = to > 0 ? 1 : to < 0 ? -1 : 0;
    OUT(0)[i] = OUT(2)[i] = p - attr_lr(at, sc[SC_LR]) * (sign + at->weight_decay * p);
    OUT(1)[i] = at->beta2 * m + (1 - at->beta2) * g;
  }
}

static void lion_try(RefArgs *a) {
  keep_state(a);
  lion(a);
}

static void keep_states(RefArgs *a) {
  for (int64_t i = 0; i < ref_count(&a->in[0]); i++) {
    OUT(4)[i] = IN(0)[i];
    OUT(5)[i] = IN(2)[i];
    OUT(6)[i] = IN(3)[i];
  }
}

static void adamw_try(RefArgs *a) {
  keep_states(a);
  adamw(a);
}

static void adam_try(RefArgs *a) {
  keep_states(a);
  adam(a);
}

static void adamw_8bit(RefArgs *a) { adamw(a); }

static void adamw_8bit_try(RefArgs *a) { adamw_try(a); }

static void matrix_average(RefArgs *a) {
  const double *sc = IN(2);
  double mu = a->attr->momentum;
  for (int64_t i = 0; i < ref_count(&a->in[1]); i++) {
    double x = IN(0)[i] * sc[SC_CLIP], m = mu * IN(1)[i] + (1 - mu) * x;
    OUT(1)[i] = sc[SC_HOLD] != 0 ? 0 : a->attr->nesterov != 0 ? x + mu * (m - x) : m;
    if (sc[SC_HOLD] == 0) OUT(0)[i] = m;
  }
}

/* Copies a matrix out of the pieces that the boxes have of it, or, if `into` them, the
 * other way, with zeros in the place of padding. */
static void matrix_pieces(RefArgs *a, const RefTensor *boxes, double *in_boxes,
                          const RefTensor *x, double *in_x, bool into) {
  const OpAttr *at = a->attr;
  int64_t pieces = boxes->dim[0], n = boxes->dim[1];
  int64_t whole[2] = {x->dim[at->inverse != 0], x->dim[at->inverse == 0]};
  int64_t parts = at->parts > 1 ? at->parts : 1, here[2] = {whole[0], whole[1]};
  here[at->dim] = parts * ((whole[at->dim] / parts + pieces - 1) / pieces);
  for (int64_t k = 0; k < pieces * here[0] * here[1]; k++) {
    int64_t at_dim[2] = {k / here[1] % here[0], k % here[1]}, p = k / here[1] / here[0];
    double *there = &in_boxes[p * n + (int64_t)at->first + k % (here[0] * here[1])];
    int64_t s = source(a, p, at_dim[at->dim], whole[at->dim], here[at->dim]);
    if (into) *there = 0;
    if (s < 0 || (into && a->index != at->from)) continue;
    at_dim[at->dim] = s;
    int64_t place = at->inverse ? at_dim[1] * x->dim[1] + at_dim[0]
                                : at_dim[0] * x->dim[1] + at_dim[1];
    if (into)
      *there = at->scale * in_x[place];
    else
      in_x[place] = *there;
  }
}

static void matrix_take(RefArgs *a) {
  if (a->index == a->attr->from)
    matrix_pieces(a, &a->in[0], (double *)IN(0), &a->out[0], OUT(0), false);
}

static void matrix_put(RefArgs *a) {
  matrix_pieces(a, &a->out[0], OUT(0), &a->in[0], (double *)IN(0), true);
}

static void unit_norm(RefArgs *a) {
  double sum = 0;
  for (int64_t i = 0; i < ref_count(&a->in[0]); i++) sum += IN(0)[i] * IN(0)[i];
  for (int64_t i = 0; i < ref_count(&a->in[0]); i++)
    OUT(0)[i] = IN(0)[i] / fmax(sqrt(sum), a->attr->eps);
}

static void matrix_step(RefArgs *a) {
  const double *sc = IN(2);
  if (sc[SC_HOLD] != 0) return;
  double lr = attr_lr(a->attr, sc[SC_LR]);
  for (int64_t i = 0; i < ref_count(&a->in[0]); i++)
    OUT(0)[i] = OUT(1)[i] = IN(0)[i] - lr * (a->attr->weight_decay * IN(0)[i] + IN(1)[i]);
}

/* ---- averages of rows and columns ---- */

/* An element of the rank's shard: its matrix, row and column. */
typedef struct Factor {
  int64_t m, i, j;
  bool in, padding; /* in the parameter; of no matrix */
} Factor;

/* Of element k of n that the shard has, of so many matrices. */
static Factor factor_at(const RefArgs *a, int64_t k, int64_t n, int64_t matrices) {
  const OpAttr *at = a->attr;
  int64_t x = a->shard * n + k - (int64_t)at->first;
  if (at->rows == 0) return (Factor){.in = x >= 0 && x < at->n, .j = x};
  int64_t whole[2] = {at->rows, at->cols}, here[2] = {at->rows, at->cols};
  int64_t parts = at->parts > 1 ? at->parts : 1;
  here[at->dim] = parts * ((whole[at->dim] / parts + at->pieces - 1) / at->pieces);
  int64_t each = here[0] * here[1];
  if (x < 0 || x >= matrices * each) return (Factor){0};
  int64_t of[2] = {x % each / here[1], x % here[1]};
  of[at->dim] = source(a, a->index, of[at->dim], whole[at->dim], here[at->dim]);
  return (Factor){x / each, of[0], of[1], true, of[at->dim] < 0};
}

static void factored_sums(RefArgs *a) {
  const double *sc = IN(2);
  int64_t n = ref_count(&a->in[0]), M = a->out[0].dim[0], W = a->out[0].dim[1];
  int64_t R = a->attr->rows;
  for (int64_t k = 0; k < M * W; k++) OUT(0)[k] = 0;
  for (int64_t k = 0; k < n; k++) {
    Factor f = factor_at(a, k, n, M);
    double x = IN(1)[k] * sc[SC_CLIP], *to = &OUT(0)[f.m * W];
    if (!f.in || f.padding) continue;
    to[R ? W - R + f.i : 0] += IN(0)[k] * IN(0)[k];
    if (R) to[f.i] += x * x, to[R + f.j] += x * x;
  }
}

static void factored_average(RefArgs *a) {
  const double *sc = IN(3);
  int64_t n = ref_count(&a->in[0]), R = a->attr->rows, C = a->attr->cols;
  double by = pow(sc[SC_STEP], a->attr->beta2_decay);
  if (sc[SC_HOLD] != 0) return;
  for (int64_t k = 0; k < (R ? 0 : n); k++) {
    double x = IN(0)[k] * sc[SC_CLIP];
    if (factor_at(a, k, n, 1).in) OUT(0)[k] += by * (x * x - OUT(0)[k]);
  }
  for (int64_t k = 0; R && k < ref_count(&a->out[0]); k++) {
    int64_t m = k / (R + C), i = k % (R + C);
    double mean = IN(2)[m * (2 * R + C) + i] / (double)(i < R ? C : R);
    OUT(0)[k] += by * (mean - OUT(0)[k]);
  }
}

/* x over the root of its variance. */
static double factored_over(const RefArgs *a, Factor f, int64_t k, double x,
                            const double *v) {
  int64_t R = a->attr->rows, C = a->attr->cols;
  const double *of = v + f.m * (R + C);
  double least = a->attr->epsilon, w = R ? 0 : v[k], mean = 0;
  for (int64_t i = 0; i < R; i++) mean += of[i] / (double)R;
  if (R) w = of[f.i] * of[R + f.j] / fmax(mean, least);
  return x / sqrt(fmax(w, least * least));
}

static void factored_norm(RefArgs *a) {
  const double *sc = IN(2);
  int64_t n = ref_count(&a->in[0]), M = a->out[0].dim[0], R = a->out[0].dim[1];
  for (int64_t k = 0; k < M * R; k++) OUT(0)[k] = 0;
  for (int64_t k = 0; k < n && sc[SC_HOLD] == 0; k++) {
    Factor f = factor_at(a, k, n, M);
    if (!f.in || f.padding) continue;
    double u = factored_over(a, f, k, IN(0)[k] * sc[SC_CLIP], IN(1));
    OUT(0)[f.m * R + f.i] += u * u;
  }
}

static void factored_step(RefArgs *a) {
  const OpAttr *at = a->attr;
  const double *sc = IN(5);
  int64_t n = ref_count(&a->in[0]), M = a->in[4].dim[0], R = a->in[4].dim[1];
  int64_t W = a->in[3].dim[1];
  double all = (double)(R * at->cols), lr = attr_lr(at, sc[SC_LR]);
  if (sc[SC_HOLD] != 0) return;
  for (int64_t k = 0; k < n; k++) {
    Factor f = factor_at(a, k, n, M);
    double p2 = 0, u2 = 0, rate = lr, p = IN(0)[k], u = 0;
    if (!f.in) continue;
    for (int64_t i = 0; i < R; i++)
      p2 += IN(3)[(f.m + 1) * W - R + i], u2 += IN(4)[f.m * R + i];
    if (at->relative_step != 0) rate = fmin(rate, 1 / sqrt(sc[SC_STEP]));
    if (at->scale_parameter != 0) rate *= fmax(at->least_rms, sqrt(p2 / all));
    rate /= fmax(1, sqrt(u2 / all) / at->threshold);
    u = f.padding ? IN(1)[k] * sc[SC_CLIP]
                  : factored_over(a, f, k, IN(1)[k] * sc[SC_CLIP], IN(2));
    OUT(0)[k] = OUT(1)[k] = p - lr * at->weight_decay * p - rate * u;
  }
}

static void step_undo(RefArgs *a) {
  int kept = a->nin - 1;
  if (IN(kept)[SC_UNDO] == 0) return;
  for (int64_t i = 0; i < ref_count(&a->in[0]); i++) {
    OUT(0)[i] = OUT(1)[i] = IN(0)[i];
    for (int k = 1; k < kept; k++) OUT(k + 1)[i] = IN(k)[i];
  }
}

static void scal_add(RefArgs *a) { OUT(0)[a->attr->n] += OUT(0)[a->attr->dim]; }

static void scal_zero(RefArgs *a) {
  for (int i = SC_ZERO_FROM; i < SC_N; i++) OUT(0)[i] = 0;
}

#endif
