/* rope.c - rotary position embedding, halves of each head as one complex number each.
 * The state holds the D/2 frequencies; angles are reduced in f64, so that they are exact
 * to f32 at any position. */
#include "kernel.h"

/* Frequencies as in Llama 3: long wavelengths are slowed down by the factor, those in
 * between are blended. */
static double scaled(const OpAttr *at, double f) {
  if (at->rope_factor == 0) return f;
  double length = at->rope_original, wave = 2 * M_PI / f;
  if (wave < length / at->rope_high) return f;
  if (wave > length / at->rope_low) return f / at->rope_factor;
  double s = (length / wave - at->rope_low) / (at->rope_high - at->rope_low);
  return (1 - s) * f / at->rope_factor + s * f;
}

weft_status prepare_rope(Device *dev, KernelArgs *a, weft_error *e) {
  double *freq = a->state;
  for (int i = 0; i < a->attr->head_dim / 2; i++)
    freq[i] = scaled(a->attr, pow(a->attr->theta, -2.0 * i / a->attr->head_dim));
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

/* Tokens [lo, hi). The cosines of a token serve all its heads. */
INLINE void rope(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  enum { TILE = 64 };
  int64_t n = last_dim(&a->in[0]), d = a->attr->head_dim, half = d / 2;
  const int32_t *pos = a->in[1].p;
  const double *freq = a->state;
  float sign = a->attr->inverse ? -1.0f : 1.0f;
  for (int64_t r = lo; r < hi; r++) {
    for (int64_t i0 = 0; i0 < half; i0 += TILE) {
      int w = (int)MIN(TILE, half - i0);
      float c[TILE], s[TILE];
#pragma omp simd
      for (int i = 0; i < w; i++) {
        cos_sin(pos[r] * freq[i0 + i], &c[i], &s[i]);
        s[i] *= sign;
      }
      for (int64_t h = 0; h < n; h += d) {
        const void *x1 = at(a->in[0].p, t, r * n + h + i0), *x2 = at(x1, t, half);
        void *y1 = at(a->out[0].p, t, r * n + h + i0), *y2 = at(y1, t, half);
#pragma omp simd
        for (int i = 0; i < w; i++) {
          float u = get(x1, t, i), v = get(x2, t, i);
          put(y1, t, i, u * c[i] - v * s[i]);
          put(y2, t, i, v * c[i] + u * s[i]);
        }
      }
    }
  }
}
BY_TYPE(rope, in[0])

void cpu_rope(Device *dev, const KernelArgs *a) {
  assert(last_dim(&a->in[0]) % a->attr->head_dim == 0 && a->attr->head_dim % 2 == 0);
  each_part(dev, a, rows_of(&a->in[0]), row_grain(last_dim(&a->in[0])), rope_part);
}
