/* file.h - regular files read at places of one's choice; shared by token data and
 * safetensors. Nothing is mapped: a file that is cut short meanwhile is an error with its
 * name, not the end of the process. */
#ifndef WEFT_IO_FILE_H
#define WEFT_IO_FILE_H

#include "vm/base/base.h"

typedef struct File {
  const char *path;      /* borrowed */
  int fd;                /* -1: opened for each read */
  uint64_t size;         /* when it was opened first */
} File;
weft_status file_open(const char *path, File *out, weft_error *e);
/* Exactly the bytes [at, at + n), which were there when it was opened. Thread-safe. */
weft_status file_at(const File *f, uint64_t at, void *to, size_t n, weft_error *e);
/* Gives the descriptor back; the file can still be read. */
void file_park(File *f);
/* Of a file with many beside it: this one, number `i` of them, is parked unless it is one
 * of the first. A process may have few descriptors. */
void file_keep_few(File *f, int i);
void file_close(File *f); /* also of a zeroed struct whose path is NULL */

/* What a file that is opened by a plan must be below, symlinks resolved: the plan's
 * folder or one of those that the user named. */
typedef struct Folders {
  const char *plan;                  /* "" or NULL: the working folder */
  const char *const *more; int nmore;
} Folders;
/* The path of a name: relative ones are looked for in the plan's folder, then in the
 * others; what is nowhere has the plan's. */
const char *folders_find(const Folders *f, Arena *a, const char *name);
weft_status folders_hold(const Folders *f, const char *path, weft_error *e);

#endif
