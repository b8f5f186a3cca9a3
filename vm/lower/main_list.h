/* main_list.h - a rank's main list, buffers still as intervals instead of offsets. */
#ifndef WEFT_MAIN_LIST_H
#define WEFT_MAIN_LIST_H

#include "vm/pipeline/transfers.h"
#include "arena_layout.h"

/* KEEP: a part of the copy goes to this buffer. TAKE: from here on the whole gradients of
 * a block lie in this buffer. SCATTER: in it they are summed, taken there first where the
 * sum has another type. ADD: its shard of them comes to what it has. Both follow
 * unshard.h, as GATHER, FREE and SCATTER do. */
typedef enum {
  EV_CALL,
  EV_SEND,
  EV_RECV,
  EV_WAIT,
  EV_REDUCE,
  EV_GATHER,
  EV_KEEP,
  EV_FREE,
  EV_TAKE,
  EV_SCATTER,
  EV_ADD
} EventKind;
typedef struct Event {
  uint8_t kind;
  uint8_t phase;    /* CALL */
  int32_t unit, mb; /* CALL */
  int32_t buffer;   /* SEND, RECV: an activation; of `held`: in its area */
  int32_t peer;     /* SEND, RECV: pp rank */
  int32_t handle;   /* of what starts, and WAIT */
  int32_t bucket;   /* REDUCE */
  int32_t held; /* GATHER, KEEP, FREE, TAKE, SCATTER, ADD: the block, in UnshardedList */
  bool kept;    /* GATHER: of the parts that a group keeps */
  bool first;   /* SCATTER, ADD: the first of the step, which overwrites */
  int32_t action; /* see Instr */
  int32_t line;
  uint32_t edges; /* CALL: first of its frames and edges in call_buffer */
  int32_t edge;   /* SEND, RECV: in Units.edge */
} Event;

/* What lives for a while, by what it is. Each area is packed by itself. */
typedef enum {
#define AREA(id, class) AREA_##id,
#include "area.def"
  AREA_N
} Area;
extern const char *const area_class[AREA_N]; /* "activations", ... */

/* A call of a unit, or what a schedule says of the parameters of a chunk. */
typedef enum { STEP_CALL, STEP_UNSHARD, STEP_RESHARD, STEP_REDUCE_GRAD } StepKind;
typedef struct Step {
  uint8_t kind, phase;  /* StepKind; Phase */
  int32_t of;           /* the unit, or the local chunk */
  int32_t at;           /* position of the call, or of the event after it */
  int32_t action, line; /* see Event */
} Step;

typedef struct MainList {
  VEC(Event) ev;
  VEC(Step) step; /* if they are wanted */
  VEC(Interval) buffer[AREA_N];
  VEC(int32_t) call_buffer; /* per CALL: FI, FW, IW (-1 none), then the unit's edges */
  int positions;            /* events, also if they are not wanted */
  uint64_t copies;          /* bytes that GATHERs of shards give */
  uint64_t moved;           /* bytes that GATHERs give and SCATTERs take, */
  uint64_t moved_kept;      /* and that those GATHERs give that are of parts */
  int handles;
  int *reduce_handle; /* of each bucket: -1 if the epilogue starts it */
  bool brief;         /* set before: only buffers and steps are wanted */
  bool steps;         /* set before: steps are wanted */
} MainList;
typedef struct ActionsInput {
  const Transfers *tr;
  Arena *scratch;
  Diags *d;
  bool overlap;     /* gradients are reduced while backward still runs */
  bool keep_frames; /* what lies in a frame F..I outlives the list */
  bool late;        /* set once a warning about REDUCE_GRAD was given */
} ActionsInput;
/* `rank` is the pp rank. */
void actions(ActionsInput *in, int rank, const Layout *l, MainList *t);

#endif
