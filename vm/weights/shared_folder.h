/* shared_folder.h - whether all processes of a run see one folder: what they write
 * together appears in it at the end, which may be days later. */
#ifndef WEFT_SHARED_FOLDER_H
#define WEFT_SHARED_FOLDER_H

#include "vm/io/dir.h"
#include "vm/run/run.h"

/* All processes call it. The first one makes an empty folder in `in`, with a temporary
 * name of `stem`, and removes it when the others have looked for it. WEFT_EUSAGE on all
 * of them if one does not find it; `path` is what the user calls it. `in` may be closed:
 * that process does not look, and nobody does if it is the first one. *shared: they have
 * looked, and found it. */
weft_status run_shares_folder(Run *r, const Dir *in, const char *stem, const char *path,
                              bool *shared, weft_error *e);

#endif
