/* schedule_parameters.c - checks UNSHARD, RESHARD and REDUCE_GRAD actions. For chunks
 * without such actions the compiler places gathers and reductions itself. */
#include "schedule_int.h"

typedef struct Chunk {
  bool named;    /* the schedule unshards it somewhere */
  bool open;     /* it is unsharded at this step */
  bool reported; /* one of its problems was reported already */
  int changed;   /* step of its last UNSHARD or RESHARD, -1: none yet */
  int reduced;   /* step of its REDUCE_GRAD, -1: none yet */
  int last_w;
} Chunk;

typedef void Tell(ScheduleCheck *c, int rank, int step, const char *text);

static Chunk *look(ScheduleCheck *c, int rank) {
  const Schedule *s = c->s;
  Chunk *chunk = NEW_N(c->a, Chunk, s->virtual_stages);
  for (int k = 0; k < s->virtual_stages; k++) {
    chunk[k] = (Chunk){.changed = -1, .reduced = -1, .last_w = -1};
    for (int mb = 0; mb < s->microbatches; mb++)
      chunk[k].last_w = MAX(chunk[k].last_w, schedule_parts(c, rank, k, mb)->step[2] - 1);
  }
  return chunk;
}

static void use(ScheduleCheck *c, int rank, int step, Chunk *k, Tell *problem) {
  if (!k->named || k->open || k->reported) return;
  k->reported = true;
  problem(c, rank, step,
          k->changed < 0
              ? "comes before the UNSHARD of its chunk"
              : arena_printf(c->a, "comes after the RESHARD of its chunk at %s",
                             schedule_place(c, rank, k->changed)));
}

static void change(ScheduleCheck *c, int rank, int step, Chunk *k, bool open,
                   Tell *problem) {
  if (k->open == open && k->changed >= 0)
    problem(
        c, rank, step,
        arena_printf(c->a, "repeats the one at %s", schedule_place(c, rank, k->changed)));
  else if (!open && k->changed < 0)
    problem(c, rank, step, "has no UNSHARD before it");
  k->open = open;
  k->changed = step;
}

static void reduce(ScheduleCheck *c, int rank, int step, Chunk *k, Tell *problem) {
  char buf[ACTION_NAME];
  if (k->reduced >= 0)
    problem(c, rank, step,
            arena_printf(c->a, "is emitted twice, first at %s",
                         schedule_place(c, rank, k->reduced)));
  else if (k->last_w > step)
    problem(c, rank, step,
            arena_printf(c->a, "comes before %s at %s",
                         action_name(c->s, rank, &c->s->list[rank][k->last_w], buf),
                         schedule_place(c, rank, k->last_w)));
  k->reduced = step;
}

void schedule_parameters(ScheduleCheck *c, int rank, Tell *problem) {
  const Schedule *s = c->s;
  const Action *list = s->list[rank];
  bool any = false;
  for (int i = 0; i < s->n[rank]; i++) any |= !action_per_microbatch(&list[i]);
  if (!any) return;
  Chunk *chunk = look(c, rank);
  for (int i = 0; i < s->n[rank]; i++)
    if (list[i].kind == ACT_UNSHARD && list[i].chunk >= 0 &&
        list[i].chunk < s->virtual_stages)
      chunk[list[i].chunk].named = true;
  for (int i = 0; i < s->n[rank]; i++) {
    ActionPart part[2];
    int n = action_parts(&list[i], part);
    for (int k = 0; k < n; k++)
      if (part[k].chunk >= 0 && part[k].chunk < s->virtual_stages)
        use(c, rank, i, &chunk[part[k].chunk], problem);
    if (n > 0 || list[i].chunk < 0 || list[i].chunk >= s->virtual_stages) continue;
    Chunk *k = &chunk[list[i].chunk];
    if (list[i].kind == ACT_REDUCE_GRAD)
      reduce(c, rank, i, k, problem);
    else
      change(c, rank, i, k, list[i].kind == ACT_UNSHARD, problem);
  }
}
