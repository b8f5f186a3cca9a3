/* module.h - finds and opens shared objects on demand (MPI, CUDA, NCCL, oneDNN, libedit):
 * a program that does not ask for one neither needs nor loads its libraries. */
#ifndef WEFT_MODULE_H
#define WEFT_MODULE_H

#include "base.h"

/* The path of module `file` ("weft_mpi.so"): beside the program, beside the library that
 * holds this code, in the folder weft beside that library, or where an installed program
 * has its modules. Else false, and `path` is `file` itself: the system's places are left
 * to dlopen. */
bool module_find(const char *file, char *path, size_t size);

/* A module, and what is said where it cannot be had. */
typedef struct Module {
  const char *file, *symbol; /* "weft_cuda.so", and what it exports */
  const char *what;          /* "device cuda" */
  const char *built;         /* "NVCC", which must be there when weft is configured */
  const char *needs;         /* the libraries that it opens */
  weft_status code;          /* of the error */
  bool global;               /* whether what it opens looks for its symbols */
} Module;
/* The address of its symbol; or NULL, with the error. Never closed: such libraries have
 * threads and handlers of their own. */
const void *module_open(const Module *m, weft_error *e);
/* The error for a module of another version. */
void module_other(const Module *m, weft_error *e);

#endif
