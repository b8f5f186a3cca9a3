/* schedule.c - checks the table of actions that a schedule gave: every action once, in
 * an order that its own rank and the others can follow. */
#include "passes.h"

int schedule_stage(const Schedule *s, int rank, int chunk) {
  if (s->v_placement && chunk == 1) return 2 * s->ranks - 1 - rank;
  return chunk * s->ranks + rank;
}

void schedule_where(const Schedule *s, int stage, int *rank, int *chunk) {
  *chunk = stage / s->ranks;
  *rank = stage % s->ranks;
  if (s->v_placement && *chunk == 1) *rank = 2 * s->ranks - 1 - stage;
}

enum { DONE_F = 1, DONE_I = 2, DONE_W = 4 };

typedef struct Check {
  const Schedule *s;
  Diags *d;
  uint8_t *done;         /* [stage * microbatches + mb] */
} Check;

static Diag *problem(Check *c, const Action *a, const char *text) {
  Diag *x = diag_error(c->d, "schedule", "schedule", "%s", text);
  if (a && a->line > 0 && c->s->file) x->file = c->s->file, x->line = a->line;
  return x;
}

static const char *action_text(const Check *c, int rank, const Action *a, char letter) {
  return arena_printf(c->d->arena, "rank %d: %c of microbatch %d, stage %d", rank, letter,
                      a->mb, schedule_stage(c->s, rank, a->chunk));
}

/* `mb` is -1 for actions that have none. */
static bool exists(Check *c, int rank, const Action *a, int chunk, int mb, bool per_mb) {
  bool ok = chunk >= 0 && chunk < c->s->virtual_stages;
  if (per_mb) ok &= mb >= 0 && mb < c->s->microbatches;
  if (!ok)
    problem(c, a, arena_printf(c->d->arena,
                               "rank %d: chunk %d, microbatch %d is not there (%d "
                               "chunks, %d microbatches)", rank, chunk, mb,
                               c->s->virtual_stages, c->s->microbatches));
  return ok;
}

static bool in_range(Check *c, int rank, const Action *a) {
  bool per_mb = a->kind != ACT_UNSHARD && a->kind != ACT_RESHARD &&
                a->kind != ACT_REDUCE_GRAD;
  bool ok = exists(c, rank, a, a->chunk, a->mb, per_mb);
  return a->kind == ACT_OVERLAP ? exists(c, rank, a, a->chunk2, a->mb2, true) && ok : ok;
}

/* One part of an action on its own rank: not twice, and after what it builds on. */
static void mark(Check *c, int rank, const Action *a, int chunk, int mb, int bits,
                 char letter) {
  int stage = schedule_stage(c->s, rank, chunk);
  uint8_t *done = &c->done[stage * c->s->microbatches + mb];
  const char *text = action_text(c, rank, a, letter);
  if (*done & bits)
    problem(c, a, arena_printf(c->d->arena, "%s is emitted twice", text));
  if (bits & DONE_I && !(*done & DONE_F))
    problem(c, a, arena_printf(c->d->arena, "%s comes before its forward", text));
  if (bits == DONE_W && !(*done & DONE_I))
    problem(c, a, arena_printf(c->d->arena, "%s comes before its I", text));
  *done |= (uint8_t)bits;
}

static void check_rank(Check *c, int rank) {
  for (int i = 0; i < c->s->n[rank]; i++) {
    const Action *a = &c->s->list[rank][i];
    if (!in_range(c, rank, a)) continue;
    switch (a->kind) {
    case ACT_F: mark(c, rank, a, a->chunk, a->mb, DONE_F, 'F'); break;
    case ACT_I: mark(c, rank, a, a->chunk, a->mb, DONE_I, 'I'); break;
    case ACT_W: mark(c, rank, a, a->chunk, a->mb, DONE_W, 'W'); break;
    case ACT_B: mark(c, rank, a, a->chunk, a->mb, DONE_I | DONE_W, 'B'); break;
    case ACT_OVERLAP:
      mark(c, rank, a, a->chunk, a->mb, DONE_F, 'F');
      mark(c, rank, a, a->chunk2, a->mb2, DONE_I | DONE_W, 'B');
      break;
    default: break;
    }
  }
}

