/* timeline.c - executes a schedule on a clock in units, with the same walk that proves
 * programs, but actions for instructions. An action waits for F or I of a stage and
 * microbatch on another rank, so it is visited once, plus once per wake-up. */
#include "timeline.h"

#include "vm/program/walk.h"

typedef struct Clock {
  const Schedule *s;
  TimelineCost cost;
  Timeline *t;
  Walk walk;    /* a rank waits for a cell of `end` */
  int64_t *end; /* end of F and of I, plus 1; 0: not yet known */
  int *alive;   /* [rank] */
} Clock;

enum { OF_F, OF_I };
static int64_t cell(const Clock *c, int of, int stage, int mb) {
  return ((int64_t)stage * c->s->microbatches + mb) * 2 + of;
}

static int last_stage(const Clock *c) { return c->s->ranks * c->s->virtual_stages - 1; }

/* Moves *start to the end of the dependency; if not known yet, false, and the rank
 * waits. */
static bool ready(Clock *c, int rank, int of, int stage, int mb, int64_t *start) {
  int64_t at = cell(c, of, stage, mb), end = c->end[at];
  if (end == 0) walk_block(&c->walk, rank, at);
  *start = MAX(*start, end - 1);
  return end != 0;
}

static bool forward_ready(Clock *c, int rank, int stage, int mb, int64_t *start) {
  return stage == 0 || ready(c, rank, OF_F, stage - 1, mb, start);
}

static bool backward_ready(Clock *c, int rank, int stage, int mb, int64_t *start) {
  if (!ready(c, rank, OF_F, stage, mb, start)) return false;
  return stage == last_stage(c) || ready(c, rank, OF_I, stage + 1, mb, start);
}

/* A pair is one slot without a gap, forward first. */
static bool pair_ready(Clock *c, int rank, const Action *a, int64_t *start) {
  int stage = schedule_stage(c->s, rank, a->chunk);
  int back = schedule_stage(c->s, rank, a->chunk2), last = last_stage(c);
  if (!forward_ready(c, rank, stage, a->mb, start)) return false;
  if (stage == last && back == last && a->mb == a->mb2) return true;
  int64_t middle = *start + c->cost.f;
  if (!backward_ready(c, rank, back, a->mb2, &middle)) return false;
  *start = middle - c->cost.f;
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

/* Runs the rank's next action; false if it has to wait for another rank. */
static bool step(Clock *c, int rank, const Action *a, TimelineSlot *slot) {
  int stage = schedule_stage(c->s, rank, a->chunk);
  int64_t start = c->walk.rank[rank].now, end = start;
  int64_t f = c->cost.f, i = c->cost.i, w = c->cost.w;
  switch (a->kind) {
  case ACT_F:
    if (!forward_ready(c, rank, stage, a->mb, &start)) return false;
    forward_done(c, rank, stage, a->mb, end = start + f);
    break;
  case ACT_I:
    if (!backward_ready(c, rank, stage, a->mb, &start)) return false;
    done(c, OF_I, stage, a->mb, end = start + i);
    break;
  case ACT_B:
    if (!backward_ready(c, rank, stage, a->mb, &start)) return false;
    done(c, OF_I, stage, a->mb, end = start + i + w);
    c->alive[rank]--;
    break;
  case ACT_W:
    if (!ready(c, rank, OF_I, stage, a->mb, &start)) return false;
    end = start + w;
    c->alive[rank]--;
    break;
  case ACT_OVERLAP:
    if (!pair_ready(c, rank, a, &start)) return false;
    end = start + f + i + w;
    forward_done(c, rank, stage, a->mb, start + f);
    done(c, OF_I, schedule_stage(c->s, rank, a->chunk2), a->mb2, end);
    c->alive[rank]--;
    break;
  default: break;
  }
  *slot = (TimelineSlot){start, end};
  return true;
}

static void advance(Clock *c, int rank) {
  Timeline *t = c->t;
  WalkRank *w = &c->walk.rank[rank];
  for (int *i = &t->ran[rank]; *i < c->s->n[rank]; ++*i) {
    TimelineSlot *slot = &t->slot[rank][*i];
    if (!step(c, rank, &c->s->list[rank][*i], slot)) return;
    if (*i == 0) t->first[rank] = slot->start;
    t->busy[rank] += slot->end - slot->start;
    t->last[rank] = w->now = slot->end;
  }
  w->ended = true;
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
  Timeline *t = c->t;
  size_t n = (size_t)s->ranks * (size_t)s->virtual_stages * (size_t)s->microbatches;
  *t = (Timeline){.ranks = s->ranks,
                  .slot = NEW_N(arena, TimelineSlot *, s->ranks),
                  .busy = NEW_N(arena, int64_t, s->ranks),
                  .first = NEW_N(arena, int64_t, s->ranks),
                  .last = NEW_N(arena, int64_t, s->ranks),
                  .ran = NEW_N(arena, int, s->ranks),
                  .peak = NEW_N(arena, int, s->ranks)};
  for (int r = 0; r < s->ranks; r++) t->slot[r] = NEW_N(arena, TimelineSlot, s->n[r]);
  c->end = NEW_N(arena, int64_t, 2 * n);
  c->alive = NEW_N(arena, int, s->ranks);
  walk_begin(&c->walk, arena, s->ranks);
}

weft_status timeline_run(const Schedule *s, TimelineCost cost, Arena *arena,
                         Timeline *out, weft_error *e) {
  Clock c = {.s = s, .cost = cost, .t = out};
  TRY(check_range(s, e));
  make(&c, arena);
  for (int rank; (rank = walk_next(&c.walk)) >= 0;) advance(&c, rank);
  for (int r = 0; r < s->ranks; r++) out->makespan = MAX(out->makespan, out->last[r]);
  return check_done(&c, e);
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
