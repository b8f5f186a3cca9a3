/* main_list.h - a rank's main list with buffers still as intervals. */
#ifndef WEFT_MAIN_LIST_H
#define WEFT_MAIN_LIST_H

#include "vm/pipeline/transfers.h"
#include "layout.h"

typedef enum { EV_CALL, EV_SEND, EV_RECV, EV_WAIT, EV_REDUCE } EventKind;
typedef struct Event {
  uint8_t kind;
  uint8_t phase;         /* CALL */
  int32_t unit, mb;      /* CALL */
  int32_t buffer;        /* SEND, RECV: an activation */
  int32_t peer;          /* SEND, RECV: pp rank */
  int32_t handle;        /* SEND, RECV, WAIT, REDUCE */
  int32_t bucket;        /* REDUCE */
  int32_t action;        /* see Instr */
  int32_t line;
  uint32_t edges;        /* CALL: first of its frames and edges in call_buffer */
  int32_t edge;          /* SEND, RECV: in Units.edge */
} Event;

/* What lives for a while, by what it is. Each area is packed by itself. */
typedef enum {
#define AREA(id, class) AREA_##id,
#include "area.def"
  AREA_N
} Area;
extern const char *const area_class[AREA_N];   /* "activations", ... */

typedef struct MainList {
  VEC(Event) ev;
  VEC(Interval) buffer[AREA_N];
  VEC(int32_t) call_buffer;  /* per CALL: FI, FW, IW (-1 none), then the unit's edges */
  int handles;
  int *reduce_handle;    /* of each bucket: -1 if the epilogue starts it */
  bool brief;            /* set before: only the buffers are wanted */
} MainList;
typedef struct ActionsInput {
  const Transfers *tr;
  Arena *scratch;
  Diags *d;
  bool overlap;          /* gradients are reduced while backward still runs */
  bool late;             /* set once a warning about REDUCE_GRAD was given */
} ActionsInput;
/* `rank` is the pp rank. */
void actions(ActionsInput *in, int rank, const Layout *l, MainList *t);

#endif
