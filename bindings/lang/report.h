/* report.h - diagnostics as lines of text and as JSON. */
#ifndef WEFT_REPORT_H
#define WEFT_REPORT_H

#include "vm/base/diag.h"
#include "vm/base/json.h"

/* "plan.lua:12: error: plan.mesh.tp: ..." for each entry, then "2 errors"; nothing for
 * an empty list. A suggestion of one word is offered as `did you mean "word"?`, a longer
 * one is printed as it is. */
void report_text(const Diags *d, bool colour, Text *out);
/* The first error of `d`, which has one, as WEFT_EPLAN. */
weft_status report_first(const Diags *d, weft_error *e);
/* The members command ... valid of the object that --json prints, up to `result`, which
 * the caller writes (json_null if there is none) before report_json_end. */
void report_json_begin(const Diags *d, const char *command, Json *j);
void report_json_end(const Diags *d, Json *j);

#endif
