/* timeline.c - executes a schedule on a clock in units, with the same walk that proves
 * programs, but actions for instructions. An action waits for F or I of a stage and
 * microbatch on another rank, so it is visited once, plus once per wake-up. */
#include "timeline.h"

#include "vm/program/walk.h"

typedef struct Clock {
  const Schedule *s;
  const StageTicks *cost; /* [stage] */
  Timeline *t;
  VEC(TimelineTurn) turn;
  Arena *arena;
  Walk walk;    /* a rank waits for a cell of `end` */
  int64_t *end; /* end of F and of I, plus 1; 0: not yet known */
  int *alive;   /* [rank] */
} Clock;

enum { OF_F, OF_I };
static int64_t cell(const Clock *c, int of, int stage, int mb) {
  return ((int64_t)stage * c->s->microbatches + mb) * 2 + of;
}

static int last_stage(const Clock *c) { return c->s->ranks * c->s->virtual_stages - 1; }

/* Moves *start to the end of the dependency and of the transfer of its result; if not
 * known yet, false, and the rank waits. */
static bool ready(Clock *c, int rank, int of, int stage, int mb, int64_t transfer,
                  int64_t *start) {
  int64_t at = cell(c, of, stage, mb), end = c->end[at];
  if (end == 0) walk_block(&c->walk, rank, at);
  *start = MAX(*start, end - 1 + transfer);
  return end != 0;
}

static bool forward_ready(Clock *c, int rank, int stage, int mb, int64_t *start) {
  return stage == 0 ||
         ready(c, rank, OF_F, stage - 1, mb, c->cost[stage - 1].after, start);
}

static bool backward_ready(Clock *c, int rank, int stage, int mb, int64_t *start) {
  if (!ready(c, rank, OF_F, stage, mb, 0, start)) return false;
  return stage == last_stage(c) ||
         ready(c, rank, OF_I, stage + 1, mb, c->cost[stage + 1].before, start);
}

/* A pair is one slot without a gap, forward first. */
static bool pair_ready(Clock *c, int rank, const Action *a, int64_t *start) {
  int stage = schedule_stage(c->s, rank, a->chunk);
  int back = schedule_stage(c->s, rank, a->chunk2), last = last_stage(c);
  if (!forward_ready(c, rank, stage, a->mb, start)) return false;
  if (stage == last && back == last && a->mb == a->mb2) return true;
  int64_t f = c->cost[stage].f, middle = *start + f;
  if (!backward_ready(c, rank, back, a->mb2, &middle)) return false;
  *start = middle - f;
  return true;
}

/* F or I of a stage has ended: wakes a neighbour that waits for it. */
static void done(Clock *c, int of, int stage, int mb, int64_t end) {
  int64_t at = cell(c, of, stage, mb);
  int to = of == OF_F ? stage + 1 : stage - 1, rank, chunk;
  c->end[at] = end + 1;
  if (to < 0 || to > last_stage(c)) return;
  schedule_where(c->s, to, &rank, &chunk);
  walk_wake(&c->walk, rank, at);
}

static void forward_done(Clock *c, int rank, int stage, int mb, int64_t end) {
  if (++c->alive[rank] > c->t->peak[rank]) c->t->peak[rank] = c->alive[rank];
  done(c, OF_F, stage, mb, end);
}

static void backward_done(Clock *c, int rank, int stage, int mb, int64_t end) {
  done(c, OF_I, stage, mb, end);
  c->alive[rank]--;
}

/* Forward and backward of a pair; its slot ends at *end. */
static bool pair(Clock *c, int rank, const Action *a, int64_t *start, int64_t *end) {
  int stage = schedule_stage(c->s, rank, a->chunk);
  int back = schedule_stage(c->s, rank, a->chunk2);
  if (!pair_ready(c, rank, a, start)) return false;
  int64_t half = *start + c->cost[stage].f;
  forward_done(c, rank, stage, a->mb, half);
  *end = half + c->cost[back].i + c->cost[back].w;
  backward_done(c, rank, back, a->mb2, *end);
  return true;
}

/* Runs the rank's next action; false if it has to wait for another rank. */
static bool step(Clock *c, int rank, const Action *a, TimelineSlot *slot) {
  int stage = schedule_stage(c->s, rank, a->chunk);
  int64_t start = c->walk.rank[rank].now, end = start;
  const StageTicks *cost = &c->cost[stage];
  switch (a->kind) {
  case ACT_F:
    if (!forward_ready(c, rank, stage, a->mb, &start)) return false;
    forward_done(c, rank, stage, a->mb, end = start + cost->f);
    break;
  case ACT_I:
    if (!backward_ready(c, rank, stage, a->mb, &start)) return false;
    done(c, OF_I, stage, a->mb, end = start + cost->i);
    break;
  case ACT_B:
    if (!backward_ready(c, rank, stage, a->mb, &start)) return false;
    backward_done(c, rank, stage, a->mb, end = start + cost->i + cost->w);
    break;
  case ACT_W:
    if (!ready(c, rank, OF_I, stage, a->mb, 0, &start)) return false;
    end = start + cost->w;
    c->alive[rank]--;
    break;
  case ACT_OVERLAP:
    if (!pair(c, rank, a, &start, &end)) return false;
    break;
  default: break;
  }
  *slot = (TimelineSlot){start, end};
  return true;
}

