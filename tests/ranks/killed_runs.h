/* killed_runs.h - a run that is killed at random moments and goes on from its
 * checkpoints. */
#ifndef WEFT_TEST_KILLED_H
#define WEFT_TEST_KILLED_H

#include "vm/base/base.h"

/* How its ranks are started: as threads, by --procs 2 and 4, by mpirun -n 2 and 4. */
enum { KILLED_PROCS = 1, KILLED_MPIRUN = 3, KILLED_WAYS = 5 };

/* Starts a small run with a checkpoint after each step, and at a random moment (by the
 * seed) kills rank 0, another one or the launcher, so many times. All others end, without
 * success, the latest checkpoint is whole, and the next start goes on from it. In the end
 * each step's loss, whichever of the runs took it, is that of a run that nobody killed,
 * and no temporary file is left. False with what is not so in `report`; else that says
 * how far they came. The folder exists, with no link on the way to it; `weft` is the
 * program. */
bool killed_runs(const char *weft, const char *folder, int way, int times, uint64_t seed,
                 Text *report);
/* `weft-tests --kill [TIMES] [SEED]`; returns the exit code. */
int killed_main(int argc, char **argv);

#endif
