/* lifetimes.c - allocation and release of a rank's buffers as one list of steps. Most
 * schedules reach a steady state, in which the list is periodic. Packing walks through a
 * few periods; once holes and offsets repeat those of some periods before, the remaining
 * periods cannot change the result and are skipped. */
#include "lifetimes.h"

#include "vm/storage/holes.h"

/* ---- sizes ---- */

static int size_number(BufferSizes *s, uint64_t bytes) {
  uint64_t size = align_up(bytes);
  if (size == 0) return -1;
  for (int i = 0; i < s->n; i++)
    if (s->size[i] == size) return i;
  s->size[s->n] = size;
  return s->n++;
}

void buffer_sizes(const Units *u, Arena *a, BufferSizes *out) {
  *out = (BufferSizes){.nwhat = 3 * u->n + u->nedge};
  out->group = NEW_N(a, int, out->nwhat);
  out->size = NEW_N(a, uint64_t, out->nwhat);
  for (int i = 0; i < u->n; i++)
    for (int k = 0; k < 3; k++)
      out->group[3 * i + k] = size_number(out, u->at[i].code->frame[k]);
  for (int e = 0; e < u->nedge; e++)
    out->group[3 * u->n + e] = size_number(out, u->edge[e].bytes);
}

void unsharded_sizes(const UnshardedList *h, Area area, Arena *a, BufferSizes *out) {
  *out = (BufferSizes){.nwhat = UNSHARDED_N * h->n};
  out->group = NEW_N(a, int, out->nwhat);
  out->size = NEW_N(a, uint64_t, out->nwhat);
  for (int i = 0; i < out->nwhat; i++) {
    const UnshardedBucket *b = &h->at[i / UNSHARDED_N];
    out->group[i] = b->area == area ? size_number(out, b->bytes[i % UNSHARDED_N]) : -1;
  }
}

void buffer_shape(const Units *u, const BufferSizes *s, Text *out) {
  for (int i = 0; i < u->n; i++) {
    const CompiledUnit *x = &u->at[i];
    for (int k = 0; k < 3; k++) {
      text_printf(out, "%d%d ", x->code->body[k]->n > 0, x->code->frame[k] > 0);
      for (int j = 0; j < x->code->read[k].n; j++)
        text_printf(out, "%d,", x->code->read[k].edge[j]);
    }
    text_printf(out, "%d%s", x->code->body[PH_B]->n > 0, x->code->sums ? "+" : "");
    for (int k = 0; k < x->code->nedge; k++)
      text_printf(out, " %d:%d", x->edge[k], x->code->edge_use[k]);
    text_add(out, ";");
  }
  for (int i = 0; i < u->nedge; i++) text_printf(out, " %d", u->edge[i].unit);
  for (int i = 0; i < s->nwhat; i++) text_printf(out, " %d", s->group[i]);
}

/* ---- steps ---- */

typedef struct Steps {
  Lifetimes *l;
  Arena *scratch;
  /* each step in a form that can be compared: the kind of buffer allocated, or ~ how many
   * allocations ago the released buffer was allocated */
  int32_t *same;
} Steps;

static void make_steps(Steps *s, const Interval *v, int n) {
  Lifetimes *l = s->l;
  s->same = arena_raw(s->scratch, sizeof *s->same * 2 * (size_t)n);
  l->n = n;
  l->nstep = buffer_steps(v, n, s->scratch, l->step);
  for (int i = 0, taken = 0; i < l->nstep; i++) {
    int x = l->step[i];
    assert(x < 0 || x == taken); /* buffers are numbered by the position of their start */
    if (x >= 0) l->what[taken++] = v[x].what;
    s->same[i] = x >= 0 ? v[x].what : ~(taken - ~x);
  }
}

/* ---- the periodic part ---- */

/* The longest range of steps [lo, hi) around `at` that equal those `period` later. */
static void extend(const Steps *s, int at, int period, int *lo, int *hi) {
  int end = s->l->nstep - period;
  for (*hi = at; *hi < end && s->same[*hi] == s->same[*hi + period];) ++*hi;
  for (*lo = at; *lo > 0 && s->same[*lo - 1] == s->same[*lo - 1 + period];) --*lo;
}

/* Number of buffers allocated in steps [0, at). */
static int taken_before(const Lifetimes *l, int at) {
  while (at > 0 && l->step[at - 1] < 0) at--;
  return at > 0 ? l->step[at - 1] + 1 : 0;
}

/* The buffers in use before step `at`, ascending. */
static int32_t *in_use(const Steps *s, const int32_t *given, int at, int *n) {
  int taken = taken_before(s->l, at);
  int32_t *out = NEW_N(s->scratch, int32_t, taken + 1);
  *n = 0;
  for (int i = 0; i < taken; i++)
    if (given[i] >= at) out[(*n)++] = i;
  return out;
}

