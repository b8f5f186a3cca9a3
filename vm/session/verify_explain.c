/* verify_explain.c - which part of a parameter's difference follows from the differences
 * of gradients and states: Adam turns noise in these into steps of full size. */
#include "verify_int.h"

#include <math.h>

/* The factor by which clipping scales gradients. */
static double clip_of(const Verify *v, const StepResult *s) {
  double clip = v->plan->opt.clip;
  return clip > 0 ? fmin(1, clip / (s->grad_norm + 1e-6)) : 1;
}

/* The change of element i by the step of `many` (side 0) or `one`, without weight decay,
 * which is the same on both sides. */
static double taken(const Verify *v, const StepResult *s, int side, int param, int64_t i,
                    int64_t first, bool *either) {
  const OptimizerInfo *o = v->optimizer;
  Element x = {.grad = v->buf[B_GRAD + side][i] * clip_of(v, s)};
  for (int k = 0; k < o->states; k++) {
    x.after[k] = v->buf[B_STATE + 2 * k + side][i];
    if (v->before[k]) x.before[k] = v->before[k][first + i];
  }
  const CompiledParam *p = &v->c->param[param];
  double lr = s->lr * plan_lr_factor(v->plan, p->group, p->matrix);
  return o->changes(&v->plan->opt, lr, (double)s->step + 1, &x, either);
}

/* Subtracts from the parameters of `many` the differences that follow from gradients and
 * states; returns the L2 norm of the change of `one`. Where rounding decides the sign of
 * a step, either sign is accepted. */
static double explain(Verify *v, const StepResult *many, const StepResult *one, int param,
                      int64_t first, int64_t n) {
  float *p = v->buf[B_PARAM], *q = v->buf[B_PARAM + 1];
  double norm = 0;
  for (int64_t i = 0; i < n; i++) {
    bool either = false;
    double a = taken(v, many, 0, param, i, first, &either);
    double b = taken(v, one, 1, param, i, first, &either);
    p[i] = (float)(p[i] + a - b);
    if (either && fabs(p[i] - q[i]) <= 2.1 * fabs(b)) p[i] = q[i];
    norm += b * b;
  }
  return sqrt(norm);
}

/* The average that the step of a matrix makes orthogonal: from that before the step, as
 * the one that is stored may be rounded. */
static double average(const Verify *v, const StepResult *s, int side, int64_t i,
                      int64_t first) {
  const Optimizer *o = &v->plan->opt;
  double g = v->buf[B_GRAD + side][i] * clip_of(v, s), m = v->before[0][first + i];
  m += (1 - o->momentum) * (g - m);
  return o->nesterov ? g + o->momentum * (m - g) : m;
}

/* The same for the k-th matrix of a parameter that is stepped as a whole. */
static weft_status explain_matrix(Verify *v, const StepResult *const s[2], int param,
                                  int64_t k, int64_t first, weft_error *e) {
  const CompiledParam *p = &v->c->param[param];
  const Optimizer *o = &v->plan->opt;
  int64_t rows = p->dim[p->ndim - 2], cols = p->dim[p->ndim - 1], n = rows * cols;
  double step = s[1]->lr * plan_lr_factor(v->plan, p->group, p->matrix);
  step *= optimizer_adjusts(o, rows, cols);
  for (int side = 0; side < 2; side++) {
    float *m = v->buf[B_STATE + side];
    for (int64_t i = 0; i < n; i++)
      m[i] = (float)average(v, s[side], side, k * n + i, first);
    TRY(orthogonal(&v->orthogonal, o, rows, cols, m, e));
  }
  for (int64_t i = 0; i < n; i++) {
    double a = v->buf[B_STATE][i], b = v->buf[B_STATE + 1][i];
    float *at = &v->buf[B_PARAM][k * n + i];
    *at = (float)(*at + step * (a - b));
  }
  return WEFT_OK;
}

/* And for all of them. An iteration multiplies rounding by the first coefficient at most,
 * which it does where a matrix has less than full rank, such as the gradient of a router,
 * whose rows add up to 0. *bound: the norm of the difference that may follow from that.
 * *norm: that of the change. */
static weft_status explain_matrices(Verify *v, const StepResult *const s[2], int param,
                                    int64_t first, double *norm, double *bound,
                                    weft_error *e) {
  const double rounding = 8 * 0x1p-24; /* of f32, in an iteration */
  const CompiledParam *p = &v->c->param[param];
  const Optimizer *o = &v->plan->opt;
  int64_t count = p->ndim > 2 ? p->dim[0] : 1;
  int64_t rows = p->dim[p->ndim - 2], cols = p->dim[p->ndim - 1];
  double gain = 1;
  for (int64_t i = 0; i < o->ns_steps; i++) gain *= fmax(1, fabs(optimizer_ns(o, i)[0]));
  double step = s[1]->lr * plan_lr_factor(v->plan, p->group, p->matrix);
  step *= optimizer_adjusts(o, rows, cols);
  for (int64_t k = 0; k < count; k++) TRY(explain_matrix(v, s, param, k, first, e));
  *bound = sqrt((double)count) * step * fmin(gain * rounding, 1);
  *norm = step * sqrt((double)(count * MIN(rows, cols)));
  return WEFT_OK;
}

