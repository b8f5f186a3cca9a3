/* dynamic8.c - see dynamic8.h. */
#include "dynamic8.h"

#include <math.h>
#include <string.h>

#include "nf4.h"

static const float unsigned_value[DYNAMIC8_CODES] = {
#define VALUE(x) x,
#include "dynamic8.def"
};

void dynamic8_map(bool is_signed, Dynamic8Map *out) {
  for (int k = 0; k < DYNAMIC8_CODES; k++)
    out->value[k] = is_signed ? nf4_scale((uint8_t)k) : unsigned_value[k];
  for (int k = 0; k + 1 < DYNAMIC8_CODES; k++)
    out->middle[k] = 0.5f * (out->value[k] + out->value[k + 1]);
  out->middle[DYNAMIC8_CODES - 1] = INFINITY;
}

void dynamic8_unpack(const Dynamic8Map *m, const Dynamic8 *b, int from, int n,
                     float *to) {
  for (int i = 0; i < n; i++) to[i] = m->value[b->code[from + i]] * b->largest;
}

/* ---- packing ---- */

/* A NaN counts as infinite: the block then has no finite numbers. */
static float largest_of(const float *x, int n) {
  float most = 0;
  for (int i = 0; i < n; i++) most = fmaxf(most, isnan(x[i]) ? INFINITY : fabsf(x[i]));
  return most;
}

/* The code of the value nearest to x: the number of middles between values below x. */
static uint8_t code_of(const Dynamic8Map *m, float x) {
  int k = 0;
  for (int half = DYNAMIC8_CODES / 2; half; half /= 2)
    if (m->middle[k + half - 1] < x) k += half;
  return (uint8_t)k;
}

/* The point next to x, of as many as 16 bits count in [-1, 1]. */
static float point_of(float x) {
  enum { LAST = 65535 };
  float at = (fminf(fmaxf(x, -1), 1) + 1.0f) * 0.5f;
  at *= (float)LAST;
  at += 0.5f;
  return (2.0f * (float)(int)at) / (float)LAST - 1.0f;
}

void dynamic8_pack(const Dynamic8Map *m, const float *x, int n, Dynamic8 *to) {
  memset(to, 0, sizeof *to);
  to->largest = largest_of(x, n);
  if (to->largest == 0) return;
  const float by = 1.0f / to->largest;
  for (int i = 0; i < DYNAMIC8_BLOCK; i++)
    to->code[i] = code_of(m, point_of(i < n ? x[i] * by : 0));
}

/* ---- packing what was unpacked ---- */

/* Codes that unpack to these bits, if the block's largest magnitude was that. */
static bool fits(const Dynamic8Map *m, const float *x, int n, float largest,
                 Dynamic8 *to) {
  to->largest = largest;
  for (int i = 0; i < n; i++) {
    int k = code_of(m, x[i] / largest);
    int from = k > 0 ? k - 1 : 0, end = k + 2 < DYNAMIC8_CODES ? k + 2 : DYNAMIC8_CODES;
    for (k = from; k < end && m->value[k] * largest != x[i]; k++) continue;
    if (k == end) return false;
    to->code[i] = (uint8_t)k;
  }
  return true;
}

/* Where the largest magnitude was that of a negative number, it has become smaller by the
 * first value of the map: it is found again among the f32 next to the quotient. */
void dynamic8_pack_again(const Dynamic8Map *m, const float *x, int n, Dynamic8 *to) {
  float most = largest_of(x, n);
  if (most > 0 && isfinite(most)) {
    dynamic8_pack(m, x, n, to); /* the codes behind n */
    if (fits(m, x, n, most, to)) return;
    float first = most / fabsf(m->value[0] != 0 ? m->value[0] : 1);
    first = nextafterf(nextafterf(first, 0), 0);
    for (int i = 0; i < 5; i++, first = nextafterf(first, INFINITY))
      if (fits(m, x, n, first, to)) return;
  }
  dynamic8_pack(m, x, n, to);
}
