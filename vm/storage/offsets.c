/* offsets.c - packs buffers whose lifetimes are known into one range of bytes, in two
 * ways, of which the better one counts.
 *
 * Slots: each size has as many slots as buffers of that size are in use at once, and a
 * buffer takes any free one. Microbatches use the same few sizes again and again, so this
 * rarely wastes a byte: never where all sizes need most slots at the same time. Holes:
 * buffers go into the smallest hole that fits, as an allocator would do it; better where
 * different sizes take turns, but holes break into pieces. */
#include "holes.h"
#include "offsets.h"

#include <stdlib.h>

typedef struct SlotSize {
  uint64_t size, base;
  int used, most; /* slots */
  VEC(int) free;
} SlotSize;

typedef struct Packer {
  Arena *arena;
  VEC(int) live; /* heap of interval numbers, earliest end first */
  Interval *v;
  int *order, n; /* by start; without those of no size */
  Holes holes;
  VEC(SlotSize) size;
  int *size_of, *slot; /* of each interval: index into `size`, and its slot */
  int full;            /* sizes that use as many slots as they ever did */
  bool tight;          /* all of them did at once, since the last one got another slot */
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

/* Gives every buffer in order of start to `take`, after those that ended before it were
 * given to `give`. */
static void walk(Packer *p, void (*take)(Packer *p, int x),
                 void (*give)(Packer *p, int x)) {
  p->live.n = 0;
  for (int k = 0; k < p->n; k++) {
    const Interval *x = &p->v[p->order[k]];
    while (p->live.n > 0 && p->v[p->live.at[0]].end < x->start)
      give(p, heap_pop(p));
    take(p, p->order[k]);
    heap_push(p, p->order[k]);
  }
}

/* ---- holes ---- */

static void take_hole(Packer *p, int x) {
  p->v[x].off = holes_take(&p->holes, align_up(p->v[x].size));
}

static void give_hole(Packer *p, int x) {
  holes_give(&p->holes, p->v[x].off, align_up(p->v[x].size));
}

/* ---- slots ---- */

static void take_slot(Packer *p, int x) {
  SlotSize *s = &p->size.at[p->size_of[x]];
  bool fresh = s->used++ == s->most;
  p->slot[x] = fresh ? s->most++ : s->free.at[--s->free.n];
  if (fresh)
    p->tight = false;
  else if (s->used == s->most)
    p->full++;
  if (p->full == p->size.n) p->tight = true;
}

static void give_slot(Packer *p, int x) {
  SlotSize *s = &p->size.at[p->size_of[x]];
  if (s->used-- == s->most) p->full--;
  *VEC_PUSH(p->arena, s->free) = p->slot[x];
}

static int size_index(Packer *p, uint64_t size) {
  int i = 0;
  while (i < p->size.n && p->size.at[i].size != size)
    i++;
  if (i == p->size.n) *VEC_PUSH(p->arena, p->size) = (SlotSize){.size = size};
  return i;
}

static uint64_t by_slots(Packer *p) {
  uint64_t end = 0;
  for (int k = 0; k < p->n; k++) {
    int x = p->order[k];
    p->size_of[x] = size_index(p, align_up(p->v[x].size));
  }
  p->full = p->size.n; /* without a slot all are full */
  walk(p, take_slot, give_slot);
  for (int i = 0; i < p->size.n; i++) {
    p->size.at[i].base = end;
    end += p->size.at[i].size * (uint64_t)p->size.at[i].most;
  }
  return end;
}

/* ---- both ---- */

static int by_start(const void *x, const void *y, void *ud) {
  const Interval *v = ud, *a = &v[*(const int *)x], *b = &v[*(const int *)y];
  if (a->start != b->start) return a->start < b->start ? -1 : 1;
  return *(const int *)x - *(const int *)y;
}

static void sort(Packer *p, int n) {
  bool sorted = true;
  for (int i = 0; i < n; i++) {
    sorted &= i == 0 || p->v[i - 1].start <= p->v[i].start;
    if (p->v[i].size > 0) p->order[p->n++] = i;
  }
  if (!sorted) qsort_r(p->order, (size_t)p->n, sizeof *p->order, by_start, p->v);
}

uint64_t offsets(Arena *a, Interval *v, int n) {
  Packer p = {.arena = a, .v = v, .holes = {.arena = a}};
  p.order = NEW_N(a, int, n);
  p.size_of = NEW_N(a, int, n);
  p.slot = NEW_N(a, int, n);
  sort(&p, n);
  uint64_t slots = by_slots(&p);
  if (!p.tight) walk(&p, take_hole, give_hole);
  if (!p.tight && p.holes.top < slots) return p.holes.top;
  for (int k = 0; k < p.n; k++) {
    int x = p.order[k];
    const SlotSize *s = &p.size.at[p.size_of[x]];
    v[x].off = s->base + s->size * (uint64_t)p.slot[x];
  }
  return slots;
}
