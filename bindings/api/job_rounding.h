/* job_rounding.h - whether a difference that verify has found is rounding. */
#ifndef WEFT_JOB_ROUNDING_H
#define WEFT_JOB_ROUNDING_H

#include "job.h"

/* The tolerance of a compiled plan where none is asked for. */
double job_tolerance(const Job *j);
/* Compares two compiled jobs, as job_verify, with v->tolerance. With `explains` a
 * difference beyond it that rounding makes is none: then v->report.first_bad says what it
 * is and why. */
weft_status job_compare(Job *many, const Job *one, int steps, bool explains,
                        JobVerify *v);

#endif