/* Runs actions of a rank until one has to wait. */
static void advance(Clock *c, int rank) {
  Timeline *t = c->t;
  WalkRank *w = &c->walk.rank[rank];
  int from = t->ran[rank], *i = &t->ran[rank];
  TimelineSlot slot;
  while (*i < c->s->n[rank] && step(c, rank, &c->s->list[rank][*i], &slot)) {
    t->slot[rank][*i] = slot;
    if (*i == 0) t->first[rank] = slot.start;
    t->busy[rank] += slot.end - slot.start;
    t->last[rank] = w->now = slot.end;
    ++*i;
  }
  if (*i > from) *VEC_PUSH(c->arena, c->turn) = (TimelineTurn){rank, *i - from};
  w->ended = *i == c->s->n[rank];
}

static bool part_exists(const Schedule *s, int chunk, int mb, bool per_mb) {
  return chunk >= 0 && chunk < s->virtual_stages &&
         (!per_mb || (mb >= 0 && mb < s->microbatches));
}

/* Later code indexes with these, so they are checked first. */
static weft_status check_range(const Schedule *s, weft_error *e) {
  for (int r = 0; r < s->ranks; r++)
    for (int i = 0; i < s->n[r]; i++) {
      const Action *a = &s->list[r][i];
      bool ok = part_exists(s, a->chunk, a->mb, a->kind <= ACT_OVERLAP);
      if (a->kind == ACT_OVERLAP) ok = ok && part_exists(s, a->chunk2, a->mb2, true);
      if (!ok)
        return err_file(e, WEFT_EPLAN, s->file, a->line,
                        "rank %d, action %d: its chunk or microbatch is not there", r, i);
    }
  return WEFT_OK;
}

static weft_status check_done(const Clock *c, weft_error *e) {
  const Schedule *s = c->s;
  int r = walk_left(&c->walk);
  if (r < 0) return WEFT_OK;
  const Action *a = &s->list[r][c->t->ran[r]];
  return err_file(e, WEFT_EPLAN, s->file, a->line,
                  "the schedule cannot run: rank %d waits for ever before action %d "
                  "(stage %d, microbatch %d)",
                  r, c->t->ran[r], schedule_stage(s, r, a->chunk), a->mb);
}

static void make(Clock *c, Arena *arena) {
  const Schedule *s = c->s;
  size_t n = (size_t)s->ranks * (size_t)s->virtual_stages * (size_t)s->microbatches;
  *c->t = (Timeline){.ranks = s->ranks,
                     .busy = NEW_N(arena, int64_t, s->ranks),
                     .first = NEW_N(arena, int64_t, s->ranks),
                     .last = NEW_N(arena, int64_t, s->ranks),
                     .ran = NEW_N(arena, int, s->ranks),
                     .peak = NEW_N(arena, int, s->ranks)};
  c->end = NEW_N(arena, int64_t, 2 * n);
  c->alive = NEW_N(arena, int, s->ranks);
  walk_begin(&c->walk, arena, s->ranks);
}

static weft_status run(Clock *c, weft_error *e) {
  Timeline *t = c->t;
  for (int rank; (rank = walk_next(&c->walk)) >= 0;) advance(c, rank);
  for (int r = 0; r < t->ranks; r++) t->makespan = MAX(t->makespan, t->last[r]);
  t->turn = c->turn.at;
  t->nturn = c->turn.n;
  return check_done(c, e);
}

weft_status timeline_run(const Schedule *s, TimelineCost cost, Arena *arena,
                         Timeline *out, weft_error *e) {
  int n = s->ranks * s->virtual_stages;
  StageTicks *all = NEW_N(arena, StageTicks, n);
  for (int i = 0; i < n; i++)
    all[i] = (StageTicks){.f = cost.f, .i = cost.i, .w = cost.w};
  Clock c = {.s = s, .cost = all, .t = out, .arena = arena};
  TRY(check_range(s, e));
  make(&c, arena);
  out->slot = NEW_N(arena, TimelineSlot *, s->ranks);
  for (int r = 0; r < s->ranks; r++) out->slot[r] = NEW_N(arena, TimelineSlot, s->n[r]);
  return run(&c, e);
}

double timeline_bubble(const Timeline *t) {
  int64_t busy = 0;
  for (int r = 0; r < t->ranks; r++) busy += t->busy[r];
  int64_t span = t->makespan * t->ranks;
  return span ? (double)(span - busy) / (double)span : 0;
}

double timeline_bubble_own(const Timeline *t) {
  int64_t busy = 0, span = 0;
  for (int r = 0; r < t->ranks; r++) busy += t->busy[r], span += t->last[r] - t->first[r];
  return span ? (double)(span - busy) / (double)span : 0;
}
