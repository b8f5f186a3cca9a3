/* schedule_forward.c - the forward actions of a schedule, for evaluation. Without its
 * backward, an order that can run still can. */
#include "schedule.h"

Schedule schedule_forward(const Schedule *from, Arena *a) {
  Schedule s = *from;
  ActionPart part[2];
  s.list = NEW_N(a, Action *, s.ranks);
  s.n = NEW_N(a, int, s.ranks);
  for (int r = 0; r < s.ranks; r++) {
    s.list[r] = NEW_N(a, Action, from->n[r]);
    for (int i = 0; i < from->n[r]; i++) {
      const Action *x = &from->list[r][i];
      if (action_parts(x, part) == 0 || !(part[0].bits & PART_F)) continue;
      s.list[r][s.n[r]++] = (Action){.kind = ACT_F,
                                     .chunk = (int16_t)part[0].chunk,
                                     .mb = part[0].mb,
                                     .line = x->line,
                                     .cell = x->cell};
    }
  }
  return s;
}
