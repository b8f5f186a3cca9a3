/* walk.c - the worklist under proof, costs and timeline; see walk.h. */
#include "walk.h"

void walk_begin(Walk *w, Arena *a, int n) {
  *w = (Walk){
      .n = n, .nready = n, .rank = NEW_N(a, WalkRank, n), .ready = NEW_N(a, int, n)};
  for (int i = 0; i < n; i++) {
    w->rank[i].need = WALK_NOTHING;
    w->ready[i] = i;
  }
}

int walk_next(Walk *w) {
  if (w->nready == 0) return -1;
  int rank = w->ready[w->first];
  w->first = (w->first + 1) % w->n;
  w->nready--;
  return rank;
}

int walk_earliest(Walk *w, int64_t before) {
  int best = -1;
  int64_t least = before;
  for (int i = 0; i < w->nready; i++) {
    const WalkRank *r = &w->rank[w->ready[(w->first + i) % w->n]];
    int64_t at = MAX(r->now, r->woken);
    if (at > least || (at == least && best >= 0)) continue;
    best = i, least = at;
  }
  if (best < 0) return -1;
  int *at = &w->ready[(w->first + best) % w->n], rank = *at;
  *at = w->ready[w->first];
  w->first = (w->first + 1) % w->n;
  w->nready--;
  return rank;
}

void walk_again(Walk *w, int rank) { w->ready[(w->first + w->nready++) % w->n] = rank; }

int walk_left(const Walk *w) {
  for (int i = 0; i < w->n; i++)
    if (!w->rank[i].ended) return i;
  return -1;
}

int walk_circle(int n, int from, int (*blocker)(const void *ud, int of), const void *ud) {
  for (int i = 0; i < n; i++) from = blocker(ud, from);
  int lowest = from;
  for (int i = blocker(ud, from); i != from; i = blocker(ud, i)) lowest = MIN(lowest, i);
  return lowest;
}
