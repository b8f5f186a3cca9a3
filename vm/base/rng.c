/* rng.c - Philox4x32-10 and what is drawn from it. Every result is made of integer
 * steps and of IEEE double operations in a fixed order, so the bits are the same with
 * every compiler and C library; vm/ is built with -ffp-contract=off for this. */
#include "rng.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "base.h"

#ifdef __FAST_MATH__
#error "rng.c needs IEEE arithmetic: do not build it with -ffast-math"
#endif
_Static_assert(FLT_EVAL_METHOD == 0 || FLT_EVAL_METHOD == 16,
               "double expressions must be evaluated in double");

/* ---- bits ---- */

/* Spreads every bit of `x` over all 64 (the finalizer of splitmix64). */
static uint64_t mix(uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

/* The seed is mixed first: FNV alone would give seed 1 of "a" and seed 2 of "b" the same
 * key, since it only xors them. */
Rng rng_make(uint64_t seed, const char *name) {
  uint64_t k = mix(hash_bytes(mix(seed + 0x9e3779b97f4a7c15u), name, strlen(name)));
  return (Rng){{(uint32_t)k, (uint32_t)(k >> 32)}};
}

/* The third counter word separates the uses of one stream. */
enum { USE_BITS, USE_NORMAL, USE_PERMUTE };

static void draw(const Rng *r, uint64_t index, uint32_t use, uint32_t sub,
                 uint32_t out[4]) {
  uint32_t ctr[4] = {(uint32_t)index, (uint32_t)(index >> 32), use, sub};
  philox4x32(ctr, r->key, out);
}

uint32_t rng_u32(const Rng *r, uint64_t index) {
  uint32_t w[4];
  draw(r, index >> 2, USE_BITS, 0, w);
  return w[index & 3];
}

double rng_uniform(const Rng *r, uint64_t index) { return rng_u32(r, index) * 0x1p-32; }

/* ---- normal ---- */

/* ln(x) of a normal x > 0. With x = m * 2^e, m in [sqrt(1/2), sqrt(2)), and
 * s = (m-1)/(m+1): ln(m) = 2 (s + s^3/3 + s^5/5 + ...), where s^2 < 0.03. */
static double log_fixed(double x) {
  uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  int e = (int)(bits >> 52) - 1023;
  bits = (bits & 0xfffffffffffffu) | 0x3ff0000000000000u;
  double m;
  memcpy(&m, &bits, sizeof m);
  if (m >= 0x1.6a09e667f3bcdp0) m *= 0.5, e++;
  double s = (m - 1) / (m + 1), q = s * s, sum = 0;
  for (int k = 21; k >= 1; k -= 2) sum = sum * q + 1.0 / k;
  return e * 0x1.62e42fefa39efp-1 + 2 * s * sum;
}

/* cos and sin of x in [0, pi/4] by their series. */
static double cos_small(double x) {
  double q = x * x, sum = 1;
  for (int k = 14; k >= 2; k -= 2) sum = 1 - sum * q / (k * (k - 1));
  return sum;
}

static double sin_small(double x) {
  double q = x * x, sum = 1;
  for (int k = 15; k >= 3; k -= 2) sum = 1 - sum * q / (k * (k - 1));
  return x * sum;
}

/* cos and sin of 2 pi t / 2^32: the quadrant and the mirror at pi/4 are exact integer
 * steps. */
static void turn(uint32_t t, double *cosine, double *sine) {
  uint32_t quadrant = t >> 30, f = t & 0x3fffffff;
  bool mirror = f > 0x20000000;
  double x = (mirror ? 0x40000000 - f : f) * 0x1.921fb54442d18p-30;
  double near = cos_small(x), far = sin_small(x);
  double c = mirror ? far : near, s = mirror ? near : far;
  double x_part = quadrant & 1 ? s : c, y_part = quadrant & 1 ? c : s;
  *cosine = quadrant == 1 || quadrant == 2 ? -x_part : x_part;
  *sine = quadrant >= 2 ? -y_part : y_part;
}

/* Elements 2k and 2k+1 are the two coordinates of one point. */
static void normal_pair(const Rng *r, uint64_t k, float out[2]) {
  uint32_t w[4];
  double c, s;
  draw(r, k, USE_NORMAL, 0, w);
  /* 53 bits for the radius, so that tails reach 8.5; never 0. */
  uint64_t u = ((uint64_t)w[0] << 21 | w[1] >> 11) + 1;
  double radius = sqrt(-2 * log_fixed((double)u * 0x1p-53));
  turn(w[2], &c, &s);
  out[0] = (float)(radius * c);
  out[1] = (float)(radius * s);
}

float rng_normal(const Rng *r, uint64_t index) {
  float pair[2];
  normal_pair(r, index >> 1, pair);
  return pair[index & 1];
}

void rng_normals(const Rng *r, uint64_t first, uint64_t n, float scale, float *out) {
  float pair[2];
  uint64_t i = 0;
  if (n && first & 1) out[i++] = rng_normal(r, first) * scale;
  for (; i + 1 < n; i += 2) {
    normal_pair(r, (first + i) >> 1, pair);
    out[i] = pair[0] * scale;
    out[i + 1] = pair[1] * scale;
  }
  if (i < n) out[i] = rng_normal(r, first + i) * scale;
}

/* ---- permutation ---- */

/* A Feistel network over the least power of two that holds n (at least 64, else a network
 * has too few rounds' worth of bits to reach every order); an image that is not below n
 * is sent through again, which stays a permutation of [0, n). The halves differ by a bit
 * when the number of bits is odd, and swap sizes each round. */
uint64_t rng_permute(const Rng *r, uint64_t i, uint64_t n) {
  enum { ROUNDS = 8 };
  assert(i < n);
  int bits = 6;
  while (bits < 64 && n > (uint64_t)1 << bits) bits++;
  do {
    int left = bits / 2, right = bits - left;
    for (uint32_t round = 0; round < ROUNDS; round++) {
      uint64_t low = i & (((uint64_t)1 << right) - 1), high = i >> right;
      uint32_t w[4];
      draw(r, low, USE_PERMUTE, round, w);
      i = low << left | (high ^ (w[0] & (((uint64_t)1 << left) - 1)));
      int swap = left;
      left = right;
      right = swap;
    }
  } while (i >= n);
  return i;
}
