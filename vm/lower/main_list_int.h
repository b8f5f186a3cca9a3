/* main_list_int.h - the state while a main list is built. */
#ifndef WEFT_ACTIONS_INT_H
#define WEFT_ACTIONS_INT_H

#include "main_list.h"

typedef struct Outstanding {
  int handle, buffer;
  int64_t posted; /* see SendItem */
} Outstanding;

/* Sends to a peer that were not waited for: at[head ..]; those of the last transfer begin
 * at `newest`. */
typedef struct Peer {
  VEC(Outstanding) sent;
  int rank, head, newest, items; /* items: sends of Transfers.sends used so far */
} Peer;

/* What a body of a unit uses: frames that it allocates, and all frames, one bit each; and
 * edges. */
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
  int rank, action; /* 1 + index of the current action */
  int line;         /* of the schedule function, for this action */
  int now;          /* position in the main list */
  Event unwanted;   /* target of events if only buffers are wanted */
  /* For each local chunk: its edges, and for [edge * microbatches + mb] their buffers. */
  struct ChunkEdges {
    int32_t *of; /* edge -> index here + 1 */
    int n;
    int32_t *buffer;
  } * chunk;
  int *local;                    /* unit -> number on this rank */
  UnitCall (*unit_call)[BODIES]; /* [local] */
  int **unit_edge;     /* [local] edges of the unit as indices within the chunk */
  int32_t (*frame)[3]; /* [local * microbatches + mb] */
  int posted[2];       /* receives posted so far, by send_side of the source */
  VEC(Peer) peer;      /* peers that something was sent to */
  VEC(int) free_handle;
  int *w_left;    /* [local] W calls that are still to come */
  int *of_bucket; /* parameter of Layout -> its bucket, -1 */
  struct Due {
    int units;     /* units that are still to write gradients of the bucket */
    int actions;   /* REDUCE_GRADs that are still to come */
    bool explicit; /* the schedule has REDUCE_GRADs for it */
    bool touched;  /* a unit that has just finished writes to it */
  } * bucket;
} Walk;

/* Adds an event of the current action. */
Event *walk_event(Walk *w, EventKind kind);
int walk_handle(Walk *w);
/* A new buffer for an edge, live from here on. */
int walk_new_edge(Walk *w, int32_t edge);

/* The buffer lives until here at least; -1: there is none. */
static inline void walk_touch(Walk *w, int buffer) {
  if (buffer < 0) return;
  w->t->buffer[AREA_ACTIVATIONS].at[buffer].end = w->now;
}

/* The index of an edge within its chunk. */
static inline int walk_chunk_edge(Walk *w, int chunk, int32_t edge) {
  struct ChunkEdges *c = &w->chunk[chunk];
  if (!c->of[edge]) c->of[edge] = ++c->n;
  return c->of[edge] - 1;
}

static inline int32_t *walk_edge_buffer(Walk *w, int chunk, int edge, int mb) {
  return &w->chunk[chunk].buffer[(size_t)edge * (size_t)w->tr->microbatches + (size_t)mb];
}

/* ---- main_comm.c ---- */

/* Posts the receives of what this action of a stage needs, and of what the peer sends
 * before it. */
void transfers_post(Walk *w, int stage, int mb, bool forward);
/* Waits for them; what a stage of the same rank has made is taken over. */
void transfers_take(Walk *w, int stage, int mb, bool forward);
/* Sends what a stage has made to the next one, if that is on another rank. */
void transfers_send(Walk *w, int stage, int mb, bool forward);
/* Waits for sends whose receives are posted by time `now`, except the last one to each
 * peer. */
void transfers_wait(Walk *w, int64_t now);
/* Waits for all sends. */
void transfers_end(Walk *w);

void reductions_begin(Walk *w, int units);
/* To be called after each W of unit `u`. */
void reductions_finished(Walk *w, int u);
/* To be called at the REDUCE_GRAD of a chunk. */
void reductions_of_chunk(Walk *w, int chunk);

#endif
