/* module.h - finds the shared objects that are opened only when they are asked for. */
#ifndef WEFT_MODULE_H
#define WEFT_MODULE_H

#include "base.h"

/* The path of module `file` ("weft_mpi.so"): beside the program, beside the library that
 * holds this code, in the folder weft beside that library, or where an installed program
 * has its modules. Else false, and `path` is `file` itself: the system's places are left
 * to dlopen. */
bool module_find(const char *file, char *path, size_t size);

#endif
