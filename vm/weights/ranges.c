/* ranges.c - a sorted set of disjoint ranges; see ranges.h. */
#include "ranges.h"

/* Runs [i, k) come to lie in the new one. */
static void add_run(RangeSet *c, int64_t from, int64_t to) {
  int i = 0, k;
  while (i < c->n && c->run[i].to + COVER_NEAR < from) i++;
  for (k = i; k < c->n && c->run[k].from <= to + COVER_NEAR; k++) {
    from = MIN(from, c->run[k].from);
    to = MAX(to, c->run[k].to);
  }
  memmove(&c->run[i + 1], &c->run[k], (size_t)(c->n - k) * sizeof *c->run);
  c->run[i] = (struct RangeRun){from, to};
  c->n += 1 - (k - i);
  assert(c->n <= LEN(c->run));
}

void ranges_add(RangeSet *c, const Piece *p) {
  SpanRun r;
  for (int64_t i = 0, spans = piece_spans(p); i < spans; i += r.count) {
    r = piece_run(p, i);
    int64_t from = r.first.global, n = r.first.n, last = from + (r.count - 1) * r.global;
    if (n == 0) continue;
    if (r.global - n <= COVER_NEAR)
      add_run(c, from, last + n);
    else
      for (; from <= last; from += r.global) add_run(c, from, from + n);
  }
}
