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

/* Seconds of samples for a row. */
#define CALIBRATE_SECONDS 0.02

#endif
