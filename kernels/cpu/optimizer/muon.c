/* muon.c - what the step of whole matrices has besides products (vm/lower/matrix_step.c):
 * the average of gradients, matrices out of and into the pieces that ranks have of them,
 * and the step of the parameters. */
#include "step_kernels.h"

#include "vm/graph/matrix_places.h"

/* ---- averages ---- */

INLINE void matrix_average(const KernelArgs *a, int64_t lo, int64_t hi, DType s) {
  const OpAttr *attr = a->attr;
  const double *scal = scalars_of(a);
  const KTensor *g = &a->in[0];
  const void *m0 = a->in[1].p;
  void *m1 = a->out[0].p;
  float *u = a->out[1].p;
  bool by_chance = attr->kind != 0, ahead = attr->nesterov != 0;
  uint32_t number = (uint32_t)(uint64_t)scal[SC_STEP], seed = chance_seed(attr);
  Decay d = decay_of(attr->momentum);
  float clip = (float)scal[SC_CLIP], keep = (float)attr->momentum;
  for (int64_t i = lo; i < hi; i++) {
    float x = get(g->p, g->dtype, i) * clip, m = average(get(m0, s, i), x, d);
    u[i] = ahead ? x + keep * (m - x) : m;
    put_state(m1, s, i, m, by_chance, s == DT_F32 ? 0 : chance(x, m, number, seed));
  }
}

/* A step that is skipped leaves the average as it was. */
static void matrix_average_part(const KernelArgs *a, int64_t lo, int64_t hi) {
  if (scalars_of(a)[SC_HOLD] != 0)
    memset((float *)a->out[1].p + lo, 0, sizeof(float) * (size_t)(hi - lo));
  else if (a->in[1].dtype == DT_F32)
    matrix_average(a, lo, hi, DT_F32);
  else
    matrix_average(a, lo, hi, DT_BF16);
}

void cpu_matrix_average(Device *dev, const KernelArgs *a) {
  each_part(dev, a, count_of(&a->in[1]), ELEMENT_GRAIN, matrix_average_part);
}

/* ---- pieces of matrices ---- */

/* Of a matrix that is x, or whose transpose x is, in these boxes. */
static MatrixPlaces places_of(const OpAttr *attr, const KTensor *x,
                              const KTensor *boxes) {
  bool turned = attr->inverse != 0;
  return matrix_places(x->dim[turned], x->dim[!turned], attr->dim, attr->parts,
                       (int)boxes->dim[0], boxes->dim[1], (int64_t)attr->first);
}

static void matrix_take_part(const KernelArgs *a, int64_t lo, int64_t hi) {
  const KTensor *boxes = &a->in[0], *x = &a->out[0];
  MatrixPlaces p = places_of(a->attr, x, boxes);
  const float *from = boxes->p;
  float *to = x->p;
  bool turned = a->attr->inverse != 0;
  int64_t cols = x->dim[1];
  for (int64_t r = lo; r < hi; r++)
    for (int64_t c = 0; c < cols; c++)
      to[r * cols + c] = from[matrix_place(&p, turned ? c : r, turned ? r : c)];
}

void cpu_matrix_take(Device *dev, const KernelArgs *a) {
  if (a->index == a->attr->from)
    each_part(dev, a, a->out[0].dim[0], row_grain(a->out[0].dim[1]), matrix_take_part);
}

/* Items are the rows of all pieces. */
static void matrix_put_part(const KernelArgs *a, int64_t lo, int64_t hi) {
  const KTensor *x = &a->in[0], *boxes = &a->out[0];
  MatrixPlaces p = places_of(a->attr, x, boxes);
  bool turned = a->attr->inverse != 0, mine = a->index == a->attr->from;
  int64_t rows = piece_rows(&p, x->dim[turned]), cols = x->dim[1];
  const float *from = x->p;
  for (int64_t k = lo; k < hi; k++) {
    int64_t piece = k / rows, row = k % rows;
    float *to = (float *)boxes->p + piece * p.box + p.first + row * p.cols;
    for (int64_t c = 0; c < p.cols; c++) {
      int64_t i = row, j = c;
      bool has = matrix_element(&p, piece, &i, &j) && mine;
      to[c] = has ? a->attr->scale * from[turned ? j * cols + i : i * cols + j] : 0;
    }
  }
}

void cpu_matrix_put(Device *dev, const KernelArgs *a) {
  MatrixPlaces p = places_of(a->attr, &a->in[0], &a->out[0]);
  int64_t rows = piece_rows(&p, a->in[0].dim[a->attr->inverse != 0]);
  each_part(dev, a, rows * p.pieces, row_grain(p.cols), matrix_put_part);
}

/* ---- the step ---- */

static void matrix_step_part(const KernelArgs *a, int64_t lo, int64_t hi) {
  const OpAttr *attr = a->attr;
  const double *scal = scalars_of(a);
  float lr = (float)attr_lr(attr, scal[SC_LR]);
  float keep = (float)(1.0 - attr_lr(attr, scal[SC_LR]) * attr->weight_decay);
  uint32_t seed = chance_seed(attr), number = (uint32_t)(uint64_t)scal[SC_STEP];
  LineRoom room;
  for (int64_t from = lo; from < hi; from += LINE) {
    Line l = line_begin(a, from, MIN(LINE, hi - from), &room);
#pragma omp simd
    for (int64_t i = 0; i < l.n; i++) l.to[i] = l.p[i] * keep - lr * l.g[i];
    line_end(a, &l, from, attr->kind != 0, number, seed);
  }
  stores_end();
}

void cpu_matrix_step(Device *dev, const KernelArgs *a) {
  if (scalars_of(a)[SC_HOLD] == 0)
    each_part(dev, a, count_of(&a->in[0]), ELEMENT_GRAIN, matrix_step_part);
}
