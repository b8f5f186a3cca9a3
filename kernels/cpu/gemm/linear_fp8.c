/* linear_fp8.c - linears of operands that are rounded to fp8, and the largest magnitudes
 * that their scales come of (vm/graph/op_fp8.h).
 *
 * An operand x becomes fp8(x * s) / s in f32, where s is the scale of its tensor, row,
 * column or block; then one product in f32. 8-bit values and their products are exact in
 * f32, so this is what units for fp8 give but for the order of sums and one rounding of
 * 1 / s. */
#include "gemm.h"
#include "kernels/cpu/kernel.h"
#include "vm/base/fp8.h"
#include "vm/graph/op_fp8.h"

/* ---- amax ---- */

INLINE float magnitude(const void *x, DType t, int64_t i) { return fabsf(get(x, t, i)); }

/* Of [lo, hi) of the elements; a NaN is no magnitude: it is one after rounding, too. */
INLINE float largest(const void *x, int64_t lo, int64_t hi, DType t) {
  float m = 0;
#pragma omp simd reduction(max : m)
  for (int64_t i = lo; i < hi; i++) {
    float v = magnitude(x, t, i);
    m = v > m ? v : m;
  }
  return m;
}

/* One result for each row, or for each group of them. */
INLINE void amax_rows(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  int64_t each = count_of(&a->in[0]) / count_of(&a->out[0]);
  for (int64_t i = lo; i < hi; i++)
    ((float *)a->out[0].p)[i] = largest(a->in[0].p, i * each, (i + 1) * each, t);
}
BY_TYPE(amax_rows, in[0])

/* Columns [lo, hi) of all groups. */
INLINE void amax_columns(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  int64_t c = last_dim(&a->in[0]), groups = count_of(&a->out[0]) / c;
  int64_t rows = rows_of(&a->in[0]) / groups;
  for (int64_t g = 0; g < groups; g++) {
    float *m = (float *)a->out[0].p + g * c;
    for (int64_t j = lo; j < hi; j++) m[j] = 0;
    for (int64_t r = g * rows; r < (g + 1) * rows; r++) {
      const void *x = at(a->in[0].p, t, r * c);
#pragma omp simd
      for (int64_t j = lo; j < hi; j++) {
        float v = magnitude(x, t, j);
        m[j] = v > m[j] ? v : m[j];
      }
    }
  }
}
BY_TYPE(amax_columns, in[0])

void cpu_amax(Device *dev, const KernelArgs *a) {
  int64_t n = count_of(&a->out[0]);
  if (a->attr->fp8_how & FP8_COLUMNS)
    each_part(dev, a, last_dim(&a->in[0]), COLUMN_GRAIN, amax_columns_part);
  else
    each_part(dev, a, n, row_grain(count_of(&a->in[0]) / MAX(n, 1)), amax_rows_part);
}

/* ---- rounding ---- */

/* An operand of a product, as f32 in the scratch. */
typedef struct Rounded {
  const KTensor *x, *amax;
  Fp8Type type;
  int powers;
  float *to;
} Rounded;

INLINE float rounded(Fp8Type f, float x, float scale, float back) {
  return fp8_round(f, x * scale) * back;
}

/* n elements with one scale. */
INLINE void round_run(const Rounded *r, int64_t from, int64_t n, float amax, DType t,
                      Fp8Type f) {
  float scale = fp8_scale(f, amax, r->powers), back = 1 / scale;
  const void *x = at(r->x->p, t, from);
#pragma omp simd
  for (int64_t i = 0; i < n; i++) r->to[from + i] = rounded(f, get(x, t, i), scale, back);
}

/* Each column has a scale, in each group of rows. `to` has those of a row first. */
INLINE void round_columns(const Rounded *r, int64_t lo, int64_t hi, DType t, Fp8Type f) {
  int64_t c = last_dim(r->x), rows = rows_of(r->x);
  int64_t each = rows / (count_of(r->amax) / c);
  for (int64_t i = lo; i < hi; i++) {
    const float *m = (const float *)r->amax->p + i / each * c;
    for (int64_t j = 0; j < c; j++) {
      float scale = fp8_scale(f, m[j], r->powers);
      r->to[i * c + j] = rounded(f, get(r->x->p, t, i * c + j), scale, 1 / scale);
    }
  }
}

/* Rows [lo, hi), one after the other of the runs that share a scale. */
INLINE void round_rows(const Rounded *r, int64_t lo, int64_t hi, DType t, Fp8Type f) {
  int64_t c = last_dim(r->x), each = rows_of(r->x) / count_of(r->amax);
  for (int64_t i = lo; i < hi; i++)
    round_run(r, i * c, c, ((const float *)r->amax->p)[i / each], t, f);
}

