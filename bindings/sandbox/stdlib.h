/* stdlib.h - the Lua files of stdlib/, compiled into the program. */
#ifndef WEFT_STDLIB_H
#define WEFT_STDLIB_H

#include <stddef.h>

typedef struct StdlibFile {
  const char *name; /* "models/llama" */
  const char *text;
  size_t n;
} StdlibFile;
extern const StdlibFile stdlib_files[]; /* ends with a NULL name */
/* The file of that name, or NULL. */
const StdlibFile *stdlib_find(const char *name);

#endif
