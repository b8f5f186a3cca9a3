/* main_list_int.h - the main list while it is built. */
#ifndef WEFT_ACTIONS_INT_H
#define WEFT_ACTIONS_INT_H

#include "main_list.h"

typedef struct Outstanding {
  int handle, buffer;
  int64_t posted; /* see SendItem */
} Outstanding;

/* What was sent to a peer and not waited for: at[head ..]; from `newest` on it belongs
 * to the last transfer. */
typedef struct Peer {
  VEC(Outstanding) sent;
  int rank, head, newest, items; /* items: numbers of Transfers.sends used so far */
} Peer;

/* What a body of a unit touches: frames that it opens and others, a bit each; edges. */
typedef struct UnitCall {
  uint8_t opens, uses;
  int *edge, nedge;
} UnitCall;

typedef struct Walk {
  ActionsInput *in;
  const Transfers *tr;
  const Stages *st;
  const Units *u;
  Arena *a;
  const Schedule *s;
  const Layout *l;
  MainList *t;
  int rank, action; /* 1 + index of the current one */
  int line;         /* of its schedule function */
  int now;          /* position in the main list */
  Event unwanted;   /* where events go when only buffers are wanted */
  /* Edges of each local chunk: tensors and, for [edge * microbatches + mb], buffers. */
  struct ChunkEdges {
    int32_t *of; /* edge -> number here + 1 */
    int n;
    int32_t *buffer;
  } * chunk;
  int *local;                    /* unit -> number on this rank */
  UnitCall (*unit_call)[BODIES]; /* [local] */
  int **unit_edge;               /* [local] its edges' numbers in the chunk */
  int32_t (*frame)[3];           /* [local * microbatches + mb] */
  int posted[2];                 /* receives, by the source's send_side */
  VEC(Peer) peer;                /* those that something was sent to */
  VEC(int) free_handle;
  int *w_left;    /* [local] W calls still to come */
  int *of_bucket; /* of the parameters of Layout: their bucket, -1 */
  struct Due {
    int units;     /* that still write gradients of the bucket */
    int actions;   /* REDUCE_GRADs still to come */
    bool explicit; /* the schedule has one */
    bool touched;  /* by the unit that was just finished */
  } * bucket;
} Walk;

/* Adds an event of the current action. */
Event *walk_event(Walk *w, EventKind kind);
int walk_handle(Walk *w);

/* ---- grad_reductions.c: when the gradients of a bucket are reduced ---- */

void reductions_begin(Walk *w, int units);
/* A W call of unit `u` is done. */
void reductions_finished(Walk *w, int u);
/* The REDUCE_GRAD of a chunk. */
void reductions_of_chunk(Walk *w, int chunk);

#endif
