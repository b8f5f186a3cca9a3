/* memory_plan.c - packs buffers with known lifetimes into one range of bytes, in two
 * ways, and takes the smaller result.
 *
 * Slots: each size has as many slots as buffers of that size are alive at once, and a
 * buffer takes any free one. Microbatches reuse the same few sizes, so this rarely wastes
 * a byte. Holes: best fit into the smallest hole; better where different sizes alternate,
 * but holes fragment. */
#include "holes.h"
#include "memory_plan.h"

typedef struct SlotSize {
  uint64_t size, base;
  int used, most; /* slots in use; most so far */
  VEC(int) free;
} SlotSize;

typedef struct Packer {
  Arena *arena;
  Interval *v;
  int32_t *step;
  int nstep;
  Holes holes;
  VEC(SlotSize) size;
  int *size_of, *slot; /* of each interval: index into `size`, -1: no bytes; its slot */
  int full;            /* number of sizes with all their slots in use */
  bool tight;          /* all sizes were full at once since the last one got a slot */
} Packer;

/* ---- steps ---- */

/* Indices of intervals sorted by start or end; equal ones keep their order. */
static int32_t *sorted(const Interval *v, int n, bool by_end, int last, Arena *scratch) {
  int32_t *at = NEW_N(scratch, int32_t, last + 2);
  int32_t *out = arena_raw(scratch, sizeof *out * (size_t)n);
  for (int i = 0; i < n; i++) at[(by_end ? v[i].end : v[i].start) + 1]++;
  for (int p = 0; p <= last; p++) at[p + 1] += at[p];
  for (int i = 0; i < n; i++) out[at[by_end ? v[i].end : v[i].start]++] = i;
  return out;
}

/* Most lists are already in the order of their starts. */
static int32_t *by_start(const Interval *v, int n, int last, Arena *scratch) {
  for (int i = 1; i < n; i++)
    if (v[i].start < v[i - 1].start) return sorted(v, n, false, last, scratch);
  int32_t *out = arena_raw(scratch, sizeof *out * (size_t)n);
  for (int i = 0; i < n; i++) out[i] = i;
  return out;
}

int buffer_steps(const Interval *v, int n, Arena *scratch, int32_t *step) {
  int last = 0, nstep = 0;
  for (int i = 0; i < n; i++) last = MAX(last, v[i].end);
  int32_t *dead = sorted(v, n, true, last, scratch);
  int32_t *born = by_start(v, n, last, scratch);
  for (int i = 0, d = 0; i < n; i++) {
    for (; v[dead[d]].end < v[born[i]].start; d++) step[nstep++] = ~dead[d];
    step[nstep++] = born[i];
  }
  return nstep;
}

/* Calls `take` for each buffer at its start and `give` after its end. */
static void walk(Packer *p, void (*take)(Packer *p, int x),
                 void (*give)(Packer *p, int x)) {
  for (int i = 0; i < p->nstep; i++) {
    int x = p->step[i];
    if (p->size_of[x < 0 ? ~x : x] < 0) continue;
    if (x < 0)
      give(p, ~x);
    else
      take(p, x);
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
  while (i < p->size.n && p->size.at[i].size != size) i++;
  if (i == p->size.n) *VEC_PUSH(p->arena, p->size) = (SlotSize){.size = size};
  return i;
}

static uint64_t by_slots(Packer *p, int n) {
  uint64_t end = 0;
  for (int i = 0; i < n; i++)
    p->size_of[i] = p->v[i].size ? size_index(p, align_up(p->v[i].size)) : -1;
  p->full = p->size.n; /* a size without a slot counts as full */
  walk(p, take_slot, give_slot);
  for (int i = 0; i < p->size.n; i++) {
    p->size.at[i].base = end;
    end += p->size.at[i].size * (uint64_t)p->size.at[i].most;
  }
  return end;
}

/* ---- both ---- */

uint64_t offsets(Arena *a, Interval *v, int n) {
  Packer p = {.arena = a, .v = v, .holes = {.arena = a}};
  p.step = arena_raw(a, sizeof *p.step * 2 * (size_t)n);
  p.size_of = arena_raw(a, sizeof *p.size_of * (size_t)n);
  p.slot = arena_raw(a, sizeof *p.slot * (size_t)n);
  p.nstep = buffer_steps(v, n, a, p.step);
  uint64_t slots = by_slots(&p, n);
  if (!p.tight) walk(&p, take_hole, give_hole);
  if (!p.tight && p.holes.top < slots) return p.holes.top;
  for (int i = 0; i < n; i++) {
    if (p.size_of[i] < 0) continue;
    const SlotSize *s = &p.size.at[p.size_of[i]];
    v[i].off = s->base + s->size * (uint64_t)p.slot[i];
  }
  return slots;
}
