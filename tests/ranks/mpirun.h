/* mpirun.h - runs this binary under mpirun and captures its output. */
#ifndef WEFT_TEST_MPIRUN_H
#define WEFT_TEST_MPIRUN_H

#include <stdbool.h>

enum { MPIRUN_RANKS = 4 };

typedef struct MpirunOutcome {
  int status;      /* of mpirun, as wait gives it */
  char text[8192]; /* all that was printed */
} MpirunOutcome;

/* All ranks get the arguments `child` (see main.c) and `what`. */
MpirunOutcome mpirun(const char *child, const char *what);
/* False, with the reason on stdout, if MPI is not built or installed. A module that
 * exists must open. */
bool mpirun_present(void);

#endif
