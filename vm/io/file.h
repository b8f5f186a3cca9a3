/* file.h - regular files read and written at places of one's choice; shared by token data
 * and safetensors. Nothing is mapped: a file that is cut short meanwhile is an error with
 * its name, not the end of the process. */
#ifndef WEFT_IO_FILE_H
#define WEFT_IO_FILE_H

#include "dir.h"

typedef struct File {
  const char *path; /* borrowed */
  int fd;           /* -1: opened for each read */
  uint64_t size;    /* when it was opened first */
  int64_t modified; /* ... in ns */
} File;
weft_status file_open(const char *path, File *out, weft_error *e);
/* The one of the path's last name in a folder that is held: no link is followed. */
weft_status file_open_in(const Dir *in, const char *path, File *out, weft_error *e);
/* Exactly the bytes [at, at + n), which were there when it was opened; a file that was
 * changed since then is an error. Thread-safe. */
weft_status file_at(const File *f, uint64_t at, void *to, size_t n, weft_error *e);
/* Gives the descriptor back; the file can still be read. */
void file_park(File *f);
/* Of a file with many beside it: this one, number `i` of them, is parked unless it is one
 * of the first. A process may have few descriptors. */
void file_keep_few(File *f, int i);
void file_close(File *f); /* also of a zeroed struct whose path is NULL */

/* ---- file_write.c ---- files that are written in the folder `in`, under a name there;
 * without one the name is a path that the user gives, see dir.h */

/* A file that is written at places of one's choice, by threads and processes together.
 * Its bytes lie in a temporary file beside the target until all is there. */
typedef struct FileOut {
  const Dir *in; /* NULL: `own` */
  Dir own;
  const char *name; /* borrowed, as `in` */
  Text temporary;   /* name of the temporary file */
  int fd;
  bool first; /* made it, and so renames or removes it */
  bool plain; /* a device or a pipe, which takes bytes in their order */
} FileOut;
/* Takes space for `size` bytes, which are zero. */
weft_status file_create(const Dir *in, const char *name, uint64_t size, FileOut *out,
                        weft_error *e);
/* For bytes that come in their order: also a device or a pipe. */
weft_status file_stream(const Dir *in, const char *name, FileOut *out, weft_error *e);
/* The same file, which another process has created under this temporary name. */
weft_status file_join(const Dir *in, const char *name, const char *temporary,
                      FileOut *out, weft_error *e);
/* Thread-safe. */
weft_status file_put(const FileOut *f, uint64_t at, const void *data, size_t n,
                     weft_error *e);
/* Syncs; who has created the file then renames it over the target. All that joined it
 * have finished before. After an error the target is what it was and the temporary file
 * is gone; either way `f` is closed. */
weft_status file_finish(FileOut *f, weft_error *e);
/* Gives up: closes, and removes the temporary file if this one created it. */
void file_drop(FileOut *f);

/* A whole regular file of at most so many bytes, NUL-terminated; freed with
 * mem_free(a, *s, *n + 1). */
enum {
  FILE_CODE_MAX = 16 << 20, /* Lua code and small tables that a plan reads */
  FILE_OWN_MAX = 1 << 30    /* what the user names on the command line */
};
weft_status file_read(const weft_alloc *a, const char *path, size_t most, char **s,
                      size_t *n, weft_error *e);

/* A whole file of these parts. */
typedef struct FilePart {
  const void *data;
  size_t bytes;
} FilePart;
weft_status file_write(const Dir *in, const char *name, const FilePart *part, int n,
                       weft_error *e);
/* The same with the mode that it is to have; `only_new`: nothing may be there yet. */
weft_status file_write_as(const Dir *in, const char *name, const FilePart *part, int n,
                          unsigned mode, bool only_new, weft_error *e);

/* A file that grows at its end while others read it. */
typedef struct FileEnd {
  char *path; /* as messages have it */
  int fd;     /* -1: closed */
  bool empty; /* it had nothing when it was opened, or is none that has a size */
} FileEnd;
/* Opens it, or makes it; `only_new`: it must not be there. */
weft_status file_extend(const Dir *in, const char *name, unsigned mode, bool only_new,
                        FileEnd *out, weft_error *e);
/* Takes the rights of all but those in `mode`, if it is a file. */
void file_mode(const FileEnd *f, unsigned mode);
/* With one write, so that texts of several writers do not mix. */
weft_status file_add(const FileEnd *f, const void *data, size_t n, weft_error *e);
/* The last byte; 0 if there is none. */
char file_last(const FileEnd *f);
void file_end(FileEnd *f); /* closes */

/* ---- folder_write.c ---- */
/* A folder that appears with all its files or not at all. They are written into a
 * temporary folder beside it. */
typedef struct FolderOut {
  Dir in;         /* has it */
  char *name;     /* of the folder that there will be */
  Dir dir;        /* the temporary one */
  Text temporary; /* its name */
  DirOwns *owns;  /* which files it may have */
  bool first;     /* made it */
} FolderOut;
/* Whether there is nothing, or an empty folder, which a rename replaces. */
weft_status folder_free(const char *path, weft_error *e);
/* As for files, without a folder `in` the name is a path. */
weft_status folder_create(const Dir *in, const char *name, DirOwns *owns, FolderOut *out,
                          weft_error *e);
/* The same folder, which another process has created under this temporary name. */
weft_status folder_join(const Dir *in, const char *name, const char *temporary,
                        FolderOut *out, weft_error *e);
/* Who has created it renames it. Closes `f` also after an error, when all is gone. */
weft_status folder_finish(FolderOut *f, weft_error *e);
/* Gives up: closes, and removes files and folder if this one created it. */
void folder_drop(FolderOut *f);

/* What a file that is opened by a plan must be below, symlinks resolved: the plan's
 * folder or one of those that the user named. */
typedef struct Folders {
  const char *plan; /* "" or NULL: the working folder */
  const char *const *more;
  int nmore;
} Folders;
/* The path of a name: relative ones are looked for in the plan's folder, then in the
 * others; what is nowhere has the plan's. */
const char *folders_find(const Folders *f, Arena *a, const char *name);
weft_status folders_hold(const Folders *f, const char *path, weft_error *e);
/* A folder that a plan writes to lies below the plan's: its path, which begins with
 * `plan`, or NULL if it leads out. Links on the way are dir_below's business. */
const char *folders_below(Arena *a, const char *plan, const char *name);

#endif
