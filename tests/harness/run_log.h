/* run_log.h - the log of a run that a test starts as a user does. */
#ifndef WEFT_TESTS_RUN_LOG_H
#define WEFT_TESTS_RUN_LOG_H

#include <jansson.h>

/* Reads the lines of the steps of a log in the scratch folder, of which there may be
 * `most`; returns how many there are. Each is for json_decref. */
int log_steps(const char *log, json_t **step, int most);
/* The same, of the run of a plan of that folder with more arguments. */
int run_logged(const char *plan, const char *log, const char *more, json_t **step,
               int most);

#endif
