/* sim_timeline.c - when the clock runs each action of the schedule; see sim_timeline.h.
 * An instruction of the main list says of which action it is, so a slot is the span of
 * the calls of its action. What a rank does after its last action has slots of its own.
 */
#include "sim_timeline.h"

#include "vm/pipeline/schedule.h"

typedef VEC(TimelineSlot) SlotList;

typedef struct Slots {
  const Compiled *c;
  Arena *a;
  Timeline *t;
  int *n;          /* [pp] actions of a round */
  SlotList *other; /* [pp] kernels and transfers of the main list */
} Slots;

static void widen(TimelineSlot *slot, int64_t from, int64_t to) {
  bool first = slot->start == slot->end;
  slot->start = first ? from : MIN(slot->start, from);
  slot->end = first ? to : MAX(slot->end, to);
}

/* What touches the slot before makes it longer. */
static void add_other(const Slots *k, int pp, int64_t from, int64_t to) {
  SlotList *list = &k->other[pp];
  TimelineSlot *last = list->n ? &list->at[list->n - 1] : NULL;
  if (last && from <= last->end && from >= last->start)
    last->end = MAX(last->end, to);
  else
    *VEC_PUSH(k->a, *list) = (TimelineSlot){from, to};
}

static void ran(void *ud, int pp, const Instr *in, int64_t from, int64_t to) {
  const Slots *k = ud;
  const Program *p = &k->c->prog[pp];
  if (to <= from) return;
  if (in->code == I_CALL && in->action) {
    int round = p->call[in->call].mb / k->c->schedule.microbatches;
    int at = round * k->n[pp] + in->action - 1;
    widen(&k->t->slot[pp][at], from, to);
    k->t->last[pp] = MAX(k->t->last[pp], to);
  } else if (in->code == I_KERNEL) {
    add_other(k, pp, from, to);
  }
}

/* Not the time until all members have come. */
static void waited(void *ud, int pp, const RankWait *w) {
  const Slots *k = ud;
  const Program *p = &k->c->prog[pp];
  int64_t moving = MAX(w->came, w->began);
  if (w->what < p->code + p->nmain && w->ended > moving)
    add_other(k, pp, moving, w->ended);
}

/* Of the others those that follow the last action. */
static void keep_after(const Slots *k, int pp) {
  Timeline *t = k->t;
  const SlotList *list = &k->other[pp];
  t->after[pp] = NEW_N(k->a, TimelineSlot, list->n);
  for (int i = 0; i < list->n; i++)
    if (list->at[i].end > t->last[pp])
      t->after[pp][t->nafter[pp]++] =
          (TimelineSlot){MAX(list->at[i].start, t->last[pp]), list->at[i].end};
}

static void sum(const Slots *k, const Schedule *s, int pp) {
  Timeline *t = k->t;
  t->first[pp] = s->n[pp] ? t->makespan : 0;
  t->busy[pp] = 0;
  for (int i = 0; i < s->n[pp]; i++) {
    TimelineSlot slot = t->slot[pp][i];
    if (slot.end > slot.start) t->first[pp] = MIN(t->first[pp], slot.start);
    t->busy[pp] += slot.end - slot.start;
  }
  keep_after(k, pp);
  for (int i = 0; i < t->nafter[pp]; i++) {
    t->busy[pp] += t->after[pp][i].end - t->after[pp][i].start;
    t->last[pp] = MAX(t->last[pp], t->after[pp][i].end);
  }
}

weft_status sim_timeline(const Compiled *c, const Plan *plan, const CostTable *table,
                         Arena *a, Schedule *s, Timeline *t, weft_error *e) {
  const Schedule *one = &c->schedule;
  *s = schedule_of_step(one, c->microbatches / one->microbatches, a);
  TRY(timeline_run(s, TIMELINE_UNIT, a, t, e)); /* peaks follow from the order alone */
  for (int r = 0; r < t->ranks; r++) {
    memset(t->slot[r], 0, sizeof *t->slot[r] * (size_t)s->n[r]);
    t->last[r] = 0;
  }
  t->tick = 1 / SIM_TICKS;
  t->after = NEW_N(a, TimelineSlot *, t->ranks);
  t->nafter = NEW_N(a, int, t->ranks);
  Slots k = {.c = c, .a = a, .t = t, .n = one->n, .other = NEW_N(a, SlotList, t->ranks)};
  SimOptions o = {.rates = sheet_rates(RATES_USUAL),
                  .table = table,
                  .ran = ran,
                  .waited = waited,
                  .ud = &k};
  SimReport r;
  TRY(simulate(c, plan, &o, a, &r, e));
  t->makespan = (int64_t)(r.seconds * SIM_TICKS + 0.5);
  for (int pp = 0; pp < t->ranks; pp++) sum(&k, s, pp);
  return WEFT_OK;
}
