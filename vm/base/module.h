/* module.h - finds and opens shared objects on demand (MPI, CUDA, NCCL, oneDNN, libedit):
 * a program that uses none neither needs nor loads their libraries. */
#ifndef WEFT_MODULE_H
#define WEFT_MODULE_H

#include "base.h"

/* Path of module `file` ("weft_mpi.so"): beside the program, beside the library that
 * contains this code, in the folder weft beside that library, or in the module folder of
 * an installed program. Else false, and `path` is `file` itself, for dlopen to search. */
bool module_find(const char *file, char *path, size_t size);

/* A module, and the parts of the error message if it cannot be opened. */
typedef struct Module {
  const char *file, *symbol; /* "weft_cuda.so", and the symbol it exports */
  const char *what;          /* "device cuda" */
  const char *built;         /* "NVCC": required when weft is configured */
  const char *needs;         /* libraries that it opens */
  weft_status code;          /* status of the error */
  bool global;               /* RTLD_GLOBAL: what it opens looks up its symbols */
} Module;
/* The address of its symbol; or NULL, with the error. Never closed, because such
 * libraries have threads and handlers of their own. */
const void *module_open(const Module *m, weft_error *e);
/* The error for a module of another version. */
void module_other(const Module *m, weft_error *e);

#endif
