/* schedule_deadlock.c - names the actions of a schedule whose ranks wait for each other,
 * from the point where the clock of timeline.c stopped. schedule.c has checked each
 * rank's own order before. */
#include "schedule_int.h"

#include "vm/program/walk.h"
#include "vm/base/plural.h"

typedef struct Stuck {
  ScheduleCheck *c;
  const int *at; /* [rank]: the action that cannot begin */
} Stuck;

/* The action on another stage that one waits for. */
typedef struct Need {
  int rank, step; /* its rank, and its step there */
} Need;

/* True if the part can begin; else *need is the action that has to run first. */
static bool may_begin(const Stuck *k, int rank, const ActionPart *p, Need *need) {
  const Schedule *s = k->c->s;
  int stage = schedule_stage(s, rank, p->chunk);
  bool forward = p->bits & PART_F;
  int from = forward ? stage - 1 : stage + 1, chunk;
  if (p->bits == PART_W || from < 0 || from == s->ranks * s->virtual_stages) return true;
  schedule_where(s, from, &need->rank, &chunk);
  need->step = schedule_parts(k->c, need->rank, chunk, p->mb)->step[!forward] - 1;
  return need->step < k->at[need->rank];
}

static Need need_of(const Stuck *k, int rank) {
  Need need = {rank, 0};
  ActionPart part[2];
  int n = action_parts(&k->c->s->list[rank][k->at[rank]], part);
  for (int i = 0; i < n; i++)
    if (!may_begin(k, rank, &part[i], &need)) break;
  return need;
}

static int waits_for(const void *ud, int rank) { return need_of(ud, rank).rank; }

static const char *member(const Stuck *k, int rank) {
  const ScheduleCheck *c = k->c;
  char own[ACTION_NAME], other[ACTION_NAME];
  Need need = need_of(k, rank);
  const Action *a = &c->s->list[rank][k->at[rank]];
  const Action *b = &c->s->list[need.rank][need.step];
  return arena_printf(c->a, "\n  rank %d, %s: %s waits for %s of rank %d, %s", rank,
                      schedule_place(c, rank, k->at[rank]),
                      action_name(c->s, rank, a, own),
                      action_name(c->s, need.rank, b, other), need.rank,
                      schedule_place(c, need.rank, need.step));
}

void schedule_deadlock(ScheduleCheck *c, const Timeline *t) {
  enum { MOST = 8 };
  const Schedule *s = c->s;
  Stuck k = {c, t->ran};
  int waiting = 0, shown = 0, first = 0;
  for (int r = s->ranks - 1; r >= 0; r--)
    if (k.at[r] < s->n[r]) waiting++, first = r;
  assert(waiting > 0);
  first = walk_circle(s->ranks, first, waits_for, &k);
  const char *text = "deadlock, these actions wait for each other:";
  int r = first;
  do {
    if (shown++ < MOST) text = arena_printf(c->a, "%s%s", text, member(&k, r));
    r = need_of(&k, r).rank;
  } while (r != first);
  if (shown > MOST)
    text = arena_printf(c->a, "%s\n  and %d more in this cycle", text, shown - MOST);
  if (waiting > shown)
    text =
        arena_printf(c->a, "%s\n  %d more rank%s wait%s for them", text, waiting - shown,
                     plural(waiting - shown, "s"), waiting - shown > 1 ? "" : "s");
  Diag *x = diag_error(c->d, "deadlock", "schedule", "%s", text);
  int line = s->list[first][k.at[first]].line;
  if (line > 0 && s->file) x->file = s->file, x->line = line;
}
