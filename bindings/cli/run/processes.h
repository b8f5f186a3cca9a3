/* processes.h - the ranks that a verb runs a plan on: threads of this process, or the
 * processes that a launcher has started. */
#ifndef WEFT_PROCESSES_H
#define WEFT_PROCESSES_H

#include "bindings/cli/cli.h"
#include "vm/session/session.h"

typedef struct Processes {
  Job *job; /* these two from the beginning */
  const Cli *cli;
  const WorldKind *comm;
  Rendezvous meet;         /* for backends whose processes meet by TCP */
  const char *host;        /* for others, which do not */
  int threads;             /* of each rank; 0: as many as there are cores for it */
  bool reported_elsewhere; /* another process reports why the run has ended */
} Processes;

/* Starts processes of this verb if --procs or the GPUs of this machine ask for it. False:
 * there is nothing to start, and this process is to run the verb; else what it exits
 * with. */
bool processes_start(Cli *cli, Arena *arena, int *code);
/* After job_start: chooses backend and threads by the command line and the launcher, and
 * does job_mesh for the ranks that are there. */
weft_status processes(Processes *p);
/* Opens a session on these ranks, with the other options of `o`. */
weft_status processes_open(Processes *p, Session *s, RunOptions *o);
/* The end of a process that does not report; returns the exit code. If rank 0 has the
 * same error it reports it, and the launcher ends this process meanwhile; else the error
 * occurred here only and is printed. */
int processes_end_other(Processes *p, weft_status st);

#endif
