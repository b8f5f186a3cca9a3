/* alive.h - the processes of a run, whoever has started them: all that work in a folder.
 */
#ifndef WEFT_TEST_ALIVE_H
#define WEFT_TEST_ALIVE_H

#include <sys/types.h>

/* The process of this rank as its launcher numbers it (RANK, OMPI_COMM_WORLD_RANK); 0 if
 * it is not there. */
pid_t alive_rank(const char *folder, int rank);
/* How many there are; each gets the signal, if it is not 0. */
int alive_all(const char *folder, int signal);

#endif