/* Whether the buffers in use at the start of period k are those at period `settled`, with
 * numbers that are `taken` higher per period, except for some that live through all
 * periods. Collects those that move on. */
static bool moves_on(const Steps *s, const int32_t *given, int k) {
  Lifetimes *l = s->l;
  int n, m, last = l->first + k * l->period, by = (k - l->settled) * l->taken, stay = 0;
  int32_t *a = in_use(s, given, l->first + l->settled * l->period, &n);
  int32_t *b = in_use(s, given, last, &m);
  if (n != m) return false;
  while (stay < n && a[stay] == b[stay]) stay++;
  for (int i = stay; i < n; i++)
    if (b[i] != a[i] + by) return false;
  l->moving = a + stay;
  l->nmoving = n - stay;
  return true;
}

/* For each buffer, the step that releases it. */
static int32_t *given_back(const Steps *s) {
  int32_t *given = NEW_N(s->scratch, int32_t, s->l->n);
  for (int i = 0; i < s->l->n; i++) given[i] = INT32_MAX;
  for (int i = 0; i < s->l->nstep; i++)
    if (s->l->step[i] < 0) given[~s->l->step[i]] = i;
  return given;
}

static bool settles(Steps *s, int lo, int hi, int period, Arena *a) {
  enum { WARM = 3 };
  Lifetimes *l = s->l;
  l->first = lo, l->period = period, l->repeats = (hi - lo) / period + 1;
  l->taken = taken_before(l, lo + period) - taken_before(l, lo);
  int32_t *given = given_back(s);
  for (l->settled = 1; l->settled <= WARM && l->settled + 2 < l->repeats; l->settled++) {
    if (!moves_on(s, given, l->repeats - 1) || !moves_on(s, given, l->settled + 1))
      continue;
    int32_t *moving = NEW_N(a, int32_t, l->nmoving + 1);
    memcpy(moving, l->moving, sizeof *moving * (size_t)l->nmoving);
    l->moving = moving;
    return true;
  }
  return false;
}

/* Looks for a period around the middle of the list. */
static void find_repetition(Steps *s, Arena *a) {
  enum { WINDOW = 64, LEAST = 8, TRIES = 64 };
  const Lifetimes *l = s->l;
  int at = l->nstep / 2, tries = 0;
  for (int p = 1; at + p + WINDOW < l->nstep && tries < TRIES; p++) {
    if (s->same[at] != s->same[at + p]) continue;
    if (memcmp(&s->same[at], &s->same[at + p], sizeof *s->same * WINDOW) != 0) continue;
    int lo, hi;
    tries++;
    extend(s, at, p, &lo, &hi);
    if (hi - lo >= LEAST * p && settles(s, lo, hi, p, a)) return;
  }
  s->l->period = 0;
}

/* ---- slots ---- */

static void count_slots(const Steps *s, const BufferSizes *f, Arena *a) {
  Lifetimes *l = s->l;
  int *used = NEW_N(s->scratch, int, f->n + 1), full = f->n;
  l->most = NEW_N(a, int, f->n + 1);
  l->nsize = f->n;
  l->tight = l->nstep == 0;
  for (int i = 0; i < l->nstep; i++) {
    int x = l->step[i], k = f->group[l->what[x < 0 ? ~x : x]];
    if (k < 0) continue;
    if (x < 0) {
      full -= used[k]-- == l->most[k];
      continue;
    }
    if (used[k]++ == l->most[k]) {
      l->most[k]++;
      l->tight = false;
    } else {
      full += used[k] == l->most[k];
    }
    if (full == f->n) l->tight = true;
  }
}

static void *move(Arena *a, const void *from, size_t n) {
  return memcpy(arena_raw(a, n + 1), from, n);
}

static void of_area(const Interval *v, int n, const BufferSizes *f, Arena *scratch,
                    Arena *a, Lifetimes *out) {
  size_t bytes = sizeof(int32_t) * (size_t)n;
  *out = (Lifetimes){.what = arena_raw(scratch, bytes),
                     .step = arena_raw(scratch, 2 * bytes)};
  Steps s = {.l = out, .scratch = scratch};
  make_steps(&s, v, n);
  count_slots(&s, f, a);
  if (!out->tight) find_repetition(&s, a);
  /* The steps are needed for packing with holes only. */
  out->what = out->tight ? NULL : move(a, out->what, sizeof *out->what * (size_t)n);
  out->step =
      out->tight ? NULL : move(a, out->step, sizeof *out->step * (size_t)out->nstep);
}

