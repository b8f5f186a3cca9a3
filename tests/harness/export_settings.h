/* export_settings.h - weft export as a user sees it, for the suites of one system each.
 */
#ifndef WEFT_TESTS_EXPORT_SETTINGS_H
#define WEFT_TESTS_EXPORT_SETTINGS_H

#include "process.h"

/* weft export with these arguments ends with this code. */
Outcome export_settings(int code, const char *arguments);
/* A file below the scratch folder. */
const char *export_file(const char *path);
/* Both plans, of two pipeline ranks, have the same programs. */
void export_same_programs(const char *a, const char *b);

#endif