static void check_complete(Check *c) {
  static const char *const part[] = {"F", "I (or B)", "W (or B)"};
  int missing = 0;
  for (int stage = 0; stage < c->s->ranks * c->s->virtual_stages; stage++)
    for (int mb = 0; mb < c->s->microbatches; mb++)
      for (int k = 0; k < 3; k++) {
        if (c->done[stage * c->s->microbatches + mb] >> k & 1) continue;
        int rank, chunk;
        schedule_where(c->s, stage, &rank, &chunk);
        if (missing++ < 8)
          problem(c, NULL, arena_printf(c->d->arena,
                                        "rank %d: %s of microbatch %d, stage %d is missing",
                                        rank, part[k], mb, stage));
      }
  if (missing > 8)
    problem(c, NULL, arena_printf(c->d->arena, "%d more actions are missing", missing - 8));
}

/* May the part run now, given what all ranks have done? */
static bool ready(const Check *c, int stage, int mb, bool forward) {
  int last = c->s->ranks * c->s->virtual_stages - 1, m = c->s->microbatches;
  if (forward) return stage == 0 || c->done[(stage - 1) * m + mb] & DONE_F;
  return stage == last || c->done[(stage + 1) * m + mb] & DONE_I;
}

static bool run(Check *c, int rank, const Action *a) {
  int m = c->s->microbatches, stage = schedule_stage(c->s, rank, a->chunk);
  uint8_t *done = &c->done[stage * m + a->mb];
  switch (a->kind) {
  case ACT_F:
    if (!ready(c, stage, a->mb, true)) return false;
    *done |= DONE_F;
    return true;
  case ACT_I:
  case ACT_B:
    if (!ready(c, stage, a->mb, false)) return false;
    *done |= DONE_I;
    return true;
  case ACT_OVERLAP: {
    int back = schedule_stage(c->s, rank, a->chunk2);
    if (!ready(c, stage, a->mb, true) || !ready(c, back, a->mb2, false)) return false;
    *done |= DONE_F;
    c->done[back * m + a->mb2] |= DONE_I;
    return true;
  }
  default: return true;
  }
}

/* Executes the table without data: a rank that cannot go on waits for another; if none
 * can, the table itself has a cycle. */
static void check_deadlock(Check *c) {
  int *at = NEW_N(c->d->arena, int, c->s->ranks), left = 0;
  memset(c->done, 0, (size_t)(c->s->ranks * c->s->virtual_stages * c->s->microbatches));
  for (int r = 0; r < c->s->ranks; r++) left += c->s->n[r];
  for (bool moved = true; moved && left > 0;) {
    moved = false;
    for (int r = 0; r < c->s->ranks; r++)
      while (at[r] < c->s->n[r] && run(c, r, &c->s->list[r][at[r]])) {
        at[r]++, left--;
        moved = true;
      }
  }
  if (left == 0) return;
  for (int r = 0; r < c->s->ranks; r++) {
    if (at[r] == c->s->n[r]) continue;
    const Action *a = &c->s->list[r][at[r]];
    static const char letter[] = "FIWBO";
    problem(c, a, arena_printf(c->d->arena, "deadlock: %s, action %d, waits for ever",
                               action_text(c, r, a, letter[a->kind]), at[r]));
  }
}

bool schedule_check(const Schedule *s, Diags *d) {
  int errors = d->errors;
  size_t n = (size_t)s->ranks * (size_t)s->virtual_stages * (size_t)s->microbatches;
  Check c = {.s = s, .d = d, .done = NEW_N(d->arena, uint8_t, n)};
  for (int r = 0; r < s->ranks; r++) check_rank(&c, r);
  if (d->errors == errors) check_complete(&c);
  if (d->errors == errors) check_deadlock(&c);
  return d->errors == errors;
}
