/* killed_runs.h - a run that is killed at random moments and resumes from its
 * checkpoints. */
#ifndef WEFT_TEST_KILLED_H
#define WEFT_TEST_KILLED_H

#include "vm/base/base.h"

/* How its ranks are started: as threads, by --procs 2 and 4, by mpirun -n 2 and 4. */
enum { KILLED_PROCS = 1, KILLED_MPIRUN = 3, KILLED_WAYS = 5 };

/* Starts a small run that saves after each step, and kills rank 0, another rank or the
 * launcher at random moments (by the seed), `times` times. Checks that all others end
 * with a failure, that the latest checkpoint is whole, and that the next start resumes
 * from it. In the end each step's loss, in whichever run, equals that of an undisturbed
 * run, and no temporary file is left. False with the reason in `report`; else that says
 * how far the runs got. The folder exists, without links in its path; `weft` is the
 * program. */
bool killed_runs(const char *weft, const char *folder, int way, int times, uint64_t seed,
                 Text *report);
/* `weft-tests --kill [TIMES] [SEED]`; returns the exit code. */
int killed_main(int argc, char **argv);

#endif
