/* comm_world.h - runs a function on every rank of a local world, one thread each, and
 * fails the test with the first rank's recorded failure. Check's own assertions may only
 * be used on the main thread. */
#ifndef WEFT_TESTS_COMM_WORLD_H
#define WEFT_TESTS_COMM_WORLD_H

#include <stdio.h>

#include "vm/comm/world.h"

typedef struct Peer {
  int rank, n;
  bool exact;          /* sums have the bits of group order, */
  uint64_t exact_from; /* or do from this many bytes on; 0: no */
  Comm c;
  weft_error e;
  void *arg;
  char bad[256];
} Peer;

typedef struct Setup {
  int n, in_flight, nhandle, ngroup; /* every rank exchanges data with all others */
  /* Fills the world ranks of a group of `rank`, returns their number; NULL: all ranks. */
  int (*members)(int rank, int n, int group, int *out);
  const weft_alloc *alloc;
  World **world; /* where to store the world for the function, or NULL */
} Setup;

enum { MAX_RANKS = 64, MAX_GROUPS = 8 };
typedef struct Needs {
  CommNeeds needs;
  CommGroup group[MAX_GROUPS];
  int member[MAX_GROUPS][MAX_RANKS], peer[MAX_RANKS];
} Needs;
const CommNeeds *setup_needs(const Setup *s, int rank, Needs *room);
void comm_world(const Setup *s, void (*fn)(Peer *p), void *arg);

/* Start, wait, or both; true if all succeeded. */
bool op_start(Peer *p, int handle, CommOp op);
bool op_wait(Peer *p, int handle);
bool op_run(Peer *p, CommOp op);

#define NEED(cond)                                                                       \
  do {                                                                                   \
    if (!(cond)) {                                                                       \
      snprintf(p->bad, sizeof p->bad, "rank %d, %s:%d: %s; %.100s", p->rank, __func__,   \
               __LINE__, #cond, p->e.text);                                              \
      if (p->c.vt) comm_abort(&p->c, p->bad);                                            \
      return;                                                                            \
    }                                                                                    \
  } while (0)

#define ALL_REDUCE(t, in_, out_, n_)                                                     \
  (CommOp) {                                                                             \
    .coll = COLL_ALL_REDUCE, .red = RED_SUM, .dtype = (t), .in = (in_), .out = (out_),   \
    .count = (n_)                                                                        \
  }
#define SEND(t, to, in_, n_)                                                             \
  (CommOp) {                                                                             \
    .coll = COLL_SEND, .dtype = (t), .group = -1, .peer = (to), .in = (in_),             \
    .count = (n_)                                                                        \
  }
#define RECV(t, from, out_, n_)                                                          \
  (CommOp) {                                                                             \
    .coll = COLL_RECV, .dtype = (t), .group = -1, .peer = (from), .out = (out_),         \
    .count = (n_)                                                                        \
  }

#endif
