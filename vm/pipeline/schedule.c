/* schedule.c - checks the actions of a schedule: every F, I, W of every microbatch once
 * and in order, parameters unsharded when needed. Problems are collected with rank and
 * step and reported in that order. schedule_deadlock.c then checks all ranks together. */
#include "schedule_int.h"
#include "vm/base/plural.h"

#include <stdlib.h>

/* ---- reporting ---- */

const char *schedule_place(const ScheduleCheck *c, int rank, int step) {
  const Action *a = &c->s->list[rank][step];
  if (a->line <= 0 || !c->s->file) return arena_printf(c->a, "step %d", step);
  if (a->cell)
    return arena_printf(c->a, "step %d (line %d, cell %d)", step, a->line, a->cell);
  return arena_printf(c->a, "step %d (line %d)", step, a->line);
}

static const char *name_of(const ScheduleCheck *c, int rank, int step) {
  char buf[ACTION_NAME];
  return arena_str(c->a, action_name(c->s, rank, &c->s->list[rank][step], buf));
}

/* "rank 1, step 7: B of microbatch 2", then the text. The message names the line. In a
 * table, empty cells and transfers are not steps, so the cell is named, too. */
static void problem(ScheduleCheck *c, int rank, int step, const char *text) {
  int cell = c->s->list[rank][step].cell;
  const char *all = arena_printf(c->a, "rank %d, step %d%s: %s %s", rank, step,
                                 cell ? arena_printf(c->a, " (cell %d)", cell) : "",
                                 name_of(c, rank, step), text);
  *VEC_PUSH(c->a, c->problem) = (Problem){rank, step, c->problem.n, all};
}

/* For a missing action: it has no step, so it is reported after those that have one. */
static void absent(ScheduleCheck *c, int rank, const char *text) {
  const char *all = arena_printf(c->a, "rank %d: %s", rank, text);
  *VEC_PUSH(c->a, c->problem) = (Problem){rank, c->s->n[rank], c->problem.n, all};
}

static int by_place(const void *x, const void *y) {
  const Problem *a = x, *b = y;
  if (a->rank != b->rank) return a->rank < b->rank ? -1 : 1;
  if (a->step != b->step) return a->step < b->step ? -1 : 1;
  return a->order < b->order ? -1 : 1;
}

static void tell(ScheduleCheck *c) {
  enum { MOST = 16 };
  const Schedule *s = c->s;
  int n = c->problem.n;
  if (n) qsort(c->problem.at, (size_t)n, sizeof *c->problem.at, by_place);
  for (int i = 0; i < MIN(n, MOST); i++) {
    const Problem *p = &c->problem.at[i];
    Diag *x = diag_error(c->d, "schedule", "schedule", "%s", p->text);
    int line = p->step < s->n[p->rank] ? s->list[p->rank][p->step].line : 0;
    if (line > 0 && s->file) x->file = s->file, x->line = line;
  }
  if (n > MOST)
    diag_error(c->d, "schedule", "schedule", "%d more actions are wrong or missing",
               n - MOST);
}

/* ---- each part once ---- */

static bool part_exists(ScheduleCheck *c, int rank, int step, const ActionPart *p) {
  const Schedule *s = c->s;
  bool chunk = p->chunk >= 0 && p->chunk < s->virtual_stages;
  bool mb = p->mb >= 0 && p->mb < s->microbatches;
  if (!chunk)
    problem(c, rank, step,
            arena_printf(c->a, "names chunk %d, but a rank has %d chunk%s, from 0",
                         p->chunk, s->virtual_stages, plural(s->virtual_stages, "s")));
  else if (!mb)
    problem(c, rank, step,
            arena_printf(c->a, "is not there: the schedule has %d microbatch%s, from 0",
                         s->microbatches, plural(s->microbatches, "es")));
  return chunk && mb;
}

/* B is an I and a W at the same step. */
static bool is_whole(const Parts *p) {
  return p->step[1] > 0 && p->step[1] == p->step[2];
}

static void note_part(ScheduleCheck *c, int rank, int step, const ActionPart *part) {
  Parts *p = schedule_parts(c, rank, part->chunk, part->mb);
  bool whole = part->bits == (PART_I | PART_W);
  for (int k = 0; k < 3; k++) {
    if (!(part->bits >> k & 1)) continue;
    int first = p->step[k] - 1;
    if (first < 0) {
      p->step[k] = step + 1;
      continue;
    }
    const char *place = schedule_place(c, rank, first);
    if (k == 0 || whole == is_whole(p))
      problem(c, rank, step, arena_printf(c->a, "is emitted twice, first at %s", place));
    else
      problem(c, rank, step,
              arena_printf(
                  c->a, "does what %s at %s does: a backward is one B, or an I and a W",
                  name_of(c, rank, first), place));
    break;
  }
}

