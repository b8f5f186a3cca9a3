/* timeline.c - runs a schedule on a clock in units. Each rank goes on until its next
 * action needs what another rank has not done yet; the rank that does it puts the waiting
 * one back on the list of those to look at. So every action is looked at once, plus once
 * for each time that its rank was woken. */
#include "timeline.h"

typedef struct Clock {
  const Schedule *s;
  TimelineCost cost;
  Timeline *t;
  int64_t *fwd, *bwd; /* [stage * microbatches + mb] end of F and I, plus 1; 0: not yet */
  int *at;            /* [rank] next action */
  int64_t *now;       /* [rank] when it is free */
  int *alive;         /* [rank] */
  int *todo, ntodo;   /* ranks to look at, each at most once */
  bool *queued;       /* [rank] */
} Clock;

static size_t cell(const Clock *c, int stage, int mb) {
  return (size_t)stage * (size_t)c->s->microbatches + (size_t)mb;
}

static int last_stage(const Clock *c) {
  return c->s->ranks * c->s->virtual_stages - 1;
}

/* Moves *start to when the forward of `stage` can begin; false if that is not known. */
static bool forward_ready(const Clock *c, int stage, int mb, int64_t *start) {
  if (stage == 0) return true;
  int64_t end = c->fwd[cell(c, stage - 1, mb)];
  *start = MAX(*start, end - 1);
  return end != 0;
}

static bool backward_ready(const Clock *c, int stage, int mb, int64_t *start) {
  int64_t end = c->fwd[cell(c, stage, mb)];
  *start = MAX(*start, end - 1);
  if (end == 0 || stage == last_stage(c)) return end != 0;
  end = c->bwd[cell(c, stage + 1, mb)];
  *start = MAX(*start, end - 1);
  return end != 0;
}

/* A pair is one slot without a gap, its forward first. */
static bool pair_ready(const Clock *c, int rank, const Action *a, int64_t *start) {
  int stage = schedule_stage(c->s, rank, a->chunk);
  int back = schedule_stage(c->s, rank, a->chunk2), last = last_stage(c);
  if (!forward_ready(c, stage, a->mb, start)) return false;
  if (stage == last && back == last && a->mb == a->mb2) return true;
  int64_t middle = *start + c->cost.f;
  bool ready = backward_ready(c, back, a->mb2, &middle);
  *start = middle - c->cost.f;
  return ready;
}

static void wake(Clock *c, int stage) {
  int rank, chunk;
  if (stage < 0 || stage > last_stage(c)) return;
  schedule_where(c->s, stage, &rank, &chunk);
  if (c->queued[rank]) return;
  c->queued[rank] = true;
  c->todo[c->ntodo++] = rank;
}

static void forward_done(Clock *c, int rank, int stage, int mb, int64_t end) {
  c->fwd[cell(c, stage, mb)] = end + 1;
  if (++c->alive[rank] > c->t->peak[rank]) c->t->peak[rank] = c->alive[rank];
  wake(c, stage + 1);
}

static void backward_done(Clock *c, int stage, int mb, int64_t end) {
  c->bwd[cell(c, stage, mb)] = end + 1;
  wake(c, stage - 1);
}

/* Runs the rank's next action; false if it has to wait for another rank. */
static bool step(Clock *c, int rank, const Action *a, TimelineSlot *slot) {
  int stage = schedule_stage(c->s, rank, a->chunk);
  int64_t start = c->now[rank], f = c->cost.f, i = c->cost.i, w = c->cost.w, end = start;
  switch (a->kind) {
  case ACT_F:
    if (!forward_ready(c, stage, a->mb, &start)) return false;
    forward_done(c, rank, stage, a->mb, end = start + f);
    break;
  case ACT_I:
    if (!backward_ready(c, stage, a->mb, &start)) return false;
    backward_done(c, stage, a->mb, end = start + i);
    break;
  case ACT_B:
    if (!backward_ready(c, stage, a->mb, &start)) return false;
    backward_done(c, stage, a->mb, end = start + i + w);
    c->alive[rank]--;
    break;
  case ACT_W:
    if (!c->bwd[cell(c, stage, a->mb)]) return false;
    end = start + w;
    c->alive[rank]--;
    break;
  case ACT_OVERLAP:
    if (!pair_ready(c, rank, a, &start)) return false;
    end = start + f + i + w;
    forward_done(c, rank, stage, a->mb, start + f);
    backward_done(c, schedule_stage(c->s, rank, a->chunk2), a->mb2, end);
    c->alive[rank]--;
    break;
  default:
    break;
  }
  *slot = (TimelineSlot){start, end};
  return true;
}

