/* schedule_rounds.c - the schedule of a whole step, whose rounds follow each other
 * without a gap: what ranks stand still for is not that of one round, times how many
 * there are. */
#include "schedule.h"

Schedule schedule_of_step(const Schedule *one, int rounds, Arena *a) {
  Schedule s = *one;
  if (rounds <= 1) return s;
  s.list = NEW_N(a, Action *, one->ranks);
  s.n = NEW_N(a, int, one->ranks);
  s.microbatches = one->microbatches * rounds;
  for (int r = 0; r < one->ranks; r++) {
    int n = one->n[r];
    s.n[r] = n * rounds;
    s.list[r] = NEW_N(a, Action, n * rounds);
    for (int i = 0; i < n * rounds; i++) {
      Action *x = &s.list[r][i];
      *x = one->list[r][i % n];
      if (x->mb >= 0) x->mb += i / n * one->microbatches;
      x->mb2 += i / n * one->microbatches;
    }
  }
  return s;
}
