/* blend.c - the order of samples from several weighted streams. As in Megatron, each
 * sample comes from the stream that lags most behind its share. Here the order is made
 * for one cycle, in which every stream gets its exact share, and repeated, so that any
 * sample is found in constant time. */
#include <math.h>

#include "source.h"

enum { CYCLE_MOST = 1 << 16 };

/* True if a cycle of this length gives every stream a whole number of samples. */
static bool fits(const double *weight, int n, double sum, int64_t cycle) {
  for (int i = 0; i < n; i++) {
    double x = weight[i] / sum * (double)cycle;
    if (x < 0.5 || fabs(x - round(x)) > 1e-6) return false;
  }
  return true;
}

/* Rounds the shares of a cycle so that their sum is right: down, then up for those that
 * lost most, the first of equals. Every stream gets a sample. */
static void round_shares(const double *weight, int n, double sum, int64_t cycle,
                         int64_t *share) {
  int64_t left = cycle;
  for (int i = 0; i < n; i++) {
    share[i] = MAX((int64_t)floor(weight[i] / sum * (double)cycle), (int64_t)1);
    left -= share[i];
  }
  for (; left != 0; left += left < 0 ? 1 : -1) {
    int best = -1;
    double most = -INFINITY;
    for (int i = 0; i < n; i++) {
      double lost = weight[i] / sum * (double)cycle - (double)share[i];
      if (left < 0) lost = share[i] > 1 ? -lost : -INFINITY;
      if (lost > most) best = i, most = lost;
    }
    share[best] += left < 0 ? -1 : 1;
  }
}

int64_t blend_cycle(const double *weight, int n, int64_t *share) {
  double sum = 0;
  int64_t cycle = n;
  for (int i = 0; i < n; i++) sum += weight[i];
  while (cycle < CYCLE_MOST && !fits(weight, n, sum, cycle)) cycle++;
  if (!share) return cycle;
  if (fits(weight, n, sum, cycle))
    for (int i = 0; i < n; i++) share[i] = llround(weight[i] / sum * (double)cycle);
  else
    round_shares(weight, n, sum, cycle, share);
  return cycle;
}

/* The stream furthest behind its share of the samples up to `at`; the first of equals. */
static int next_turn(const Blend *b, int64_t at, const int64_t *had) {
  int best = 0;
  int64_t most = INT64_MIN;
  for (int i = 0; i < b->n; i++) {
    int64_t lags = b->share[i] * MAX(at, (int64_t)1) - had[i] * b->cycle;
    if (lags > most && had[i] < b->share[i]) best = i, most = lags;
  }
  return best;
}

weft_status blend_fill(const weft_alloc *a, const double *weight, Blend *b,
                       weft_error *e) {
  b->cycle = blend_cycle(weight, b->n, b->share);
  b->turn = mem_new(a, (size_t)b->cycle * 2 * sizeof *b->turn);
  int64_t *had = mem_new(a, (size_t)b->n * sizeof *had);
  if (b->turn && had) {
    b->nth = b->turn + b->cycle;
    for (int64_t i = 0; i < b->cycle; i++) {
      int k = next_turn(b, i, had);
      b->turn[i] = (uint16_t)k;
      b->nth[i] = (uint16_t)had[k]++;
    }
  }
  bool ok = b->turn && had;
  mem_free(a, had, (size_t)b->n * sizeof *had);
  return ok ? WEFT_OK : err_set(e, WEFT_ENOMEM, "out of memory");
}

int64_t blend_sample(const Blend *b, int k, int64_t nth) {
  int64_t at = 0, in = nth % b->share[k];
  while (b->turn[at] != k || b->nth[at] != in) at++;
  return nth / b->share[k] * b->cycle + at;
}

void blend_free(const weft_alloc *a, Blend *b) {
  mem_free(a, b->turn, (size_t)b->cycle * 2 * sizeof *b->turn);
}
