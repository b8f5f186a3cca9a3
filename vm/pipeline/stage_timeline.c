/* stage_timeline.c - when the actions of a schedule run if each stage has its own costs.
 * The order in which timeline_run could run them is one in which every action comes after
 * all that it waits for, whatever these cost, so nothing has to wait here: each action is
 * visited once. */
#include "timeline.h"

typedef struct Stepping {
  const Schedule *s;
  const StageTicks *cost; /* [stage] */
  const int *stage;       /* [rank * virtual stages + chunk] */
  int last;               /* the last stage */
  int64_t *end;           /* [(stage * microbatches + mb) * 2 + OF_F or OF_I] */
  int64_t *last_w;        /* [stage] */
} Stepping;

enum { OF_F, OF_I };

static int64_t *end_of(const Stepping *c, int of, int stage, int mb) {
  return &c->end[((int64_t)stage * c->s->microbatches + mb) * 2 + of];
}

/* When what a forward needs is there, if the rank is free at `now`. */
static int64_t forward_at(const Stepping *c, int stage, int mb, int64_t now) {
  if (stage == 0) return now;
  return MAX(now, *end_of(c, OF_F, stage - 1, mb) + c->cost[stage - 1].after);
}

static int64_t backward_at(const Stepping *c, int stage, int mb, int64_t now) {
  now = MAX(now, *end_of(c, OF_F, stage, mb));
  if (stage == c->last) return now;
  return MAX(now, *end_of(c, OF_I, stage + 1, mb) + c->cost[stage + 1].before);
}

/* A backward in one action. The stage before need not wait for the W of its own
 * neighbour, the first unit, if that is a call of its own. */
static int64_t run_backward(const Stepping *c, int stage, int mb, int64_t now) {
  const StageTicks *cost = &c->cost[stage];
  int64_t begin = backward_at(c, stage, mb, now), end = begin + cost->i + cost->w;
  c->last_w[stage] = begin;
  *end_of(c, OF_I, stage, mb) = end - cost->late;
  return end;
}

static int64_t run_w(const Stepping *c, int stage, int mb, int64_t now) {
  c->last_w[stage] = MAX(now, *end_of(c, OF_I, stage, mb));
  return c->last_w[stage] + c->cost[stage].w;
}

/* The parts of a pair run one after the other, the forward as soon as it can. */
static int64_t run_pair(const Stepping *c, const Action *a, int stage, int back,
                        int64_t now) {
  int64_t half = forward_at(c, stage, a->mb, now) + c->cost[stage].f;
  *end_of(c, OF_F, stage, a->mb) = half;
  return run_backward(c, back, a->mb2, half);
}

/* Runs an action of a rank that is free at `now`; returns its end. */
static int64_t run_action(const Stepping *c, const Action *a, const int *stage_of,
                          int64_t now, int64_t *busy) {
  int stage = stage_of[a->chunk], back = stage;
  const StageTicks *cost = &c->cost[stage];
  switch (a->kind) {
  case ACT_F:
    *busy += cost->f;
    return *end_of(c, OF_F, stage, a->mb) = forward_at(c, stage, a->mb, now) + cost->f;
  case ACT_I:
    *busy += cost->i;
    return *end_of(c, OF_I, stage, a->mb) = backward_at(c, stage, a->mb, now) + cost->i;
  case ACT_B: *busy += cost->i + cost->w; return run_backward(c, stage, a->mb, now);
  case ACT_W: *busy += cost->w; return run_w(c, stage, a->mb, now);
  case ACT_OVERLAP:
    back = stage_of[a->chunk2];
    *busy += cost->f + c->cost[back].i + c->cost[back].w;
    return run_pair(c, a, stage, back, now);
  default: return now;
  }
}

void timeline_of_stages(const Schedule *s, const Timeline *ran, const StageTicks *cost,
                        Arena *arena, Timeline *out) {
  int v = s->virtual_stages, n = s->ranks * v;
  int *stage = NEW_N(arena, int, n);
  for (int i = 0; i < n; i++) stage[i] = schedule_stage(s, i / v, i % v);
  Stepping c = {.s = s, .cost = cost, .stage = stage, .last = n - 1};
  c.end = arena_raw(arena, sizeof *c.end * 2 * (size_t)n * (size_t)s->microbatches);
  c.last_w = NEW_N(arena, int64_t, n);
  *out = (Timeline){.ranks = s->ranks,
                    .busy = NEW_N(arena, int64_t, s->ranks),
                    .last = NEW_N(arena, int64_t, s->ranks),
                    .last_w = NEW_N(arena, int64_t, n),
                    .ran = NEW_N(arena, int, s->ranks)};
  for (int i = 0; i < ran->nturn; i++) {
    int r = ran->turn[i].rank, *at = &out->ran[r];
    int64_t now = out->last[r];
    for (int end = *at + ran->turn[i].n; *at < end; ++*at)
      now = run_action(&c, &s->list[r][*at], &stage[r * v], now, &out->busy[r]);
    out->last[r] = now;
    out->makespan = MAX(out->makespan, now);
  }
  for (int i = 0; i < n; i++) out->last_w[i] = c.last_w[stage[i]];
}
