/* safetensors_int.h - an open handle of safetensors files, for the files of
 * safetensors.c. */
#ifndef WEFT_SAFETENSORS_INT_H
#define WEFT_SAFETENSORS_INT_H

#include "vm/io/file.h"
#include "vm/io/io.h"
#include "vm/io/json_text.h"

/* A string in the "__metadata__" of file number `file`. */
struct FileMeta {
  int file;
  const char *key, *value;
};

struct SafeTensors {
  weft_alloc alloc;
  Arena *arena;
  const Folders *within; /* folders that files must be in; NULL: any */
  VEC(File *) files;
  VEC(struct FileMeta) meta;
  VEC(SafeTensor) t; /* sorted by name after st_open */
  char *header_text; /* while a header is read */
  size_t header_bytes;
  struct SafeTensors *joined; /* whose files some tensors are in, or NULL */
  json_t *index, *header;     /* while being read; st_close frees them after an error */
};

#define FAIL(path, ...) return err_file(e, WEFT_EFILE, (path), 0, __VA_ARGS__)

/* ---- st_header.c ---- */
/* Adds the tensors of one file; `path` is in the arena. */
weft_status st_add_file(SafeTensors *s, const char *path, weft_error *e);
void st_free_header(SafeTensors *s);

#endif
