/* process.h - runs programs as a user does: a command line, its exit code and its output.
 * Uses the folder and the arena of scratch.h. */
#ifndef WEFT_TESTS_PROCESS_H
#define WEFT_TESTS_PROCESS_H

#include <sys/types.h>

#include "scratch.h"

typedef struct Process {
  const char *command;
  pid_t pid;             /* also the id of its process group */
  char out[96], err[96]; /* files in the scratch folder */
  double deadline;
} Process;

typedef struct Outcome {
  int code;              /* exit code; 128 + n if signal n ended it */
  bool late;             /* it exceeded its time and was killed */
  const char *out, *err; /* in the scratch arena */
} Outcome;

/* Starts `sh -c "exec COMMAND"` in the scratch folder, where $weft is the built program.
 * It may run so many seconds; longer under sanitizers. */
Process process_start(double seconds, const char *fmt, ...) PRINTF(2, 3);
/* Waits for the end. Fails the test on a timeout. */
Outcome process_end(Process *p);
/* True once the file contains `text`; false if the process has ended without it. */
bool process_wait_for(Process *p, const char *file, const char *text);
/* Waits until it has taken all signals `sig` that were sent to it: the next one is
 * another one. Signals that wait for a process are one. */
void process_took(pid_t pid, int sig);
/* Time that it has computed, in ticks of sysconf; 0 once it has ended. */
long process_ticks(pid_t pid);
/* Both of the above. */
Outcome process_run(double seconds, const char *fmt, ...) PRINTF(2, 3);

/* Content of a file in the scratch folder; "" if it does not exist. */
const char *scratch_get(const char *path);

/* The same for a log of weft run, without its first line, which must be the header unless
 * the file is empty. */
const char *scratch_log(const char *path);

/* mpirun with N ranks on this machine, as any user, with any number of cores. */
#define MPIRUN                                                                           \
  "env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "                       \
  "ASAN_OPTIONS=detect_leaks=0 mpirun --oversubscribe -n %d"
#endif
