/* offsets.c - packs buffers whose lifetimes are known into one range of bytes.
 *
 * Walks the intervals in order of start with a list of holes, as an allocator would:
 * what ended before is given back, each new buffer takes the smallest hole that fits,
 * else the range grows. */
#include "passes.h"

#include <stdlib.h>

typedef struct Hole {
  uint64_t off, size;
} Hole;

typedef struct Packer {
  Arena *arena;
  VEC(Hole) hole;        /* by offset, never adjacent */
  VEC(int) live;         /* heap of interval numbers, earliest end first */
  Interval *v;
  uint64_t top;
} Packer;

static void heap_push(Packer *p, int x) {
  *VEC_PUSH(p->arena, p->live) = x;
  int i = p->live.n - 1, *h = p->live.at;
  while (i > 0 && p->v[h[(i - 1) / 2]].end > p->v[h[i]].end) {
    int t = h[i];
    h[i] = h[(i - 1) / 2];
    h[(i - 1) / 2] = t;
    i = (i - 1) / 2;
  }
}

static int heap_pop(Packer *p) {
  int *h = p->live.at, top = h[0], n = --p->live.n, i = 0;
  h[0] = h[n];
  for (;;) {
    int c = 2 * i + 1;
    if (c >= n) break;
    if (c + 1 < n && p->v[h[c + 1]].end < p->v[h[c]].end) c++;
    if (p->v[h[i]].end <= p->v[h[c]].end) break;
    int t = h[i];
    h[i] = h[c];
    h[c] = t;
    i = c;
  }
  return top;
}

static void remove_hole(Packer *p, int i) {
  memmove(&p->hole.at[i], &p->hole.at[i + 1],
          sizeof(Hole) * (size_t)(p->hole.n - i - 1));
  p->hole.n--;
}

static void give_back(Packer *p, uint64_t off, uint64_t size) {
  int i = 0, n = p->hole.n;
  while (i < n && p->hole.at[i].off < off) i++;
  bool left = i > 0 && p->hole.at[i - 1].off + p->hole.at[i - 1].size == off;
  bool right = i < n && off + size == p->hole.at[i].off;
  if (left && right) {
    p->hole.at[i - 1].size += size + p->hole.at[i].size;
    remove_hole(p, i);
  } else if (left) {
    p->hole.at[i - 1].size += size;
  } else if (right) {
    p->hole.at[i].off = off;
    p->hole.at[i].size += size;
  } else {
    (void)VEC_PUSH(p->arena, p->hole);
    memmove(&p->hole.at[i + 1], &p->hole.at[i], sizeof(Hole) * (size_t)(n - i));
    p->hole.at[i] = (Hole){off, size};
  }
}

static uint64_t take(Packer *p, uint64_t size) {
  int best = -1, n = p->hole.n;
  for (int i = 0; i < n; i++)
    if (p->hole.at[i].size >= size &&
        (best < 0 || p->hole.at[i].size < p->hole.at[best].size))
      best = i;
  if (best >= 0) {
    Hole *h = &p->hole.at[best];
    uint64_t off = h->off;
    h->off += size;
    h->size -= size;
    if (h->size == 0) remove_hole(p, best);
    return off;
  }
  uint64_t off = p->top;
  if (n > 0 && p->hole.at[n - 1].off + p->hole.at[n - 1].size == p->top) {
    off = p->hole.at[n - 1].off;
    p->hole.n--;
  }
  p->top = off + size;
  return off;
}

static int by_start(const void *x, const void *y, void *ud) {
  const Interval *v = ud, *a = &v[*(const int *)x], *b = &v[*(const int *)y];
  if (a->start != b->start) return a->start < b->start ? -1 : 1;
  return *(const int *)x - *(const int *)y;
}

uint64_t offsets(Arena *a, Interval *v, int n) {
  Packer p = {.arena = a, .v = v};
  int *order = NEW_N(a, int, n);
  bool sorted = true;
  for (int i = 0; i < n; i++) {
    order[i] = i;
    sorted &= i == 0 || v[i - 1].start <= v[i].start;
  }
  if (!sorted) qsort_r(order, (size_t)n, sizeof *order, by_start, v);
  for (int k = 0; k < n; k++) {
    Interval *x = &v[order[k]];
    while (p.live.n > 0 && v[p.live.at[0]].end < x->start) {
      const Interval *dead = &v[heap_pop(&p)];
      give_back(&p, dead->off, align_up(dead->size));
    }
    if (x->size == 0) continue;
    x->off = take(&p, align_up(x->size));
    heap_push(&p, order[k]);
  }
  return p.top;
}