/* Blocks along a row. */
INLINE void round_blocks(const Rounded *r, int64_t lo, int64_t hi, DType t, Fp8Type f) {
  int64_t c = last_dim(r->x);
  for (int64_t i = lo * c; i < hi * c; i += MX_BLOCK) {
    float back = mx_scale(f, largest(r->x->p, i, i + MX_BLOCK, t)), scale = 1 / back;
    const void *x = at(r->x->p, t, i);
#pragma omp simd
    for (int j = 0; j < MX_BLOCK; j++)
      r->to[i + j] = rounded(f, get(x, t, j), scale, back);
  }
}

/* Blocks down the columns: a run of columns at a time. */
INLINE void round_down(const Rounded *r, int64_t lo, int64_t hi, DType t, Fp8Type f) {
  enum { RUN = 64 };
  int64_t c = last_dim(r->x);
  for (int64_t i = lo; i < hi; i += MX_BLOCK)
    for (int64_t j = 0; j < c; j += RUN) {
      float m[RUN] = {0};
      int n = (int)MIN(RUN, c - j);
      for (int k = 0; k < MX_BLOCK; k++)
#pragma omp simd
        for (int l = 0; l < n; l++) {
          float v = magnitude(r->x->p, t, (i + k) * c + j + l);
          m[l] = v > m[l] ? v : m[l];
        }
      for (int l = 0; l < n; l++) m[l] = mx_scale(f, m[l]);
      for (int k = 0; k < MX_BLOCK; k++)
        for (int l = 0; l < n; l++) {
          int64_t e = (i + k) * c + j + l;
          r->to[e] = rounded(f, get(r->x->p, t, e), 1 / m[l], m[l]);
        }
    }
}

typedef enum { BY_ROWS, BY_COLUMNS, BLOCKS, BLOCKS_DOWN } RoundHow;

INLINE void round_typed(const Rounded *r, RoundHow how, int64_t lo, int64_t hi, DType t) {
  bool e4m3 = r->type == FP8_E4M3;
#define ROUND(f) (e4m3 ? f(r, lo, hi, t, FP8_E4M3) : f(r, lo, hi, t, FP8_E5M2))
  switch (how) {
  case BY_ROWS: ROUND(round_rows); break;
  case BY_COLUMNS: ROUND(round_columns); break;
  case BLOCKS: ROUND(round_blocks); break;
  case BLOCKS_DOWN: ROUND(round_down); break;
  }
#undef ROUND
}

typedef struct RoundJob {
  Rounded r;
  RoundHow how;
} RoundJob;

static void round_part(const KernelArgs *a, int64_t lo, int64_t hi) {
  const RoundJob *j = a->state;
  WITH_TYPE(j->r.x->dtype, round_typed, &j->r, j->how, lo, hi)
}

static void round_all(const Device *dev, RoundJob j) {
  int64_t grain = row_grain(last_dim(j.r.x));
  grain = (grain + MX_BLOCK - 1) / MX_BLOCK * MX_BLOCK;
  each_part(dev, &(KernelArgs){.state = &j}, rows_of(j.r.x), grain, round_part);
}

/* ---- products ---- */

static RoundHow how_of(int op, const OpAttr *a, int i) {
  if (a->fp8 == FP8_MX) return fp8_sums_rows(op, a, i) ? BLOCKS_DOWN : BLOCKS;
  return fp8_kind(op, a, i) == FP8_COLUMNS ? BY_COLUMNS : BY_ROWS;
}

static weft_status prepare(Device *dev, KernelArgs *a, int op, weft_error *e) {
  GemmShape s = gemm_of(op, a);
  gemm_init(a->state, &s, dev->threads);
  return WEFT_OK;
}

PREPARES(linear_fp8)
PREPARES(linear_fp8_dx)
PREPARES(linear_fp8_dw)

static void multiply(Device *dev, const KernelArgs *a, int op) {
  float *to[2];
  char *work = a->work;
  for (int i = 0; i < 2; i++) {
    to[i] = (float *)work;
    work += fp8_copy_bytes(&a->in[i]);
    RoundJob j = {{&a->in[i], a->nin > 2 ? &a->in[2 + i] : NULL,
                   fp8_operand_type(op, a->attr, i), a->attr->fp8_how & FP8_POWERS,
                   to[i]},
                  how_of(op, a->attr, i)};
    round_all(dev, j);
  }
  int first = op == OP_linear_fp8_dw && a->attr->layout == 0;
  gemm_run(a->state, to[first], to[!first], a->out[0].p, a->accumulate, work);
}

void cpu_linear_fp8(Device *dev, const KernelArgs *a) { multiply(dev, a, OP_linear_fp8); }

void cpu_linear_fp8_dx(Device *dev, const KernelArgs *a) {
  multiply(dev, a, OP_linear_fp8_dx);
}

void cpu_linear_fp8_dw(Device *dev, const KernelArgs *a) {
  multiply(dev, a, OP_linear_fp8_dw);
}
