/* main_list.h - a rank's main list, with buffers as intervals instead of offsets. */
#ifndef WEFT_MAIN_LIST_H
#define WEFT_MAIN_LIST_H

#include "vm/pipeline/transfers.h"
#include "arena_layout.h"

/* Events of unsharded buckets, placed by unshard.h with GATHER, FREE and SCATTER. KEEP:
 * copies a group's shard of the parameters into this buffer. TAKE: from here on the
 * unsharded gradients are in this buffer. SCATTER: reduce-scatters them in it, after a
 * cast into it if the reduction has another type. ADD: accumulates the result in the
 * rank's gradient shard. */
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
  int32_t buffer;   /* SEND, RECV: of activations; events of `unsharded`: in the area
                       of that bucket */
  int32_t peer;     /* SEND, RECV: pp rank */
  int32_t handle;   /* of an event that starts something, and of WAIT */
  int32_t bucket;   /* REDUCE */
  int32_t
      unsharded;  /* GATHER, KEEP, FREE, TAKE, SCATTER, ADD: bucket, in UnshardedList */
  bool kept;      /* GATHER: among the ranks of a group, from what KEEP has copied */
  bool first;     /* SCATTER, ADD: the first of the step, which overwrites the shard */
  int32_t action; /* see Instr */
  int32_t line;
  uint32_t edges; /* CALL: index of its first frame and edge in call_buffer */
  int32_t edge;   /* SEND, RECV: index in Units.edge */
} Event;

/* Areas of buffers with a lifetime, each packed separately. */
typedef enum {
#define AREA(id, class) AREA_##id,
#include "area.def"
  AREA_N
} Area;
extern const char *const area_class[AREA_N]; /* "activations", ... */

/* A call of a unit, or an UNSHARD, RESHARD or REDUCE_GRAD of the schedule for a chunk. */
typedef enum { STEP_CALL, STEP_UNSHARD, STEP_RESHARD, STEP_REDUCE_GRAD } StepKind;
typedef struct Step {
  uint8_t kind, phase;  /* StepKind; Phase */
  int32_t of;           /* the unit, or the local chunk */
  int32_t at;           /* position of the call, or of the event after the action */
  int32_t action, line; /* see Event */
} Step;

typedef struct MainList {
  VEC(Event) ev;
  VEC(Step) step; /* filled if `steps` */
  VEC(Interval) buffer[AREA_N];
  VEC(int32_t)
  call_buffer;     /* for each CALL: FI, FW, IW (-1: not used), then the unit's edges */
  int positions;   /* number of events, also if `brief` */
  uint64_t copies; /* bytes of parameters gathered from stored shards */
  uint64_t moved;  /* bytes moved by GATHERs from stored shards and by SCATTERs */
  uint64_t moved_experts; /* of these, those of buckets of experts */
  uint64_t moved_kept;    /* bytes moved by GATHERs within a group */
  int handles;
  int *reduce_handle; /* of each bucket: -1 if the reduction starts after the last action
                       */
  bool brief; /* set by the caller: only buffers and steps are wanted, no events */
  bool steps; /* set by the caller: steps are wanted */
} MainList;
typedef struct ActionsInput {
  const Transfers *tr;
  Arena *scratch;
  Diags *d;
  bool overlap;     /* gradient reductions overlap with the backward */
  bool keep_frames; /* frames F..I live through the whole list (key-value caches) */
  bool late;        /* the warning about an early REDUCE_GRAD was given */
} ActionsInput;
/* Establishes the main list of pp rank `rank`. */
void actions(ActionsInput *in, int rank, const Layout *l, MainList *t);

#endif
