/* import_files.h - weft import as a user sees it, for the suites of one system each: a
 * file becomes a plan that passes check, or is an error that says what it should. */
#ifndef WEFT_IMPORT_FILES_H
#define WEFT_IMPORT_FILES_H

#include "process.h"

enum { IMPORT_SECONDS = 30 };

void import_put(const char *name, const char *text);

/* Imports a file, with more arguments; the plan must pass check. Returns the
 * report. */
const char *import_file(const char *file, const char *more);

/* weft import fails with this code and says this. */
void import_fails(int code, const char *file, const char *more, const char *says);

void import_has(const char *text, const char *what);
void import_lacks(const char *text, const char *what);
void import_plan_has(const char *what);
void import_plan_lacks(const char *what);

#endif
