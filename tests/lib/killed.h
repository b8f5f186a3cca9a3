/* killed.h - a run that is killed at random moments and goes on from its checkpoints. */
#ifndef WEFT_TEST_KILLED_H
#define WEFT_TEST_KILLED_H

#include "vm/base/base.h"

/* Starts a small run with a checkpoint after each step, and kills it after a random time
 * (by the seed), so many times. Then each step's loss, whichever of the runs took it, is
 * that of a run that nobody killed, and no temporary file is left. False with what is not
 * so in `report`; else that says how far they came. The folder exists; `weft` is the
 * program. */
bool killed_runs(const char *weft, const char *folder, int times, uint64_t seed,
                 Text *report);
/* `weft-tests --kill [TIMES] [SEED]`; returns the exit code. */
int killed_main(int argc, char **argv);

#endif
