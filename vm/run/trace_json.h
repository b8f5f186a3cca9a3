/* trace_json.h - the events of a rank as JSON, for Perfetto and chrome://tracing. */
#ifndef WEFT_TRACE_JSON_H
#define WEFT_TRACE_JSON_H

#include "vm/rank/rank.h"
#include "vm/rank/trace.h"

typedef struct TraceOut {
  Text *out;
  const Compiled *c;
  const weft_alloc *alloc;
  int64_t origin; /* ns that are 0 in the picture */
  bool any;       /* something is written already */
} TraceOut;
/* `offset` is added to the times. */
weft_status trace_write(TraceOut *o, int rank, const TraceEvent *event, uint32_t n,
                        int64_t offset, weft_error *e);

#endif
