/* job_costs.h - a job whose clock has measured times. */
#ifndef WEFT_JOB_COSTS_H
#define WEFT_JOB_COSTS_H

#include "bindings/api/job.h"
#include "calibration.h"

/* After job_mesh: reads a calibration. Warns of what differs from the plan and from this
 * machine; a calibration of other machines than the plan's cluster is not used. */
weft_status job_costs(Job *j, const char *path, Arena *a, weft_error *e);
/* After job_compile, whose programs are those of a run: a plan without a cluster is on
 * the machine that was measured. */
void job_costs_machine(Job *j);

/* Why rows of the two may not be in one table, or NULL: "threads of a rank, 2 and 1". */
const char *calibrations_differ(const CostTable *a, const CostTable *b, Arena *to);

#endif
