/* repl_input.h - lines from the terminal and the history file. */
#ifndef WEFT_REPL_INPUT_H
#define WEFT_REPL_INPUT_H

#include "edit.h"
#include "vm/base/base.h"

typedef struct Input Input;

/* Reads from stdin, which must be a terminal. `host` completes names and must outlive it;
 * `interrupted` is set by SIGINT. Without an editor (TERM=dumb, or a missing module,
 * which is reported on stderr) lines are read in the terminal's line mode. */
Input *input_open(Arena *a, const EditHost *host, StopFlag *interrupted);
void input_close(Input *in); /* NULL is allowed */
EditResult input_read(Input *in, const char *prompt, const char **line);
/* Adds a complete chunk to the history and its file. */
void input_remember(Input *in, const char *chunk);

/* ---- repl_history.c ---- */

/* $WEFT_HISTORY, else weft/history in the XDG state directory; NULL if it is off (empty,
 * /dev/null) or there is no home directory. */
const char *history_path(Arena *a);
/* Calls fn for each entry of the file, oldest first; shortens a long file. A missing file
 * is an empty history. */
weft_status history_load(Arena *a, const char *path,
                         void (*fn)(void *ud, const char *entry), void *ud,
                         weft_error *e);
/* Appends an entry; creates the file, readable by its owner only, and its folder. */
weft_status history_append(Arena *a, const char *path, const char *entry, weft_error *e);

#endif
