/* report.h - diagnostics as lines of text and as JSON. */
#ifndef WEFT_REPORT_H
#define WEFT_REPORT_H

#include "vm/base/diag.h"
#include "vm/base/json.h"

enum { REPORT_COLOUR = 1, REPORT_CODES = 2 };

/* One line for each entry, "plan.lua:12: error: plan.mesh.tp: ...", then "2 errors";
 * nothing for an empty list. A suggestion of one word is printed as `did you mean
 * "word"?`, a longer one as it is. `how`: REPORT_COLOUR, and REPORT_CODES, which ends
 * each line with the code, "[divisibility]". */
void report_text(const Diags *d, unsigned how, Text *out);
/* The first error of `d`, which must have one, as WEFT_EPLAN. */
weft_status report_first(const Diags *d, weft_error *e);
/* The codes as a table of docs/explain.md. */
void report_codes_markdown(Text *out);
/* Begins the object that --json prints: its members from command to valid. The caller
 * writes `result` (json_null if there is none) and calls report_json_end. */
void report_json_begin(const Diags *d, const char *command, Json *j);
void report_json_end(const Diags *d, Json *j);

#endif