/* False if some name chunks or microbatches that do not exist; then none is missing. */
static bool note_parts(ScheduleCheck *c, int rank) {
  const Schedule *s = c->s;
  bool all = true;
  for (int i = 0; i < s->n[rank]; i++) {
    const Action *a = &s->list[rank][i];
    ActionPart part[2];
    int n = action_parts(a, part);
    for (int k = 0; k < n; k++)
      if (part_exists(c, rank, i, &part[k]))
        note_part(c, rank, i, &part[k]);
      else
        all = false;
    if (n == 0) all &= part_exists(c, rank, i, &(ActionPart){.chunk = a->chunk});
  }
  return all;
}

/* ---- order and completeness ---- */

static void comes_before(ScheduleCheck *c, int rank, int step, int other) {
  problem(c, rank, step,
          arena_printf(c->a, "comes before %s at %s", name_of(c, rank, other),
                       schedule_place(c, rank, other)));
}

static const char *where_text(const ScheduleCheck *c, int rank, int chunk, int mb) {
  if (c->s->virtual_stages < 2) return arena_printf(c->a, "microbatch %d", mb);
  return arena_printf(c->a, "microbatch %d, chunk %d (stage %d)", mb, chunk,
                      schedule_stage(c->s, rank, chunk));
}

static void check_missing(ScheduleCheck *c, int rank, int chunk, int mb, const Parts *p) {
  int f = p->step[0] - 1, i = p->step[1] - 1, w = p->step[2] - 1;
  if (f < 0 && i < 0 && w < 0) {
    absent(
        c, rank,
        arena_printf(c->a, "F and B of %s are missing", where_text(c, rank, chunk, mb)));
    return;
  }
  if (f < 0)
    problem(c, rank, i >= 0 ? i : w,
            arena_printf(c->a, "has no F: that of %s is missing",
                         where_text(c, rank, chunk, mb)));
  if (i < 0 && w < 0)
    problem(c, rank, f, "has no backward: B, or I and W, is missing");
  else if (i < 0)
    problem(c, rank, w, "has no I");
  else if (w < 0)
    problem(c, rank, i, "has no W");
}

/* The B of a pair (OVERLAP) can use its own F only on the stage with the loss. */
static bool pair_on_loss(const ScheduleCheck *c, int rank, int chunk) {
  int stage = schedule_stage(c->s, rank, chunk);
  return stage == c->s->ranks * c->s->virtual_stages - 1;
}

/* True if a W or I without its counterpart is part of a B, which was reported before. */
static bool mixed(const ScheduleCheck *c, int rank, int i, int w) {
  const Action *list = c->s->list[rank];
  return i != w && (list[i].kind != ACT_I || list[w].kind != ACT_W);
}

static void check_order(ScheduleCheck *c, int rank, int chunk, int mb, bool all) {
  const Parts *p = schedule_parts(c, rank, chunk, mb);
  int f = p->step[0] - 1, i = p->step[1] - 1, w = p->step[2] - 1;
  if (all && (f < 0 || i < 0 || w < 0)) check_missing(c, rank, chunk, mb, p);
  if (f >= 0 && i >= 0 && i < f) comes_before(c, rank, i, f);
  if (i >= 0 && w >= 0 && w < i && !mixed(c, rank, i, w)) comes_before(c, rank, w, i);
  if (f >= 0 && f == i && !pair_on_loss(c, rank, chunk))
    problem(c, rank, i, "needs its own F, which comes back through later stages");
}

static void check_rank(ScheduleCheck *c, int rank) {
  const Schedule *s = c->s;
  if (s->n[rank] == 0) {
    absent(c, rank, "the schedule gives it nothing to do");
    return;
  }
  bool all = note_parts(c, rank);
  for (int chunk = 0; chunk < s->virtual_stages; chunk++)
    for (int mb = 0; mb < s->microbatches; mb++) check_order(c, rank, chunk, mb, all);
  schedule_parameters(c, rank, problem);
}

/* ---- the whole ---- */

void schedule_warn_of_parameters(const Schedule *s, Diags *d) {
  for (int r = 0; r < s->ranks; r++)
    for (int i = 0; i < s->n[r]; i++) {
      const Action *a = &s->list[r][i];
      if (a->kind != ACT_UNSHARD && a->kind != ACT_RESHARD) continue;
      Diag *x = diag_warn(d, "schedule", "schedule",
                          "UNSHARD and RESHARD do nothing: every rank has all parameters "
                          "of its stages");
      if (a->line > 0 && s->file) x->file = s->file, x->line = a->line;
      return;
    }
}

bool schedule_ready(const Schedule *s, Diags *d, Arena *a, Timeline *t) {
  size_t n = (size_t)s->ranks * (size_t)s->virtual_stages * (size_t)s->microbatches;
  ScheduleCheck c = {.s = s, .d = d, .a = a, .parts = NEW_N(a, Parts, n)};
  weft_error e = NO_ERROR;
  for (int r = 0; r < s->ranks; r++) check_rank(&c, r);
  tell(&c);
  if (c.problem.n) return false;
  if (timeline_run(s, TIMELINE_UNIT, a, t, &e) == WEFT_OK) return true;
  schedule_deadlock(&c, t);
  return false;
}

bool schedule_check(const Schedule *s, Diags *d) {
  Timeline t;
  return schedule_ready(s, d, d->arena, &t);
}
