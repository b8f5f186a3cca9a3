/* trace.h - what each rank did when, for a picture of a run.
 *
 * A rank writes events into a buffer that is there before the first step and holds whole
 * steps: a step that does not fit any more is left out, and so are all after it. Times
 * are those of the host, which on a device that runs behind it are those of launches. */
#ifndef WEFT_TRACE_H
#define WEFT_TRACE_H

#include "vm/base/base.h"

typedef enum {
  TRACE_RUN,  /* the compute queue runs an instruction */
  TRACE_WAIT, /* it waits for the transfer that this instruction started */
  TRACE_MOVE, /* that transfer, from its start to the end of the wait */
  TRACE_STEP,
} TraceKind;

typedef struct TraceEvent {
  int64_t from, to; /* ns */
  uint32_t kind, instr;
  uint32_t call; /* the CALL in main that it belongs to, or TRACE_MAIN */
  int32_t step;
} TraceEvent;
enum { TRACE_BYTES = 4 << 20, TRACE_EVENTS = TRACE_BYTES / (int)sizeof(TraceEvent) };
#define TRACE_MAIN UINT32_MAX

typedef struct Tracer {
  TraceEvent *event; /* [TRACE_EVENTS] */
  uint32_t n, whole; /* written; of whole steps */
  uint32_t call;
  int32_t step;
  bool full;
  bool processor; /* times are the processor time of the rank's thread */
} Tracer;

int64_t trace_ns(void);
int64_t trace_now(const Tracer *t); /* 0 without one */
/* Between them lie the events of a step. */
int64_t trace_begin(Tracer *t, int64_t step); /* when that was */
void trace_end(Tracer *t, int64_t from);
static inline void trace_add(Tracer *t, TraceKind kind, uint32_t instr, int64_t from,
                             int64_t to) {
  if (t->n == TRACE_EVENTS) t->full = true;
  if (t->full) return;
  t->event[t->n++] = (TraceEvent){from, to, kind, instr, t->call, t->step};
}

#endif
