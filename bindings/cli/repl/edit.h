/* edit.h - the interface of weft_edit.so, the line editor of the prompt. It is a shared
 * object of its own, so that verbs that do not edit do not load libedit. */
#ifndef WEFT_EDIT_H
#define WEFT_EDIT_H

#include <stdio.h>

/* Completions at the cursor. Each replaces line[from .. cursor), with whose bytes it
 * begins. */
typedef struct EditMatches {
  int from, n;
  const char *const *text;
  const char *suffix; /* appended if there is only one match */
} EditMatches;

typedef struct EditHost {
  void *ud;
  /* The strings live until the next call. */
  void (*complete)(void *ud, const char *line, int cursor, EditMatches *m);
  /* Called when a line begins: from here to its end Ctrl-C is a key and no signal. */
  void (*line_begins)(void *ud);
} EditHost;

typedef enum {
  EDIT_LINE,
  EDIT_END,    /* Ctrl-D on an empty line, or the terminal was closed */
  EDIT_CLEARED /* Ctrl-C: the line is dropped */
} EditResult;

typedef struct Editor Editor;

typedef struct EditApi {
  int version; /* 2 */
  /* Opens an editor on the terminal of `in` and `out`; NULL without memory or a terminal.
   * `host` must outlive it. */
  Editor *(*open)(const EditHost *host, FILE *in, FILE *out);
  void (*close)(Editor *e);
  /* Reads a line; it has no newline and lives until the next call. In the prompt, \1
   * encloses bytes that take no room on the screen. */
  EditResult (*read)(Editor *e, const char *prompt, const char **line);
  /* Adds an entry to the history of the up key. */
  void (*remember)(Editor *e, const char *entry);
} EditApi;

#endif
