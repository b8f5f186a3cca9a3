/* compiled_job.h - a plan compiled for a test, and what its programs are made of. */
#ifndef WEFT_TESTS_COMPILED_JOB_H
#define WEFT_TESTS_COMPILED_JOB_H

#include "bindings/api/job.h"

/* What each test of a suite that opens plans has, with these as a checked fixture: an
 * arena, a job, and the folder of scratch.h. */
extern Arena *arena;
extern Job job;
void job_setup(void);
void job_teardown(void);
/* Opens the plan of this file with `n` settings; the test fails, with all that is said of
 * the plan, where that does. What job_free ends. */
const Compiled *compiled_job(Job *j, Arena *a, const char *path, const char *const *set,
                             int n);
/* How many instructions of a program launch this op, or have this code. */
int program_ops(const Program *p, int op);
int program_codes(const Program *p, InstrCode code);

#endif
