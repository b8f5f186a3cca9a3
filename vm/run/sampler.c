/* sampler.c - samples the next token from logits: temperature, then top-k, then top-p;
 * see sampler.h. */
#include "sampler.h"

#include <math.h>
#include <stdlib.h>

#include "vm/base/rng.h"

static int32_t largest(const float *logits, int64_t n) {
  int32_t best = 0;
  for (int64_t i = 1; i < n; i++)
    if (logits[i] > logits[best]) best = (int32_t)i;
  return best;
}

static bool before(const float *x, int32_t a, int32_t b) {
  return x[a] > x[b] || (x[a] == x[b] && a < b);
}

/* Heap sift-down of room[at]; the root is what comes last in the order of before(). */
static void sift(const float *x, int32_t *room, int64_t at, int64_t n) {
  for (int64_t child; (child = 2 * at + 1) < n; at = child) {
    if (child + 1 < n && before(x, room[child], room[child + 1])) child++;
    if (!before(x, room[at], room[child])) return;
    int32_t t = room[at];
    room[at] = room[child], room[child] = t;
  }
}

/* Sorts all ids by falling logit, equal logits by id. */
static void sort(const float *x, int32_t *room, int64_t n) {
  for (int64_t i = 0; i < n; i++) room[i] = (int32_t)i;
  for (int64_t i = n / 2 - 1; i >= 0; i--) sift(x, room, i, n);
  for (int64_t i = n - 1; i > 0; i--) {
    int32_t t = room[0];
    room[0] = room[i], room[i] = t;
    sift(x, room, 0, i);
  }
}

int32_t sample_token(const SamplerOptions *c, const float *logits, int64_t n,
                     int64_t position, int32_t *room) {
  if (c->greedy) return largest(logits, n);
  sort(logits, room, n);
  int64_t m = c->top_k > 0 ? MIN(c->top_k, n) : n, kept = 0;
  double all = 0, sum = 0;
#define WEIGHT(i) exp(((double)logits[room[i]] - logits[room[0]]) / c->temperature)
  for (int64_t i = 0; i < m; i++) all += WEIGHT(i);
  while (kept < m && sum < c->top_p * all) sum += WEIGHT(kept++);
  Rng rng = rng_make(c->seed, "sample");
  double left = rng_uniform(&rng, (uint64_t)position) * sum;
  for (int64_t i = 0; i < kept - 1; i++)
    if ((left -= WEIGHT(i)) < 0) return room[i];
#undef WEIGHT
  return room[kept - 1];
}
