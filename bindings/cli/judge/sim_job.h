/* sim_job.h - what weft sim does with one plan, and with two. */
#ifndef WEFT_CLI_SIM_JOB_H
#define WEFT_CLI_SIM_JOB_H

#include "bindings/cli/cli.h"

#include "bindings/calibration/job_costs.h"

/* Compiles the plan with the options of the command line, for its clock: j->costs are the
 * measured times, if some are given. */
weft_status sim_job(Job *j, const Cli *cli, const char *plan);

/* weft sim PLAN --diff OTHER; the exit code. */
int sim_diff(Cli *cli, Arena *arena);

#endif
