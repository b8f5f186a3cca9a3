/* alive.h - finds the processes of a run, under any launcher: all those with a given
 * working folder. */
#ifndef WEFT_TEST_ALIVE_H
#define WEFT_TEST_ALIVE_H

#include <sys/types.h>

/* The process of this rank by its launcher's variable (RANK, OMPI_COMM_WORLD_RANK); 0 if
 * there is none. */
pid_t alive_rank(const char *folder, int rank);
/* How many processes are there that a launcher gave a rank. */
int alive_ranks(const char *folder);
/* Returns how many there are; sends them the signal, if it is not 0. */
int alive_all(const char *folder, int signal);

#endif
