/* schedule_deadlock.c - of a schedule whose ranks wait for each other for ever, finds the
 * actions that do. Every rank has all of its actions in an order that suits itself. */
#include "schedule_int.h"

typedef struct Stuck {
  ScheduleCheck *c;
  uint8_t *done; /* [stage * microbatches + mb], of PART_ */
  int *at;       /* [rank]: the action that it cannot begin */
} Stuck;

/* What an action waits for on another stage. */
typedef struct Need {
  int rank, step; /* who does it, and when */
} Need;

static uint8_t *done_of(const Stuck *k, int stage, int mb) {
  return &k->done[(size_t)stage * (size_t)k->c->s->microbatches + (size_t)mb];
}

/* True if the part can begin; else who is to do something before. */
static bool may_begin(const Stuck *k, int rank, const ActionPart *p, Need *need) {
  const Schedule *s = k->c->s;
  int stage = schedule_stage(s, rank, p->chunk), bit = p->bits & PART_F ? PART_F : PART_I;
  int from = p->bits & PART_F ? stage - 1 : stage + 1, chunk;
  if (p->bits == PART_W || from < 0 || from == s->ranks * s->virtual_stages) return true;
  if (*done_of(k, from, p->mb) & bit) return true;
  schedule_where(s, from, &need->rank, &chunk);
  need->step = schedule_parts(k->c, need->rank, chunk, p->mb)->step[bit == PART_I] - 1;
  return false;
}

static bool begin(const Stuck *k, int rank, const Action *a, Need *need) {
  ActionPart part[2];
  int n = action_parts(a, part);
  for (int i = 0; i < n; i++)
    if (!may_begin(k, rank, &part[i], need)) return false;
  for (int i = 0; i < n; i++)
    *done_of(k, schedule_stage(k->c->s, rank, part[i].chunk), part[i].mb) |=
        (uint8_t)part[i].bits;
  return true;
}

/* Goes on with every rank until none can. */
static void run(Stuck *k) {
  const Schedule *s = k->c->s;
  Need need;
  for (bool moved = true; moved;) {
    moved = false;
    for (int r = 0; r < s->ranks; r++)
      while (k->at[r] < s->n[r] && begin(k, r, &s->list[r][k->at[r]], &need))
        k->at[r]++, moved = true;
  }
}

static Need need_of(const Stuck *k, int rank) {
  Need need = {rank, 0};
  begin(k, rank, &k->c->s->list[rank][k->at[rank]], &need);
  return need;
}

/* Who waits for whom ends in a circle; the lowest rank of it. */
static int lowest_of_circle(const Stuck *k, int rank) {
  for (int i = 0; i < k->c->s->ranks; i++)
    rank = need_of(k, rank).rank;
  int lowest = rank;
  for (int r = need_of(k, rank).rank; r != rank; r = need_of(k, r).rank)
    lowest = MIN(lowest, r);
  return lowest;
}

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

void schedule_deadlock(ScheduleCheck *c) {
  enum { MOST = 8 };
  const Schedule *s = c->s;
  size_t n = (size_t)s->ranks * (size_t)s->virtual_stages * (size_t)s->microbatches;
  Stuck k = {c, NEW_N(c->a, uint8_t, n), NEW_N(c->a, int, s->ranks)};
  int waiting = 0, told = 0, first = 0;
  run(&k);
  for (int r = s->ranks - 1; r >= 0; r--)
    if (k.at[r] < s->n[r]) waiting++, first = r;
  assert(waiting > 0);
  first = lowest_of_circle(&k, first);
  const char *text = "deadlock, these actions wait for each other:";
  int r = first;
  do {
    if (told++ < MOST) text = arena_printf(c->a, "%s%s", text, member(&k, r));
    r = need_of(&k, r).rank;
  } while (r != first);
  if (told > MOST)
    text = arena_printf(c->a, "%s\n  and %d more in this circle", text, told - MOST);
  if (waiting > told)
    text =
        arena_printf(c->a, "%s\n  %d more rank%s wait%s for them", text, waiting - told,
                     waiting - told > 1 ? "s" : "", waiting - told > 1 ? "" : "s");
  Diag *x = diag_error(c->d, "deadlock", "schedule", "%s", text);
  int line = s->list[first][k.at[first]].line;
  if (line > 0 && s->file) x->file = s->file, x->line = line;
}
