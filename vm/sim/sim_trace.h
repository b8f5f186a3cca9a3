/* sim_trace.h - a simulated step as a trace for Perfetto, in the form of the trace of a
 * run, so that both can be opened side by side. */
#ifndef WEFT_SIM_TRACE_H
#define WEFT_SIM_TRACE_H

#include "step_clock.h"

/* One rank for each pipeline rank. */
weft_status sim_trace(const Compiled *c, const Plan *plan, const CostTable *t, Arena *a,
                      Text *out, weft_error *e);

#endif
