/* factored.c - the step of Adafactor, of which vm/lower/factored_step.c has the formulas:
 * sums over the rows and columns of matrices, their averages, the norm of the step, and
 * the step. Sums are of what the rank has, in f64, in an order that no thread changes. */
#include "step_kernels.h"

#include "vm/graph/factored_places.h"

/* ---- places ---- */

static FactoredPlaces places_of(const KernelArgs *a, const KTensor *g, int64_t matrices) {
  const OpAttr *t = a->attr;
  return factored_places(matrices, t->rows, t->cols, t->n, t->dim, t->parts, t->pieces,
                         a->index, (int64_t)t->first, count_of(g), a->shard);
}

static int64_t rows_of_all(const FactoredPlaces *f) { return f->matrices * f->here; }

static float clip_of(const KernelArgs *a) { return (float)scalars_of(a)[SC_CLIP]; }

/* ---- sums ---- */

/* Of a run, what `get` reads: the sum of (x * by)^2. */
static double squares(const KTensor *x, int64_t from, int64_t n, float by) {
  double sum = 0;
  for (int64_t i = from; i < from + n; i++) {
    double v = get(x->p, x->dtype, i) * by;
    sum += v * v;
  }
  return sum;
}

static void sums_of_rows(const KernelArgs *a, int64_t lo, int64_t hi) {
  FactoredPlaces f = places_of(a, &a->in[1], a->out[0].dim[0]);
  int64_t wide = a->out[0].dim[1];
  double *s = a->out[0].p;
  for (int64_t k = lo; k < hi; k++) {
    RowRun r = factored_row(&f, k);
    double *to = s + r.matrix * wide;
    if (r.row < 0 || !r.n) continue;
    to[wide - f.rows + r.row] = squares(&a->in[0], r.from, r.n, 1);
    if (a->attr->rows) to[r.row] = squares(&a->in[1], r.from, r.n, clip_of(a));
  }
}

/* Columns [lo, hi) of the pieces of all matrices, one behind the other. */
static void sums_of_cols(const KernelArgs *a, int64_t lo, int64_t hi) {
  FactoredPlaces f = places_of(a, &a->in[1], a->out[0].dim[0]);
  const KTensor *g = &a->in[1];
  int64_t wide = a->out[0].dim[1];
  float clip = clip_of(a);
  for (int64_t m = lo / f.at.cols; m * f.at.cols < hi; m++) {
    double *to = (double *)a->out[0].p + m * wide + f.rows;
    int64_t first = MAX(lo - m * f.at.cols, 0), end = MIN(hi - m * f.at.cols, f.at.cols);
    for (int64_t i = 0; i < f.here; i++) {
      RowRun r = factored_row(&f, m * f.here + i);
      if (r.row < 0) continue;
      for (int64_t j = MAX(first, r.first); j < MIN(end, r.first + r.n); j++) {
        double x = get(g->p, g->dtype, r.from + j - r.first) * clip;
        int64_t col = factored_col(&f, j);
        if (col >= 0) to[col] += x * x;
      }
    }
  }
}

void cpu_factored_sums(Device *dev, const KernelArgs *a) {
  FactoredPlaces f = places_of(a, &a->in[1], a->out[0].dim[0]);
  memset(a->out[0].p, 0, sizeof(double) * (size_t)count_of(&a->out[0]));
  each_part(dev, a, rows_of_all(&f), row_grain(f.at.cols), sums_of_rows);
  if (a->attr->rows)
    each_part(dev, a, f.matrices * f.at.cols, MAX(COLUMN_GRAIN, row_grain(f.here)),
              sums_of_cols);
}

/* ---- averages ---- */

static float toward(float old, double x, double by) {
  return (float)(old + by * (x - old));
}

static double share_of_new(const KernelArgs *a) {
  return pow(scalars_of(a)[SC_STEP], a->attr->beta2_decay);
}

/* Of rows and columns: every rank makes all of them. */
static void factors_part(const KernelArgs *a, int64_t lo, int64_t hi) {
  int64_t rows = a->attr->rows, cols = a->attr->cols, n = rows + cols;
  const float *v = a->in[1].p;
  const double *s = a->in[2].p, by = share_of_new(a);
  float *to = a->out[0].p;
  for (int64_t k = lo; k < hi; k++) {
    int64_t m = k / n, i = k % n;
    double mean = s[m * (n + rows) + i] / (double)(i < rows ? cols : rows);
    to[k] = toward(v[k], mean, by);
  }
}

/* Of elements: those of the rank's shard, but only of this parameter. */
static void elements_part(const KernelArgs *a, int64_t lo, int64_t hi) {
  FactoredPlaces f = places_of(a, &a->in[0], 1);
  RowRun r = factored_row(&f, 0);
  const KTensor *g = &a->in[0];
  const float *v = a->in[1].p;
  float clip = clip_of(a), *to = a->out[0].p;
  double by = share_of_new(a);
  for (int64_t i = r.from + lo; i < r.from + hi; i++) {
    double x = get(g->p, g->dtype, i) * clip;
    to[i] = toward(v[i], x * x, by);
  }
}

void cpu_factored_average(Device *dev, const KernelArgs *a) {
  if (scalars_of(a)[SC_HOLD] != 0) return;
  if (a->attr->rows) {
    each_part(dev, a, count_of(&a->out[0]), ELEMENT_GRAIN, factors_part);
    return;
  }
  FactoredPlaces f = places_of(a, &a->in[0], 1);
  each_part(dev, a, factored_row(&f, 0).n, ELEMENT_GRAIN, elements_part);
}

/* ---- the step along a gradient over the root of its variance ---- */