/* ---- steps of whole parameters ---- */

/* A matrix, of which `v` has averages of rows and columns, or, with rows 0, a parameter
 * of `cols` elements, with one of each; and the step of one side. */
typedef struct Factored {
  const Optimizer *o;
  int64_t rows, cols;
  const float *g, *v, *p; /* p before the step */
  double clip, lr, t;
} Factored;

static double mean_of_rows(const Factored *f) {
  double sum = 0;
  for (int64_t i = 0; i < f->rows; i++) sum += f->v[i];
  return fmax(sum / (double)MAX(f->rows, 1), f->o->epsilon);
}

/* Element (i, j) of the gradient over the root of its variance. */
static double normalised(const Factored *f, double mean, int64_t i, int64_t j) {
  double w = f->rows ? (double)f->v[i] * f->v[f->rows + j] / mean : f->v[j];
  return f->g[i * f->cols + j] * f->clip / sqrt(fmax(w, f->o->epsilon * f->o->epsilon));
}

/* Writes what the step takes from each element. */
static void factored_step(const Factored *f, float *to) {
  const Optimizer *o = f->o;
  int64_t rows = MAX(f->rows, 1), n = rows * f->cols;
  double u = 0, p = 0, mean = mean_of_rows(f), rate = f->lr;
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < f->cols; j++) {
      double x = normalised(f, mean, i, j), y = f->p[i * f->cols + j];
      u += x * x, p += y * y;
    }
  if (o->relative_step) rate = fmin(rate, 1 / sqrt(f->t));
  if (o->scale_parameter) rate *= fmax(o->least_rms, sqrt(p / (double)n));
  rate /= fmax(1, sqrt(u / (double)n) / o->threshold);
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < f->cols; j++)
      to[i * f->cols + j] = (float)(rate * normalised(f, mean, i, j));
}

/* Subtracts from the parameter of `many` what follows from differences of gradients and
 * averages; returns the norm of the change of `one`. */
static double explain_factored(Verify *v, const StepResult *const s[2], int param,
                               int64_t first) {
  const CompiledParam *p = &v->c->param[param];
  int apart = p->ndim > 2 ? MAX(p->parts[p->ndim - 2], 1) : 1;
  int64_t count = p->factors && p->ndim > 2 ? p->dim[0] * apart : 1;
  int64_t cols = p->factors ? p->dim[p->ndim - 1] : param_count(p);
  int64_t rows = p->factors ? p->dim[p->ndim - 2] / apart : 0;
  int64_t all = param_count(p), each = all / count;
  double norm = 0;
  for (int side = 0; side < 2; side++) {
    Factored f = {.o = &v->plan->opt,
                  .rows = rows,
                  .cols = cols,
                  .clip = clip_of(v, s[side]),
                  .lr = s[side]->lr * plan_lr_factor(v->plan, p->group, p->matrix),
                  .t = (double)s[side]->step + 1};
    for (int64_t k = 0; k < count; k++) {
      f.g = v->buf[B_GRAD + side] + k * each, f.p = v->value + first + k * each;
      f.v = v->buf[B_STATE + side] + (rows ? k * (rows + cols) : 0);
      factored_step(&f, v->buf[B_GRAD + side] + k * each);
    }
  }
  for (int64_t i = 0; i < all; i++) {
    double a = v->buf[B_GRAD][i], b = v->buf[B_GRAD + 1][i];
    v->buf[B_PARAM][i] = (float)(v->buf[B_PARAM][i] + a - b);
    norm += b * b;
  }
  return sqrt(norm);
}

weft_status explain_param(Verify *v, const StepResult *many, const StepResult *one,
                          int param, int64_t first, double *norm, double *bound,
                          weft_error *e) {
  *bound = 0;
  if (v->optimizer->matrices && v->c->param[param].matrix)
    return explain_matrices(v, (const StepResult *[2]){many, one}, param, first, norm,
                            bound, e);
  if (v->optimizer->factored) {
    if (!v->c->param[param].frozen && !(v->c->param[param].share > 0))
      *norm = explain_factored(v, (const StepResult *[2]){many, one}, param, first);
    return WEFT_OK;
  }
  *norm = explain(v, many, one, param, first, param_count(&v->c->param[param]));
  return WEFT_OK;
}
