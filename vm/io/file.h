/* file.h - regular files read and written at any offset; shared by token data and
 * safetensors. Nothing is memory-mapped: a file that is truncated meanwhile gives an
 * error with its name, not a SIGBUS. */
#ifndef WEFT_IO_FILE_H
#define WEFT_IO_FILE_H

#include "dir.h"

typedef struct File {
  const char *path; /* borrowed */
  int fd;           /* -1: parked, opened for each read */
  uint64_t size;    /* when it was opened first */
  int64_t modified; /* ... in ns */
} File;
weft_status file_open(const char *path, File *out, weft_error *e);
/* Opens the file with the path's last name in folder `in`; follows no link. */
weft_status file_open_in(const Dir *in, const char *path, File *out, weft_error *e);
/* Reads bytes [at, at + n) exactly. An error if the file has changed. Thread-safe. */
weft_status file_at(const File *f, uint64_t at, void *to, size_t n, weft_error *e);
/* Closes the descriptor; the file can still be read. */
void file_park(File *f);
/* Parks file number `i` unless it is one of the first, to use few descriptors. */
void file_keep_few(File *f, int i);
void file_close(File *f); /* also of a zeroed struct whose path is NULL */

/* ---- file_write.c ---- files written in the folder `in` under a name; if `in` is NULL
 * the name is a path given by the user, see dir.h */

/* A file written at any offset, by several threads and processes. Until it is complete
 * its bytes are in a temporary file beside the target. */
typedef struct FileOut {
  const Dir *in; /* NULL: `own` is the folder */
  Dir own;
  const char *name; /* borrowed, as `in` */
  Text temporary;   /* name of the temporary file */
  int fd;
  bool first;    /* created it, and so renames or removes it */
  bool only_new; /* the target is not replaced */
  bool plain;    /* a device or a pipe, written in order */
} FileOut;
/* Reserves `size` bytes, initially zero. */
weft_status file_create(const Dir *in, const char *name, uint64_t size, FileOut *out,
                        weft_error *e);
/* The name must not exist, neither now nor when the file is finished. */
weft_status file_create_new(const Dir *in, const char *name, FileOut *out, weft_error *e);
/* For bytes written in order; the target may be a device or a pipe. */
weft_status file_stream(const Dir *in, const char *name, FileOut *out, weft_error *e);
/* Opens the temporary file of this name that another process has created. */
weft_status file_join(const Dir *in, const char *name, const char *temporary,
                      FileOut *out, weft_error *e);
/* Thread-safe. */
weft_status file_put(const FileOut *f, uint64_t at, const void *data, size_t n,
                     weft_error *e);
/* Reads what was put, in the process that created the file: also by others, once they
 * have finished. */
weft_status file_again(const FileOut *f, uint64_t at, void *data, size_t n,
                       weft_error *e);
/* Syncs; the process that created the file then renames it over the target, after all
 * joined processes have finished. After an error the target is unchanged and the
 * temporary file is removed. Closes `f` either way. */
weft_status file_finish(FileOut *f, weft_error *e);
/* Closes, and removes the temporary file if this process created it. */
void file_drop(FileOut *f);

/* A whole regular file of at most so many bytes, NUL-terminated; freed with
 * mem_free(a, *s, *n + 1). */
enum {
  FILE_CODE_MAX = 16 << 20, /* Lua code and small tables that a plan reads */
  FILE_OWN_MAX = 1 << 30    /* files that the user names on the command line */
};
weft_status file_read(const weft_alloc *a, const char *path, size_t most, char **s,
                      size_t *n, weft_error *e);

/* A file written as a whole from these parts. */
typedef struct FilePart {
  const void *data;
  size_t bytes;
} FilePart;
weft_status file_write(const Dir *in, const char *name, const FilePart *part, int n,
                       weft_error *e);
/* The same with a text, which is freed. */
weft_status file_write_text(const Dir *in, const char *name, Text *t, weft_error *e);
/* file_write with a file mode; `only_new`: the name must not exist, then or at the end.
 */
