/* random_schedule.c - draws schedules and changes them. */
#include "random_schedule.h"

Dice dice(uint64_t seed, const char *name) { return (Dice){rng_make(seed, name), 0}; }

int throw_dice(Dice *d, int n) { return (int)(rng_u32(&d->rng, d->at++) % (uint32_t)n); }

/* ---- legal schedules ---- */

enum { DID_F = 1, DID_I = 2, DID_W = 4, SPLIT = 8 };

typedef struct Draw {
  Schedule s;
  Dice *d;
  uint8_t *did; /* [stage * microbatches + mb] */
  Action *can;  /* room for what a rank can begin */
} Draw;

static uint8_t *did(const Draw *w, int stage, int mb) {
  return &w->did[stage * w->s.microbatches + mb];
}

static bool can_f(const Draw *w, int stage, int mb) {
  return !(*did(w, stage, mb) & DID_F) && (stage == 0 || *did(w, stage - 1, mb) & DID_F);
}

static bool can_i(const Draw *w, int stage, int mb) {
  bool last = stage == w->s.ranks * w->s.virtual_stages - 1;
  uint8_t x = *did(w, stage, mb);
  return x & DID_F && !(x & DID_I) && (last || *did(w, stage + 1, mb) & DID_I);
}

/* Collects every action that a rank can begin now. */
static int choices(const Draw *w, int rank) {
  int n = 0;
  for (int c = 0; c < w->s.virtual_stages; c++)
    for (int mb = 0; mb < w->s.microbatches; mb++) {
      int stage = schedule_stage(&w->s, rank, c);
      uint8_t x = *did(w, stage, mb);
      Action a = {.chunk = (int16_t)c, .mb = mb};
      if (can_f(w, stage, mb))
        a.kind = ACT_F;
      else if (can_i(w, stage, mb))
        a.kind = x & SPLIT ? ACT_I : ACT_B;
      else if ((x & DID_I) && !(x & DID_W))
        a.kind = ACT_W;
      else
        continue;
      w->can[n++] = a;
    }
  return n;
}

static void mark(Draw *w, int rank, int chunk, int mb, int bits) {
  *did(w, schedule_stage(&w->s, rank, chunk), mb) |= (uint8_t)bits;
}

static void take(Draw *w, int rank, Action a) {
  static const uint8_t bits[] = {DID_F, DID_I, DID_W, DID_I | DID_W};
  mark(w, rank, a.chunk, a.mb, bits[a.kind]);
  w->s.list[rank][w->s.n[rank]++] = a;
}

/* Joins a forward and a backward that can both begin into a pair, sometimes. */
static bool take_pair(Draw *w, int rank, const Action *f, int n) {
  for (int i = 0; i < n; i++) {
    const Action *b = &w->can[i];
    if (b->kind != ACT_B) continue;
    Action pair = {.kind = ACT_OVERLAP,
                   .chunk = f->chunk,
                   .mb = f->mb,
                   .chunk2 = b->chunk,
                   .mb2 = b->mb};
    mark(w, rank, f->chunk, f->mb, DID_F);
    mark(w, rank, b->chunk, b->mb, DID_I | DID_W);
    w->s.list[rank][w->s.n[rank]++] = pair;
    return true;
  }
  return false;
}

static void insert(Schedule *s, int r, int i, Action x) {
  memmove(&s->list[r][i + 1], &s->list[r][i], sizeof(Action) * (size_t)(s->n[r]++ - i));
  s->list[r][i] = x;
}

static bool writes_gradients(const Action *a, int chunk) {
  ActionPart part[2];
  int n = action_parts(a, part);
  for (int k = 0; k < n; k++)
    if (part[k].chunk == chunk && part[k].bits & PART_W) return true;
  return false;
}

/* Adds REDUCE_GRAD to some chunks, anywhere after their last W. */
static void add_reductions(Draw *w) {
  Schedule *s = &w->s;
  for (int r = 0; r < s->ranks; r++)
    for (int c = 0; c < s->virtual_stages; c++) {
      if (throw_dice(w->d, 3)) continue;
      int i = s->n[r];
      while (!writes_gradients(&s->list[r][i - 1], c)) i--;
      i += throw_dice(w->d, s->n[r] - i + 1);
      insert(s, r, i, (Action){.kind = ACT_REDUCE_GRAD, .chunk = (int16_t)c, .mb = -1});
    }
}

Schedule sched_random(Arena *a, Dice *d, int ranks, int virtual_stages, int microbatches,
                      bool v_placement) {
  int cells = virtual_stages * microbatches;
  Draw w = {.d = d,
            .s = {.ranks = ranks,
                  .virtual_stages = virtual_stages,
                  .microbatches = microbatches,
                  .v_placement = v_placement,
                  .list = NEW_N(a, Action *, ranks),
                  .n = NEW_N(a, int, ranks),
                  .name = "random"},
            .did = NEW_N(a, uint8_t, ranks * cells),
            .can = NEW_N(a, Action, cells)};
  int split = throw_dice(d, 3), pairs = throw_dice(d, 3);
  for (int i = 0; i < ranks * cells; i++)
    if (split == 1 || (split == 2 && throw_dice(d, 2))) w.did[i] = SPLIT;
  for (int r = 0; r < ranks; r++)
    w.s.list[r] = NEW_N(a, Action, 3 * cells + virtual_stages);
  for (;;) {
    int r = throw_dice(d, ranks), n = choices(&w, r);
    for (int k = 1; k < ranks && n == 0; k++) n = choices(&w, r = (r + 1) % ranks);
    if (n == 0) break;
    Action next = w.can[throw_dice(d, n)];
    if (next.kind == ACT_F && pairs == 2 && take_pair(&w, r, &next, n)) continue;
    take(&w, r, next);
  }
  add_reductions(&w);
  return w.s;
}

/* ---- changes ---- */

static Schedule copy(Arena *a, const Schedule *from) {
  Schedule s = *from;
  s.n = arena_copy(a, from->n, sizeof *s.n * (size_t)s.ranks);
  s.list = NEW_N(a, Action *, s.ranks);
  for (int r = 0; r < s.ranks; r++) {
    s.list[r] = NEW_N(a, Action, s.n[r] + 1);
    memcpy(s.list[r], from->list[r], sizeof(Action) * (size_t)s.n[r]);
  }
  return s;
}

static void drop(Schedule *s, int r, int i) {
  memmove(&s->list[r][i], &s->list[r][i + 1], sizeof(Action) * (size_t)(--s->n[r] - i));
}

Schedule sched_mutant(Arena *a, Dice *d, const Schedule *from, const char **what) {
  Schedule s = copy(a, from);
  int r = throw_dice(d, s.ranks), n = s.n[r], i = throw_dice(d, n), k = throw_dice(d, n);
  int to = throw_dice(d, s.ranks), kind = throw_dice(d, 8);
  Action x = s.list[r][i];
  if (kind < 3) k = MIN(i + 1, n - 1);
  if (kind < 5) {
    s.list[r][i] = s.list[r][k];
    s.list[r][k] = x;
    *what = arena_printf(a, "rank %d: %d and %d swapped", r, i, k);
  } else if (kind == 5) {
    drop(&s, r, i);
    *what = arena_printf(a, "rank %d: %d dropped", r, i);
  } else if (kind == 6) {
    insert(&s, r, k, x);
    *what = arena_printf(a, "rank %d: %d repeated at %d", r, i, k);
  } else {
    drop(&s, r, i);
    insert(&s, to, throw_dice(d, s.n[to] + 1), x);
    *what = arena_printf(a, "rank %d: %d moved to rank %d", r, i, to);
  }
  return s;
}
