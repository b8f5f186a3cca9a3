/* file.h - files mapped for reading; shared by token data and safetensors. */
#ifndef WEFT_IO_FILE_H
#define WEFT_IO_FILE_H

#include "vm/base/base.h"

/* A whole regular file, read-only. Writing to it elsewhere shows; cutting it short while
 * it is mapped ends the process, as with every mapped file. */
typedef struct FileMap {
  const unsigned char *at;   /* NULL if the file is empty */
  size_t size;
} FileMap;
weft_status file_map(const char *path, FileMap *out, weft_error *e);
void file_unmap(FileMap *m);

#endif
