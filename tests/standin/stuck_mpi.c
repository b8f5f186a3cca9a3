/* stuck_mpi.c - an MPI_Init_thread that never returns, to be preloaded: Open MPI's does
 * that now and then when its launcher dies meanwhile. Each process that is in it leaves a
 * file stuck.PID in its folder. */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided) {
  char name[32];
  snprintf(name, sizeof name, "stuck.%d", (int)getpid());
  close(open(name, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
  for (;;) pause();
}
