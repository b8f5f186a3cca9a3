/* cuda_mpi.c - an MPI_Init_thread that makes CUDA's first call, as that of an MPI that
 * knows GPUs may, to be preloaded: it prints what CUDA then reads of the environment. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided) {
  int (*init)(int *, char ***, int, int *);
  const char *text = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  fprintf(stderr, "MPI_Init_thread: %s connections\n", text ? text : "8");
  *(void **)&init = dlsym(RTLD_DEFAULT, "PMPI_Init_thread");
  return init ? init(argc, argv, required, provided) : 1;
}
