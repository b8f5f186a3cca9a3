/* calibration.h - cost tables as files of Lua: what weft calibrate writes and weft sim
 * reads.
 *
 * A file calls three functions: machine { device =, way =, ... } once, and kernel { OP,
 * DTYPE, SHAPE, class =, ns =, ... } and move { KIND, DTYPE, ranks =, bytes =, ns = } for
 * each row. */
#ifndef WEFT_CALIBRATION_H
#define WEFT_CALIBRATION_H

#include "vm/base/diag.h"
#include "vm/sim/cost_table.h"

/* All of `out` is in the arena. What is wrong is a diagnostic with its line. */
weft_status calibration_read(const char *path, Arena *a, CostTable *out, Diags *d,
                             weft_error *e);
void calibration_text(const CostTable *t, Text *out);
/* The file appears whole or not at all. */
weft_status calibration_write(const CostTable *t, const char *path, weft_error *e);

#endif
