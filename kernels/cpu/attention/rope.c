/* rope.c - rotary position embedding: pairs of elements of each head, or of a part of it,
 * as one complex number each. The state holds their frequencies; angles are reduced in
 * f64, so that they are exact to f32 at any position. */
#include "kernels/cpu/kernel.h"

/* Frequencies as in Llama 3: long wavelengths are slowed down by the factor, those in
 * between are blended. */
static double scaled(const OpAttr *at, double f) {
  double length = at->rope_original, wave = 2 * M_PI / f;
  if (wave < length / at->rope_high) return f;
  if (wave > length / at->rope_low) return f / at->rope_factor;
  double s = (length / wave - at->rope_low) / (at->rope_high - at->rope_low);
  return (1 - s) * f / at->rope_factor + s * f;
}

/* YaRN: pairs past rope_high are slowed down, those from rope_low on blended. */
static double ramped(const OpAttr *at, int pair, double f) {
  double s = (pair - at->rope_low) / ((double)at->rope_high - at->rope_low);
  s = s < 0 ? 0 : s > 1 ? 1 : s;
  return s * f / at->rope_factor + (1 - s) * f;
}

weft_status prepare_rope(Device *dev, KernelArgs *a, weft_error *e) {
  const OpAttr *at = a->attr;
  double *freq = a->state;
  int d = attr_rotary_dim(at);
  for (int i = 0; i < d / 2; i++) {
    double f = pow(at->theta, -2.0 * i / d);
    if (at->rope_factors[0] != 0) f /= at->rope_factors[i];
    freq[i] = at->rope_factor == 0 ? f : at->yarn ? ramped(at, i, f) : scaled(at, f);
  }
  return WEFT_OK;
}

/* Cosine and sine of an angle: reduced to |r| <= pi/4 around the nearest multiple of
 * pi/2, then their Taylor series, good to 3e-8. */
INLINE void cos_sin(double angle, float *cosine, float *sine) {
  const double magic = 6755399441055744.0; /* 1.5 * 2^52: adding it rounds */
  double k = angle * 0.63661977236758134308;
  double rounded = (k + magic) - magic;
  float r = (float)((k - rounded) * 1.57079632679489661923), z = r * r;
  int32_t quadrant = (int32_t)rounded;
  float s = 1.0f / 362880, c = 1.0f / 40320;
  s = s * z - 1.0f / 5040;
  s = s * z + 1.0f / 120;
  s = s * z - 1.0f / 6;
  s = s * z * r + r;
  c = c * z - 1.0f / 720;
  c = c * z + 1.0f / 24;
  c = c * z - 0.5f;
  c = c * z + 1.0f;
  float a = quadrant & 1 ? s : c, b = quadrant & 1 ? c : s;
  *cosine = (quadrant + 1) & 2 ? -a : a;
  *sine = quadrant & 2 ? -b : b;
}

enum { TILE = 64 };
typedef struct Turns {
  float c[TILE], s[TILE];
} Turns;

/* Rotates w pairs: elements i*step and i*step + other. */
INLINE void turn(const void *x, void *y, DType t, const Turns *by, int w, int step,
                 int64_t other) {
  const void *x2 = at(x, t, other);
  void *y2 = at(y, t, other);
#pragma omp simd
  for (int i = 0; i < w; i++) {
    float u = get(x, t, i * step), v = get(x2, t, i * step);
    put(y, t, i * step, u * by->c[i] - v * by->s[i]);
    put(y2, t, i * step, v * by->c[i] + u * by->s[i]);
  }
}

INLINE size_t bytes_of(int64_t n, DType t) { return (size_t)n * (t == DT_F32 ? 4 : 2); }

/* Rows of operand and result may lie in wider rows: the last dimension is the distance,
 * and the smaller one the row. */
INLINE int64_t held(const KernelArgs *a) {
  return MIN(last_dim(&a->in[0]), last_dim(&a->out[0]));
}

/* Copies the elements of a row's heads that do not rotate; nothing to do in place. */
INLINE void keep(const OpAttr *attr, const void *x, void *y, int64_t n, DType t) {
  int64_t d = attr->head_dim, from = attr->rotary_from;
  int64_t end = from + attr_rotary_dim(attr);
  if (x == y) return;
  for (int64_t h = 0; end - from < d && h < n; h += d) {
    memcpy(at(y, t, h), at(x, t, h), bytes_of(from, t));
    memcpy(at(y, t, h + end), at(x, t, h + end), bytes_of(d - end, t));
  }
}

