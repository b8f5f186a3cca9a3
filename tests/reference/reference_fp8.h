/* reference_fp8.h - products of operands in fp8: included by reference_ops.c. A value is
 * rounded by its own exponent, in f64; scales are f32, as the ops define them. */
#include "vm/graph/op_fp8.h"

/* The nearest value with `bits` of fraction, none below 2^least * 2^-bits. */
static double fp8_nearest(double v, bool e4m3) {
  int bits = e4m3 ? 3 : 2, least = e4m3 ? -6 : -14, e;
  double most = e4m3 ? 448 : 57344, x = fmin(fabs(v), most);
  if (x == 0) return v;
  (void)frexp(x, &e);
  int step = (e - 1 < least ? least : e - 1) - bits;
  return copysign(ldexp(rint(ldexp(x, -step)), step), v);
}

static double fp8_of(double x, double amax, bool e4m3, bool powers) {
  float s = (float)((e4m3 ? 448.0 : 57344.0) / fmax(amax, 1e-12));
  int e;
  if (powers) s = ldexpf(1, (frexpf(s, &e), e - 1));
  return fp8_nearest((float)x * s, e4m3) / s;
}

/* A block of 32 elements, `by` apart. */
static void fp8_block(double *x, int64_t by, bool e4m3) {
  double m = 0;
  int e;
  for (int i = 0; i < 32; i++) m = fmax(m, fabs(x[i * by]));
  double part = frexp((double)((float)m / (e4m3 ? 448.0f : 57344.0f)), &e);
  double scale = m == 0 ? 1 : ldexp(1, part == 0.5 ? e - 1 : e);
  for (int i = 0; i < 32; i++) x[i * by] = fp8_nearest(x[i * by] / scale, e4m3) * scale;
}

static void amax(RefArgs *a) {
  int64_t c = last(&a->in[0]), n = ref_count(&a->in[0]), out = ref_count(&a->out[0]);
  bool columns = a->attr->fp8_how & FP8_COLUMNS;
  for (int64_t i = 0; i < out; i++) OUT(0)[i] = 0;
  for (int64_t i = 0; i < n; i++) {
    int64_t at = columns ? i / (n / (out / c)) * c + i % c : i / (n / out);
    OUT(0)[at] = fmax(OUT(0)[at], fabs(IN(0)[i]));
  }
}

/* Rounds operand i in place; `down`: the product sums over its rows. */
static void fp8_round_operand(RefArgs *a, int i, bool down, bool e4m3) {
  int64_t c = last(&a->in[i]), n = ref_count(&a->in[i]);
  bool columns = a->attr->fp8 == FP8_ROWWISE && down;
  if (a->attr->fp8 == FP8_MX) {
    for (int64_t r = 0; r < n / c; r += down ? 32 : 1)
      for (int64_t j = 0; j < c; j += down ? 1 : 32)
        fp8_block(&IN(i)[r * c + j], down ? c : 1, e4m3);
    return;
  }
  int64_t m = ref_count(&a->in[2 + i]);
  for (int64_t k = 0; k < n; k++) {
    int64_t at = columns ? k / (n / (m / c)) * c + k % c : k / (n / m);
    IN(i)[k] = fp8_of(IN(i)[k], IN(2 + i)[at], e4m3, a->attr->fp8_how & FP8_POWERS);
  }
}

static void fp8_operands(RefArgs *a, bool down0, bool down1, int gradient) {
  for (int i = 0; i < 2; i++)
    fp8_round_operand(a, i, i ? down1 : down0,
                      i != gradient || (a->attr->fp8_how & FP8_GRADS_E4M3) != 0);
}

static void linear_fp8(RefArgs *a) {
  fp8_operands(a, false, a->attr->layout != 0, -1);
  linear(a);
}

static void linear_fp8_dx(RefArgs *a) {
  fp8_operands(a, false, a->attr->layout == 0, 0);
  linear_dx(a);
}

static void linear_fp8_dw(RefArgs *a) {
  fp8_operands(a, true, true, 1);
  linear_dw(a);
}