weft_status file_write_as(const Dir *in, const char *name, const FilePart *part, int n,
                          unsigned mode, bool only_new, weft_error *e);
/* Removes a file that was finished, because one that belongs to it was not. */
void file_undo(const Dir *in, const char *name);
/* WEFT_OK if file_write, or with only_new file_write_as, would not refuse this name: for
 * a check before work that takes long. What is no file, such as a pipe, is not looked at.
 */
weft_status file_check(const char *name, bool only_new, weft_error *e);

/* A file that is appended to while others read it (a log). */
typedef struct FileEnd {
  char *path; /* for messages */
  int fd;     /* -1: closed */
  bool empty; /* was empty when opened, or has no size */
} FileEnd;
/* Opens or creates it; `only_new`: it must not exist. */
weft_status file_extend(const Dir *in, const char *name, unsigned mode, bool only_new,
                        FileEnd *out, weft_error *e);
/* Removes all permissions but those in `mode`, if it is a regular file. */
void file_mode(const FileEnd *f, unsigned mode);
/* One write, so that lines of several writers do not mix. */
weft_status file_add(const FileEnd *f, const void *data, size_t n, weft_error *e);
weft_status file_add_text(const FileEnd *f, Text *t, weft_error *e); /* and frees it */
/* The last byte; 0 if there is none. */
char file_last(const FileEnd *f);
/* Adds what is behind the last newline to `out`, of a file of so many bytes; false if
 * there is nothing, or more than `most` bytes. */
bool file_tail(const FileEnd *f, size_t most, Text *out, int64_t *size);
/* Removes the last `n` bytes of a regular file that still has `size` of them: another
 * process may have added to it. */
weft_status file_cut(const FileEnd *f, size_t n, int64_t size, weft_error *e);
void file_end(FileEnd *f); /* closes */

/* ---- folder_write.c ---- */
/* A folder that appears with all its files or not at all: written to a temporary folder
 * first. */
typedef struct FolderOut {
  Dir in;         /* parent folder */
  char *name;     /* final name in it */
  Dir dir;        /* the temporary folder */
  Text temporary; /* its name */
  DirOwns *owns;  /* names of files that it may contain */
  bool first;     /* created it */
} FolderOut;
/* WEFT_OK if nothing, or an empty folder, has this path: a rename replaces that. */
weft_status folder_free(const char *path, weft_error *e);
/* The folder in which it would appear, and its name there, freed with free. */
weft_status folder_above(const char *path, Dir *in, char **name, weft_error *e);
/* If `in` is NULL the name is a path, as for files. */
weft_status folder_create(const Dir *in, const char *name, DirOwns *owns, FolderOut *out,
                          weft_error *e);
/* Opens the temporary folder of this name that another process has created. */
weft_status folder_join(const Dir *in, const char *name, const char *temporary,
                        FolderOut *out, weft_error *e);
/* The process that created it renames it. Closes `f`; after an error nothing is left. */
weft_status folder_finish(FolderOut *f, weft_error *e);
/* Closes, and removes the files and the folder if this process created it. */
void folder_drop(FolderOut *f);

/* The folders that files named by a plan must be below, symlinks resolved: the plan's
 * folder and those that the user named. */
typedef struct Folders {
  const char *plan; /* "" or NULL: the current folder */
  const char *const *more;
  int nmore;
} Folders;
/* Resolves a name: a relative one is looked for in the plan's folder, then in the others;
 * if not found, the path in the plan's folder. */
const char *folders_find(const Folders *f, Arena *a, const char *name);
weft_status folders_hold(const Folders *f, const char *path, weft_error *e);
/* The path of a folder that a plan writes to, which begins with `plan`; NULL if it is not
 * below the plan's folder. dir_below checks links on the way. */
const char *folders_below(Arena *a, const char *plan, const char *name);

#endif
