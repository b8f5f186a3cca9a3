/* action.h - a schedule: for each pp rank a list of actions (F, I, W, B, overlapped
 * pairs, actions on parameters). */
#ifndef WEFT_ACTION_H
#define WEFT_ACTION_H

#include "vm/base/base.h"

typedef enum {
  ACT_F,
  ACT_I,
  ACT_W,
  ACT_B,
  ACT_OVERLAP,
  ACT_UNSHARD,
  ACT_RESHARD,
  ACT_REDUCE_GRAD,
  ACT_N
} ActionKind;
typedef struct Action {
  uint8_t kind;   /* ActionKind */
  int16_t chunk;  /* local, from 0 */
  int32_t mb;     /* microbatch, from 0; -1 for UNSHARD, RESHARD, REDUCE_GRAD */
  int16_t chunk2; /* OVERLAP: the backward part */
  int32_t mb2;
  int32_t line; /* of the schedule function or file, 0 if unknown */
  int32_t cell; /* of that line, from 1, if it is a row of a table; else 0 */
} Action;

/* The table that a schedule gives: one list per pp rank. */
typedef struct Schedule {
  int ranks, virtual_stages, microbatches;
  bool v_placement; /* stage of (rank, 1) is 2*ranks-1-rank, else chunk*ranks+rank */
  Action **list;    /* [ranks] */
  int *n;
  const char *name, *file;
} Schedule;
int schedule_stage(const Schedule *s, int rank, int chunk);
/* The rank and local chunk of a global stage. */
void schedule_where(const Schedule *s, int stage, int *rank, int *chunk);
/* With all its lists and texts in `a`. */
Schedule schedule_copy(const Schedule *from, Arena *a);

static inline bool action_per_microbatch(const Action *a) {
  return a->kind <= ACT_OVERLAP;
}

/* What an action does, in parts: the pair of ACT_OVERLAP has two, ACT_B one with both
 * bits of the backward; UNSHARD, RESHARD and REDUCE_GRAD have none. */
enum { PART_F = 1, PART_I = 2, PART_W = 4 };
typedef struct ActionPart {
  int chunk, mb;
  int bits; /* of PART_ */
} ActionPart;
int action_parts(const Action *a, ActionPart part[2]);

/* Whether W runs apart from I anywhere, so that what W needs has to wait for it. */
bool schedule_splits(const Schedule *s);

/* "B of microbatch 2, chunk 1 (stage 3)"; without virtual stages "B of microbatch 2". */
enum { ACTION_NAME = 128 };
const char *action_name(const Schedule *s, int rank, const Action *a,
                        char buf[ACTION_NAME]);

#endif
