/* dir.h - open folders that weft writes to.
 *
 * A path is resolved once, when its folder is opened. From then on a file is a descriptor
 * and a name, so a folder that is replaced by a link meanwhile has no effect. Links on
 * the way to a folder that the user names are followed; below it they are not: a link in
 * place of a file or folder to be written is an error. Only regular files whose names
 * weft makes are removed, and folders with nothing else in them.
 *
 * All code that writes, renames or removes files is in dir.c and file_write.c; the rest
 * of weft calls these. */
#ifndef WEFT_IO_DIR_H
#define WEFT_IO_DIR_H

#include "vm/base/base.h"

typedef struct Dir {
  int fd;     /* -1: closed */
  char *path; /* for messages */
} Dir;
#define DIR_CLOSED ((Dir){.fd = -1})

/* ---- opening ---- after an error *out is closed */

/* A folder that the user names: links are followed. `make`: mode of folders to create on
 * the way; 0: it must exist. */
weft_status dir_open(const char *path, unsigned make, Dir *out, weft_error *e);
/* The folder of a path that the user names, and the name in it, a part of `path`. `what`
 * begins the error: "cannot be written". */
weft_status dir_above(const char *path, const char *what, Dir *out, const char **name,
                      weft_error *e);
/* A folder below one: "runs/first". WEFT_EUSAGE if the path contains ".." or a link. */
weft_status dir_below(const Dir *in, const char *way, unsigned make, Dir *out,
                      weft_error *e);
/* True if the path contains "..". */
bool dir_climbs(const char *way);
/* Creates a folder; false and errno if the name exists. */
bool dir_make(const Dir *in, const char *name, Dir *out);
void dir_close(Dir *d);

/* ---- looking ---- */

typedef enum { ENTRY_NONE, ENTRY_FILE, ENTRY_FOLDER, ENTRY_LINK, ENTRY_OTHER } EntryKind;
/* The type of the entry itself, links not followed. */
EntryKind dir_entry(const Dir *in, const char *name);
/* Calls fn for every name but "." and ".." until it returns false. */
weft_status dir_each(const Dir *d, bool (*fn)(void *ud, const char *name), void *ud,
                     weft_error *e);
/* True if the name still refers to this folder. */
bool dir_has(const Dir *in, const char *name, const Dir *d);
/* True if entries can be created; else errno: permissions, or read-only. */
bool dir_writable(const Dir *d);
/* True if its links are the system's: /dev/stdout, /proc/self/fd/3. */
bool dir_is_system(const Dir *d);

/* ---- errors ---- */

/* "IN/NAME: cannot be written: WHY", where WHY is of errno `why`; 0: none. WEFT_EUSAGE if
 * the entry is a link. Without a name it is about the folder itself. */
weft_status dir_fails(const Dir *in, const char *name, const char *what, int why,
                      weft_error *e);

/* ---- temporary names ---- */

/* "NAME.1234-0.tmp": pid and the i-th try. */
void dir_temporary(Text *out, const char *name, int i);
/* The length of NAME in such a name; else 0. */
size_t dir_temporary_of(const char *name);

/* ---- renaming and removing ---- */

/* Replaces a file or an empty folder. False and errno. */
bool dir_rename(const Dir *in, const char *from, const char *to);
/* The same of a file, where nothing is replaced: EEXIST. */
bool dir_rename_new(const Dir *in, const char *from, const char *to);
/* Swaps the names of two folders. False and errno, of which dir_cannot is true where the
 * file system cannot, such as NFS. */
bool dir_exchange(const Dir *in, const char *a, const char *b);
bool dir_cannot(int why);
/* Removes a regular file, nothing else. False and errno. */
bool dir_remove_file(const Dir *in, const char *name);
/* True if weft creates files of this name in folders of this kind. */
typedef bool DirOwns(const char *name);
/* WEFT_EFILE if the folder has an entry that is not a regular file of such a name, or of
 * a temporary name for it. */
weft_status dir_check_own(const Dir *d, DirOwns *owns, weft_error *e);
/* Removes a folder and its files. WEFT_EFILE, and nothing is removed, if it is not a
 * folder or has other entries. */
weft_status dir_remove(const Dir *in, const char *name, DirOwns *owns, weft_error *e);
/* Makes renames and removals durable. Ignores file systems that cannot. */
void dir_sync(const Dir *d);

#endif
