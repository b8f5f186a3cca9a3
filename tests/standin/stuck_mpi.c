/* stuck_mpi.c - an MPI_Init_thread that never returns, to be preloaded: Open MPI's does
 * that now and then when its launcher dies meanwhile. */
#include <unistd.h>

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided) {
  for (;;) pause();
}