void lifetimes(const Transfers *tr, const Strategy *how, const UnshardedList *buckets,
               const BufferSizes f[AREA_N], int rank, Arena *scratch, Arena *a,
               Lifetimes out[AREA_N]) {
  Layout none = {0};
  MainList t = {.brief = true, .steps = buckets->n > 0};
  ActionsInput in = {.tr = tr, .scratch = scratch};
  actions(&in, rank, &none, &t);
  unshard(how, tr->st->ranks > 1, buckets, scratch, &t);
  for (int k = 0; k < AREA_N; k++) {
    of_area(t.buffer[k].at, t.buffer[k].n, &f[k], scratch, a, &out[k]);
    if (k == AREA_GATHER) /* counted as one area */
      out[k].copies = t.copies, out[k].moved = t.moved,
      out[k].moved_experts = t.moved_experts, out[k].moved_kept = t.moved_kept;
  }
}

uint64_t lifetimes_slots(const Lifetimes *l, const BufferSizes *f) {
  uint64_t bytes = 0;
  for (int i = 0; i < l->nsize; i++) bytes += f->size[i] * (uint64_t)l->most[i];
  return bytes;
}

/* ---- holes ---- */

/* What the rest of packing depends on, at the start of a period. */
typedef struct Snapshot {
  uint64_t hash, top;
  Hole *hole;
  int nhole;
  uint64_t *off; /* of the buffers that move on */
} Snapshot;

enum { SNAPSHOTS = 64 };

typedef struct Pack {
  const Lifetimes *l;
  Holes holes;
  uint64_t *off;            /* of each buffer in use */
  Snapshot seen[SNAPSHOTS]; /* from period `settled` on */
  int nseen;
} Pack;

static void take_snapshot(Pack *p, int k, Snapshot *s) {
  const Lifetimes *l = p->l;
  int by = (k - l->settled) * l->taken;
  size_t bytes = sizeof(Hole) * (size_t)p->holes.hole.n;
  *s = (Snapshot){.top = p->holes.top, .nhole = p->holes.hole.n};
  s->hole = arena_raw(p->holes.arena, bytes + 1);
  if (bytes) memcpy(s->hole, p->holes.hole.at, bytes);
  s->off = arena_raw(p->holes.arena, sizeof *s->off * (size_t)l->nmoving + 1);
  s->hash = s->top;
  for (int i = 0; i < l->nmoving; i++) {
    s->off[i] = p->off[l->moving[i] + by];
    s->hash = (s->hash ^ s->off[i]) * 0x9e3779b97f4a7c15u;
  }
}

static bool same_snapshot(const Pack *p, const Snapshot *a, const Snapshot *b) {
  return a->hash == b->hash && a->top == b->top && a->nhole == b->nhole &&
         memcmp(a->hole, b->hole, sizeof(Hole) * (size_t)a->nhole) == 0 &&
         memcmp(a->off, b->off, sizeof *a->off * (size_t)p->l->nmoving) == 0;
}

/* The period to continue with, at the start of period k. If the state equals that of some
 * periods ago it will repeat with that distance, so the periods up to the last repetition
 * are skipped. */
static int next_repetition(Pack *p, int k) {
  const Lifetimes *l = p->l;
  int last = l->repeats - 1;
  if (k < l->settled || k >= last || p->nseen == SNAPSHOTS) return k;
  Snapshot *now = &p->seen[p->nseen];
  take_snapshot(p, k, now);
  for (int j = p->nseen - 1; j >= 0; j--) {
    if (!same_snapshot(p, now, &p->seen[j])) continue;
    int cycle = p->nseen - j, to = last - (last - k) % cycle;
    int by = (to - l->settled) * l->taken;
    for (int i = 0; i < l->nmoving; i++) p->off[l->moving[i] + by] = now->off[i];
    p->nseen = SNAPSHOTS;
    return to;
  }
  p->nseen++;
  return k;
}

uint64_t lifetimes_holes(const Lifetimes *l, const BufferSizes *f, uint64_t limit,
                         Arena *scratch) {
  if (l->tight) return UINT64_MAX;
  Pack p = {.l = l, .holes = {.arena = scratch}};
  p.off = arena_raw(scratch, sizeof *p.off * (size_t)l->n + 1);
  int next = l->period ? l->first : l->nstep;
  for (int i = 0; i < l->nstep && p.holes.top <= limit; i++) {
    if (i == next) {
      i = l->first + next_repetition(&p, (i - l->first) / l->period) * l->period;
      next = i + l->period;
    }
    int x = l->step[i], k = f->group[l->what[x < 0 ? ~x : x]];
    if (k < 0) continue;
    if (x < 0)
      holes_give(&p.holes, p.off[~x], f->size[k]);
    else
      p.off[x] = holes_take(&p.holes, f->size[k]);
  }
  return p.holes.top;
}
