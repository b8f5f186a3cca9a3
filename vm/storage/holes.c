/* holes.c - best-fit allocation in a growing range of bytes; see holes.h. */
#include "holes.h"

static void remove_hole(Holes *h, int i) {
  memmove(&h->hole.at[i], &h->hole.at[i + 1], sizeof(Hole) * (size_t)(h->hole.n - i - 1));
  h->hole.n--;
}

/* The number of holes before `off`. */
static int holes_before(const Holes *h, uint64_t off) {
  int lo = 0, hi = h->hole.n;
  while (lo < hi) {
    int mid = (lo + hi) / 2;
    if (h->hole.at[mid].off < off)
      lo = mid + 1;
    else
      hi = mid;
  }
  return lo;
}

void holes_give(Holes *h, uint64_t off, uint64_t size) {
  int n = h->hole.n, i = holes_before(h, off);
  bool left = i > 0 && h->hole.at[i - 1].off + h->hole.at[i - 1].size == off;
  bool right = i < n && off + size == h->hole.at[i].off;
  if (left && right) {
    h->hole.at[i - 1].size += size + h->hole.at[i].size;
    remove_hole(h, i);
  } else if (left) {
    h->hole.at[i - 1].size += size;
  } else if (right) {
    h->hole.at[i].off = off;
    h->hole.at[i].size += size;
  } else {
    (void)VEC_PUSH(h->arena, h->hole);
    memmove(&h->hole.at[i + 1], &h->hole.at[i], sizeof(Hole) * (size_t)(n - i));
    h->hole.at[i] = (Hole){off, size};
  }
}

uint64_t holes_take(Holes *h, uint64_t size) {
  int best = -1, n = h->hole.n;
  for (int i = 0; i < n; i++)
    if (h->hole.at[i].size >= size &&
        (best < 0 || h->hole.at[i].size < h->hole.at[best].size))
      best = i;
  if (best >= 0) {
    Hole *x = &h->hole.at[best];
    uint64_t off = x->off;
    x->off += size;
    x->size -= size;
    if (x->size == 0) remove_hole(h, best);
    return off;
  }
  uint64_t off = h->top;
  if (n > 0 && h->hole.at[n - 1].off + h->hole.at[n - 1].size == h->top) {
    off = h->hole.at[n - 1].off;
    h->hole.n--;
  }
  h->top = off + size;
  return off;
}
