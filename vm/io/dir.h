/* dir.h - folders that weft writes to, held open.
 *
 * A path is resolved once, when its folder is opened. From then on a file is a handle and
 * a name, so a folder that somebody swaps for a link meanwhile changes nothing. Links on
 * the way to a folder that the user names are followed; below it none is: a link where a
 * file or a folder is to be written is an error. Removed are regular files whose names
 * weft makes, and folders that have nothing else in them.
 *
 * All that writes, renames or removes is in dir.c and file_write.c; the rest of weft
 * calls these. */
#ifndef WEFT_IO_DIR_H
#define WEFT_IO_DIR_H

#include "vm/base/base.h"

typedef struct Dir {
  int fd;     /* -1: closed */
  char *path; /* as messages have it */
} Dir;
#define DIR_CLOSED ((Dir){.fd = -1})

/* ---- opening ---- after an error *out is closed */

/* A folder that the user names: links are followed. `make`: the mode of folders that are
 * made on the way, 0: it must be there. */
weft_status dir_open(const char *path, unsigned make, Dir *out, weft_error *e);
/* The folder of what the user names, and its name there, a part of `path`. `what` begins
 * the error: "cannot be written". */
weft_status dir_above(const char *path, const char *what, Dir *out, const char **name,
                      weft_error *e);
/* A folder below one: "runs/first". WEFT_EUSAGE if ".." or a link is on the way. */
weft_status dir_below(const Dir *in, const char *way, unsigned make, Dir *out,
                      weft_error *e);
/* Whether ".." is in it. */
bool dir_climbs(const char *way);
/* A new folder; false and errno if there is something of this name. */
bool dir_make(const Dir *in, const char *name, Dir *out);
void dir_close(Dir *d);

/* ---- looking ---- */

typedef enum { ENTRY_NONE, ENTRY_FILE, ENTRY_FOLDER, ENTRY_LINK, ENTRY_OTHER } EntryKind;
/* What the name itself is. */
EntryKind dir_entry(const Dir *in, const char *name);
/* Every name but "." and ".."; until `fn` returns false. */
weft_status dir_each(const Dir *d, bool (*fn)(void *ud, const char *name), void *ud,
                     weft_error *e);
/* Whether the name is still that of this folder. */
bool dir_has(const Dir *in, const char *name, const Dir *d);
/* Whether names can be added; else errno says why: no right to, a read-only file system.
 */
bool dir_writable(const Dir *d);
/* Whether links in it are those of the system: /dev/stdout, /proc/self/fd/3. */
bool dir_is_system(const Dir *d);

/* ---- errors ---- */

/* "IN/NAME: cannot be written: WHY", where WHY is errno's; 0: none. WEFT_EUSAGE if what
 * is in the way is a link. Without a name it is about the folder itself. */
weft_status dir_fails(const Dir *in, const char *name, const char *what, int why,
                      weft_error *e);

/* ---- temporary names ---- */

/* "NAME.1234-0.tmp", the i-th of this process. */
void dir_temporary(Text *out, const char *name, int i);
/* How much of a name is NAME, if it is such a one, else 0. */
size_t dir_temporary_of(const char *name);

/* ---- renaming and removing ---- */

/* Replaces what is there: a file, an empty folder. False and errno. */
bool dir_rename(const Dir *in, const char *from, const char *to);
/* Two folders change names. */
bool dir_exchange(const Dir *in, const char *a, const char *b);
/* A regular file; nothing else is removed. False and errno. */
bool dir_remove_file(const Dir *in, const char *name);
/* Whether weft makes files of this name in folders of this kind. */
typedef bool DirOwns(const char *name);
/* WEFT_EFILE if there is something in the folder that is not a regular file of such a
 * name, or of a temporary one for it. */
weft_status dir_check_own(const Dir *d, DirOwns *owns, weft_error *e);
/* Removes a folder and its files. WEFT_EFILE, and everything stays, if it is not a folder
 * or has something else in it. */
weft_status dir_remove(const Dir *in, const char *name, DirOwns *owns, weft_error *e);
/* Makes changes of names last. Not every file system can; that is not an error. */
void dir_sync(const Dir *d);

#endif