static void advance(Clock *c, int rank) {
  Timeline *t = c->t;
  for (; c->at[rank] < c->s->n[rank]; c->at[rank]++) {
    TimelineSlot *slot = &t->slot[rank][c->at[rank]];
    if (!step(c, rank, &c->s->list[rank][c->at[rank]], slot)) return;
    if (c->at[rank] == 0) t->first[rank] = slot->start;
    t->busy[rank] += slot->end - slot->start;
    t->last[rank] = c->now[rank] = slot->end;
  }
}

static bool part_exists(const Schedule *s, int chunk, int mb, bool per_mb) {
  return chunk >= 0 && chunk < s->virtual_stages &&
         (!per_mb || (mb >= 0 && mb < s->microbatches));
}

/* Nothing below indexes with what a schedule made up. */
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
  for (int r = 0; r < s->ranks; r++) {
    if (c->at[r] == s->n[r]) continue;
    const Action *a = &s->list[r][c->at[r]];
    return err_file(e, WEFT_EPLAN, s->file, a->line,
                    "the schedule cannot run: rank %d waits for ever before action %d "
                    "(stage %d, microbatch %d)",
                    r, c->at[r], schedule_stage(s, r, a->chunk), a->mb);
  }
  return WEFT_OK;
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
                  .peak = NEW_N(arena, int, s->ranks)};
  for (int r = 0; r < s->ranks; r++)
    t->slot[r] = NEW_N(arena, TimelineSlot, s->n[r]);
  c->fwd = NEW_N(arena, int64_t, n);
  c->bwd = NEW_N(arena, int64_t, n);
  c->at = NEW_N(arena, int, s->ranks);
  c->now = NEW_N(arena, int64_t, s->ranks);
  c->alive = NEW_N(arena, int, s->ranks);
  c->todo = NEW_N(arena, int, s->ranks);
  c->queued = NEW_N(arena, bool, s->ranks);
}

weft_status timeline_run(const Schedule *s, TimelineCost cost, Arena *arena,
                         Timeline *out, weft_error *e) {
  Clock c = {.s = s, .cost = cost, .t = out};
  TRY(check_range(s, e));
  make(&c, arena);
  for (int r = s->ranks - 1; r >= 0; r--) {
    c.queued[r] = true;
    c.todo[c.ntodo++] = r;
  }
  while (c.ntodo > 0) {
    int rank = c.todo[--c.ntodo];
    /* It may wake itself: on a V both stages of the turn are its own. */
    advance(&c, rank);
    c.queued[rank] = false;
  }
  for (int r = 0; r < s->ranks; r++)
    out->makespan = MAX(out->makespan, out->last[r]);
  return check_done(&c, e);
}

double timeline_bubble(const Timeline *t) {
  int64_t busy = 0;
  for (int r = 0; r < t->ranks; r++)
    busy += t->busy[r];
  int64_t span = t->makespan * t->ranks;
  return span ? (double)(span - busy) / (double)span : 0;
}

double timeline_bubble_own(const Timeline *t) {
  int64_t busy = 0, span = 0;
  for (int r = 0; r < t->ranks; r++)
    busy += t->busy[r], span += t->last[r] - t->first[r];
  return span ? (double)(span - busy) / (double)span : 0;
}
