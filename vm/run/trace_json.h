/* trace_json.h - the events of a rank as JSON, for Perfetto and chrome://tracing. */
#ifndef WEFT_TRACE_JSON_H
#define WEFT_TRACE_JSON_H

#include "vm/rank/rank.h"
#include "vm/rank/trace.h"

typedef struct TraceOut {
  Text *out;
  const Compiled *c;
  const weft_alloc *alloc;
  int64_t origin; /* the time in ns that is 0 in the file */
  bool any;       /* something was written */
} TraceOut;
/* Writes the events of a rank; `offset` is added to their times. */
weft_status trace_write(TraceOut *o, int rank, const TraceEvent *event, uint32_t n,
                        int64_t offset, weft_error *e);

#endif