/* The variances of the rows of one matrix after the other. */
typedef struct Variance {
  const FactoredPlaces *f;
  const float *v;
  int64_t matrix;
  double mean, least; /* of the rows of that matrix; of all variances */
  bool factored;
} Variance;

static Variance variance_of(const KernelArgs *a, const FactoredPlaces *f,
                            const KTensor *v) {
  double least = a->attr->epsilon;
  return (Variance){.f = f,
                    .v = v->p,
                    .matrix = -1,
                    .least = least * least,
                    .factored = a->attr->rows > 0};
}

/* A NaN stays one, which fmax would not leave. */
static double at_least(double x, double least) { return x < least ? least : x; }

static void enter_matrix(Variance *x, int64_t m, double epsilon) {
  const FactoredPlaces *f = x->f;
  double sum = 0;
  if (!x->factored || x->matrix == m) return;
  for (int64_t i = 0; i < f->rows; i++) sum += x->v[m * (f->rows + f->cols) + i];
  x->mean = at_least(sum / (double)f->rows, epsilon);
  x->matrix = m;
}

/* Of column j of the piece, element `at` of the shard. */
static double variance(const Variance *x, const RowRun *r, int64_t j, int64_t at) {
  double w = x->factored ? 0 : x->v[at];
  int64_t col = x->factored ? factored_col(x->f, j) : 0;
  if (x->factored && col >= 0) {
    const float *v = x->v + r->matrix * (x->f->rows + x->f->cols);
    w = (double)v[r->row] * v[x->f->rows + col] / x->mean;
  }
  return at_least(w, x->least);
}

static void norm_of_rows(const KernelArgs *a, int64_t lo, int64_t hi) {
  FactoredPlaces f = places_of(a, &a->in[0], a->out[0].dim[0]);
  Variance v = variance_of(a, &f, &a->in[1]);
  const KTensor *g = &a->in[0];
  double *to = a->out[0].p, clip = clip_of(a);
  for (int64_t k = lo; k < hi; k++) {
    RowRun r = factored_row(&f, k);
    if (r.row < 0 || !r.n) continue;
    enter_matrix(&v, r.matrix, a->attr->epsilon);
    double sum = 0;
    for (int64_t i = 0; i < r.n; i++) {
      double x = get(g->p, g->dtype, r.from + i) * clip;
      sum += x * x / variance(&v, &r, r.first + i, r.from + i);
    }
    to[r.matrix * f.rows + r.row] = sum;
  }
}

void cpu_factored_norm(Device *dev, const KernelArgs *a) {
  FactoredPlaces f = places_of(a, &a->in[0], a->out[0].dim[0]);
  memset(a->out[0].p, 0, sizeof(double) * (size_t)count_of(&a->out[0]));
  if (scalars_of(a)[SC_HOLD] != 0) return;
  each_part(dev, a, rows_of_all(&f), row_grain(f.at.cols), norm_of_rows);
}

/* The rate of a matrix. */
static double rate_of(const KernelArgs *a, const FactoredPlaces *f, int64_t m) {
  const OpAttr *t = a->attr;
  const double *scal = scalars_of(a), n = (double)(f->rows * f->cols);
  int64_t wide = a->in[3].dim[1];
  const double *p2 = (const double *)a->in[3].p + (m + 1) * wide - f->rows;
  const double *u2 = (const double *)a->in[4].p + m * f->rows;
  double p = 0, u = 0, rate = attr_lr(t, scal[SC_LR]);
  for (int64_t i = 0; i < f->rows; i++) p += p2[i], u += u2[i];
  if (t->relative_step != 0) rate = fmin(rate, 1 / sqrt(scal[SC_STEP]));
  if (t->scale_parameter != 0) rate *= fmax(t->least_rms, sqrt(p / n));
  return rate / fmax(1, sqrt(u / n) / t->threshold);
}

static void factored_step_part(const KernelArgs *a, int64_t lo, int64_t hi) {
  FactoredPlaces f = places_of(a, &a->in[1], a->in[4].dim[0]);
  Variance v = variance_of(a, &f, &a->in[2]);
  const double *scal = scalars_of(a);
  double clip = clip_of(a), rate = 0;
  double keep = 1.0 - attr_lr(a->attr, scal[SC_LR]) * a->attr->weight_decay;
  int64_t matrix = -1;
  KernelArgs lines = *a; /* operands p, g, scal: line_end goes by their number */
  LineRoom room;
  lines.nin = 3;
  for (int64_t k = lo; k < hi; k++) {
    RowRun r = factored_row(&f, k);
    if (!r.n) continue;
    enter_matrix(&v, r.matrix, a->attr->epsilon);
    if (matrix != r.matrix) rate = rate_of(a, &f, r.matrix);
    matrix = r.matrix;
    for (int64_t at = 0; at < r.n; at += LINE) {
      Line l = line_begin(a, r.from + at, MIN(LINE, r.n - at), &room);
      for (int64_t i = 0; i < l.n; i++) {
        double w = r.row < 0 ? 1 : variance(&v, &r, r.first + at + i, r.from + at + i);
        l.to[i] = (float)(l.p[i] * keep - rate * (l.g[i] * clip / sqrt(w)));
      }
      line_end(&lines, &l, r.from + at, false, 0, 0);
    }
  }
  stores_end();
}

void cpu_factored_step(Device *dev, const KernelArgs *a) {
  FactoredPlaces f = places_of(a, &a->in[1], a->in[4].dim[0]);
  if (scalars_of(a)[SC_HOLD] == 0)
    each_part(dev, a, rows_of_all(&f), row_grain(f.at.cols), factored_step_part);
}
