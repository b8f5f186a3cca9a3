/* calibrate_world.h - the processes among which weft calibrate measures transfers: those
 * of
 * --procs, mpirun and other launchers. */
#ifndef WEFT_CLI_CALIBRATE_WORLD_H
#define WEFT_CLI_CALIBRATE_WORLD_H

#include "bindings/cli/cli.h"
#include "vm/calibrate/calibrate.h"
#include "vm/comm/world.h"

/* What connects the ranks: threads if no launcher has started several processes. */
weft_status calibrate_comm(const Cli *cli, const DeviceKind *d, const WorldKind **out,
                           weft_error *e);
/* Threads of a rank, by --threads or its share of the cores of this machine. */
int calibrate_threads(const Cli *cli, int ranks);
/* Finds the others. They have to be on one machine, whose cores they share. */
weft_status calibrate_world(const Cli *cli, const WorldKind *k, World *w, weft_error *e);
/* A process that is not rank 0: it measures what that one says; returns the exit code. */
int calibrate_as_other(const Cli *cli, Arena *a);

/* All rows are measured so often, one after the other, for so many seconds each: a row is
 * the mean of moments that are apart, as a machine is faster in some than in others. */
enum { CALIBRATE_PASSES = 4 };
#define CALIBRATE_SECONDS 0.006

#endif
