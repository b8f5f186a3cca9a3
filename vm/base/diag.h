/* diag.h - the diagnostics of a plan: every error and warning, not just the first.
 *
 * A check adds a diagnostic with the path of its field ("mesh.tp",
 * "tp_plan[\"lm_head\"]", "" for the whole plan) and continues. The bindings turn paths
 * into lines of the plan file. */
#ifndef WEFT_DIAG_H
#define WEFT_DIAG_H

#include "base.h"

typedef enum { DIAG_ERROR, DIAG_WARNING } DiagSeverity;

/* A row of diag.def. */
typedef struct DiagCode {
  const char *name;    /* "unknown-field" */
  const char *summary; /* some words */
  const char *text;    /* lines: what is meant, why, what to do */
} DiagCode;

typedef struct Diag {
  DiagSeverity severity;
  const char *code; /* a name of diag.def */
  const char *path; /* without the leading "plan." */
  const char *summary;
  const char *suggestion; /* NULL, or a correction: did you mean "cp"? */
  const char *file;       /* filled by the bindings; NULL if unknown */
  int line;               /* 0 if unknown */
} Diag;

typedef struct Diags {
  Arena *arena;
  VEC(Diag) list;
  int errors, warnings;
} Diags;

/* Returns the new entry, for a suggestion or a line to be added; valid until the next
 * call. */
Diag *diag_error(Diags *d, const char *code, const char *path, const char *fmt, ...)
    PRINTF(4, 5);
Diag *diag_warn(Diags *d, const char *code, const char *path, const char *fmt, ...)
    PRINTF(4, 5); /* an equal warning is added once only */
/* All codes, sorted by name; and the one of this name, or NULL. */
const DiagCode *diag_codes(int *n);
const DiagCode *diag_code(const char *name);
/* The name that is nearest to this one, or NULL. */
const char *diag_code_near(const char *name);
/* By file, line, then order of arrival; entries without a file come last. */
void diag_sort(Diags *d);

#endif
