/* process.h - runs programs as a user does: a command line, its exit code and all that it
 * printed. Uses the folder and the arena of scratch.h. */
#ifndef WEFT_TESTS_PROCESS_H
#define WEFT_TESTS_PROCESS_H

#include <sys/types.h>

#include "scratch.h"

typedef struct Process {
  const char *command;
  pid_t pid;             /* also of its process group */
  char out[96], err[96]; /* files in the scratch folder */
  double deadline;
} Process;

typedef struct Outcome {
  int code;              /* of exit; 128 + n if signal n ended it */
  bool late;             /* it had to be killed */
  const char *out, *err; /* in the scratch arena */
} Outcome;

/* Starts `sh -c "exec COMMAND"` in the scratch folder, where $weft is the program that
 * was built. It has so many seconds; sanitizers get more. */
Process process_start(double seconds, const char *fmt, ...) PRINTF(2, 3);
/* Waits for the end. Fails the test if it does not come in time. */
Outcome process_end(Process *p);
/* True once `text` stands in the file; false when the process has ended without it. */
bool process_wait_for(Process *p, const char *file, const char *text);
/* Both of the above. */
Outcome process_run(double seconds, const char *fmt, ...) PRINTF(2, 3);

/* A whole file of the scratch folder, "" if there is none. */
const char *scratch_get(const char *path);

/* The same of a log of weft run, without the line that begins it, which must be there
 * unless the file is empty. */
const char *scratch_log(const char *path);

/* mpirun with N ranks here, whoever the user is and however few cores there are. */
#define MPIRUN                                                                           \
  "env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "                       \
  "ASAN_OPTIONS=detect_leaks=0 mpirun --oversubscribe -n %d"
#endif
