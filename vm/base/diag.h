/* diag.h - the diagnostics of a plan: every error and warning, not just the first.
 *
 * A check adds a diagnostic with the path of the field it is about ("mesh.tp",
 * "tp_plan[\"lm_head\"]", "" for the whole plan) and goes on. The bindings turn paths
 * into lines of the plan file. */
#ifndef WEFT_DIAG_H
#define WEFT_DIAG_H

#include "base.h"

typedef enum { DIAG_ERROR, DIAG_WARNING } DiagSeverity;

typedef struct Diag {
  DiagSeverity severity;
  const char *code; /* stable: "unknown-field", "type", "divisibility", ... */
  const char *path; /* without the leading "plan." */
  const char *summary;
  const char *suggestion; /* NULL, or what would be right: did you mean "cp"? */
  const char *file;       /* filled by the bindings; NULL if unknown */
  int line;               /* 0 if unknown */
} Diag;

typedef struct Diags {
  Arena *arena;
  VEC(Diag) list;
  int errors, warnings;
} Diags;

/* Returns the new entry so that a caller can add a suggestion or a line; it is valid
 * until the next call. */
Diag *diag_error(Diags *d, const char *code, const char *path, const char *fmt, ...)
    PRINTF(4, 5);
Diag *diag_warn(Diags *d, const char *code, const char *path, const char *fmt, ...)
    PRINTF(4, 5); /* one that is there already is not added again */
/* By file, line, then order of arrival; what has no place comes last. */
void diag_sort(Diags *d);

#endif
