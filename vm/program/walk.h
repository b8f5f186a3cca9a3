/* walk.h - ranks that work through lists of their own and wait for each other: the loop
 * under the proof of programs, their runs with costs and the clock of schedules.
 *
 * A rank goes on until it needs an event that has not happened; that event wakes it.
 * Events never become undone, so every order in which ranks take turns gives the same
 * result, and a rank that cannot go on when all have stopped never can. */
#ifndef WEFT_WALK_H
#define WEFT_WALK_H

#include "vm/base/base.h"

enum { WALK_NOTHING = -1 };

typedef struct WalkRank {
  int64_t now;   /* its clock, in ticks of whoever walks */
  int64_t woken; /* for walk_earliest: not before */
  int64_t need;  /* what it waits for, as that numbers it, or WALK_NOTHING */
  bool ended;
} WalkRank;

typedef struct Walk {
  WalkRank *rank;
  int n;
  int *ready, first, nready; /* a ring of those that can go on, each at most once */
} Walk;

/* All ranks can go on. */
void walk_begin(Walk *w, Arena *a, int n);
/* The next one that can, or -1. It runs until it ends or blocks. */
int walk_next(Walk *w);
/* The one whose clock is earliest, in the place of walk_next: for walks in which it
 * matters what happens first. -1 if none can go on or the earliest is after `before`. */
int walk_earliest(Walk *w, int64_t before);
/* A rank that walk_earliest has given stops, and can go on. */
void walk_again(Walk *w, int rank);
/* The lowest rank that has not ended, or -1. */
int walk_left(const Walk *w);
/* Who waits for whom ends in a circle; the lowest number of the one that `from` leads to.
 * `blocker` says for whom one of `n` waits. */
int walk_circle(int n, int from, int (*blocker)(const void *ud, int of), const void *ud);

static inline void walk_block(Walk *w, int rank, int64_t need) {
  w->rank[rank].need = need;
}

/* `what` is there, or more of it. */
static inline void walk_wake(Walk *w, int rank, int64_t what) {
  if (w->rank[rank].need != what) return;
  w->rank[rank].need = WALK_NOTHING;
  w->ready[(w->first + w->nready++) % w->n] = rank;
}

#endif