/* Tokens [lo, hi). The cosines of a token serve all its heads. */
INLINE void rope(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  const OpAttr *attr = a->attr;
  int64_t n = held(a), d = attr->head_dim, half = attr_rotary_dim(attr) / 2;
  const int32_t *pos = a->in[1].p;
  const double *freq = a->state;
  float scale = attr->rope_scale != 0 ? attr->rope_scale : 1.0f;
  float sign = attr->inverse ? -1.0f : 1.0f;
  bool near = attr->interleaved;
  for (int64_t r = lo; r < hi; r++) {
    const void *from = at(a->in[0].p, t, r * last_dim(&a->in[0]));
    void *to = at(a->out[0].p, t, r * last_dim(&a->out[0]));
    float longer = scale * attr_length_factor(attr, pos[r]);
    keep(attr, from, to, n, t);
    for (int64_t i0 = 0; i0 < half; i0 += TILE) {
      int w = (int)MIN(TILE, half - i0);
      Turns by;
#pragma omp simd
      for (int i = 0; i < w; i++) {
        cos_sin(pos[r] * freq[i0 + i], &by.c[i], &by.s[i]);
        by.c[i] *= longer;
        by.s[i] *= sign * longer;
      }
      for (int64_t h = attr->rotary_from; h < n; h += d) {
        int64_t first = h + (near ? 2 * i0 : i0);
        const void *x = at(from, t, first);
        void *y = at(to, t, first);
        if (near)
          turn(x, y, t, &by, w, 2, 1);
        else
          turn(x, y, t, &by, w, 1, half);
      }
    }
  }
}
BY_TYPE(rope, in[0])

void cpu_rope(Device *dev, const KernelArgs *a) {
  assert(held(a) % a->attr->head_dim == 0);
  each_part(dev, a, rows_of(&a->in[0]), row_grain(held(a)), rope_part);
}

/* Rotates both operands with the same frequencies. */
static void turn_part(Device *dev, const KernelArgs *a, KTensor x, KTensor y,
                      KTensor pos) {
  KernelArgs one = {.in = {x, pos},
                    .out = {y},
                    .nin = 2,
                    .nout = 1,
                    .attr = a->attr,
                    .state = a->state};
  cpu_rope(dev, &one);
}

void cpu_rope_pair(Device *dev, const KernelArgs *a) {
  for (int k = 0; k < 2; k++) turn_part(dev, a, a->in[k], a->out[k], a->in[2]);
}

INLINE void copy_rows(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  for (int64_t r = lo; r < hi; r++)
    memcpy(at(a->out[0].p, t, r * last_dim(&a->out[0])),
           at(a->in[0].p, t, r * last_dim(&a->in[0])), bytes_of(held(a), t));
}
BY_TYPE(copy_rows, in[0])

static void copy_part(Device *dev, KTensor x, KTensor y) {
  KernelArgs one = {.in = {x}, .out = {y}, .nin = 1, .nout = 1};
  each_part(dev, &one, rows_of(&x), row_grain(held(&one)), copy_rows_part);
}

/* The rows of x from column `c` on. */
static KTensor columns(const KTensor *x, int64_t c) {
  KTensor part = *x;
  part.p = at(x->p, x->dtype, c);
  return part;
}

void cpu_rope_qkv(Device *dev, const KernelArgs *a) {
  const KTensor *x = &a->in[0], *q = &a->out[0], *k = &a->out[1], *v = &a->out[2];
  int64_t at_k = last_dim(v), at_q = at_k + last_dim(k);
  assert(at_q + last_dim(q) == last_dim(x));
  copy_part(dev, *x, *v);
  turn_part(dev, a, columns(x, at_k), *k, a->in[1]);
  turn_part(dev, a, columns(x, at_q), *q, a->in[1]);
}

void cpu_rope_qkv_dx(Device *dev, const KernelArgs *a) {
  const KTensor *dq = &a->in[0], *dk = &a->in[1], *dv = &a->in[2], *dx = &a->out[0];
  int64_t at_k = last_dim(dv), at_q = at_k + last_dim(dk);
  assert(at_q + last_dim(dq) == last_dim(dx));
  copy_part(dev, *dv, *dx);
  turn_part(dev, a, *dk, columns(dx, at_k), a->in[3]);
  turn_part(dev, a, *dq, columns(dx, at_q), a->in[3]);
}
