/* nf4.c - see nf4.h. Values are compared with the middles between two levels; one that is
 * in a middle becomes the lower. */
#include "nf4.h"

#include <math.h>

const float nf4_level[NF4_LEVELS] = {
#define LEVEL(x) x,
#include "nf4.def"
};

/* The positive values, by size. */
static const float positive[] = {
#define SCALE(x) x,
#include "nf4.def"
};
enum { ZERO = 127, MOST = 255 };

float nf4_scale(uint8_t code) {
  if (code == ZERO) return 0;
  return code < ZERO ? -positive[ZERO - 1 - code] : positive[code - ZERO - 1];
}

float nf4_unpack_scale(uint8_t code, float group, float offset) {
  return nf4_scale(code) * group + offset;
}

float nf4_largest(const float *w, int n) {
  float most = 0;
  for (int i = 0; i < n; i++) most = fmaxf(most, fabsf(w[i]));
  return most;
}

static uint8_t level_of(float x) {
  int n = 0;
  for (int k = 0; k + 1 < NF4_LEVELS; k++) n += x > (nf4_level[k] + nf4_level[k + 1]) / 2;
  return (uint8_t)n;
}

void nf4_pack(const float w[NF4_BLOCK], uint8_t to[NF4_BYTES]) {
  const float by = 1 / fmaxf(nf4_largest(w, NF4_BLOCK), 1e-38f);
  for (int i = 0; i < NF4_BYTES; i++)
    to[i] = (uint8_t)(level_of(w[2 * i] * by) << 4 | level_of(w[2 * i + 1] * by));
}

/* The first code whose middle with the next is not below x. */
static uint8_t scale_code(float x) {
  int lo = 0, hi = MOST;
  while (lo < hi) {
    int k = (lo + hi) / 2;
    if (x > (nf4_scale((uint8_t)k) + nf4_scale((uint8_t)(k + 1))) / 2)
      lo = k + 1;
    else
      hi = k;
  }
  return (uint8_t)lo;
}

float nf4_pack_scales(const float *scale, int n, float offset, uint8_t *to) {
  float less[NF4_GROUP] = {0};
  for (int i = 0; i < n; i++) less[i] = scale[i] - offset;
  float most = nf4_largest(less, n), by = 1 / fmaxf(most, 1e-38f);
  for (int i = 0; i < n; i++) to[i] = scale_code(less[i] * by);
  return most;
}
