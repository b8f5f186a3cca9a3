/* edit.h - the interface of weft_edit.so, the line editor of the prompt. It is a shared
 * object of its own, so that verbs that do not edit do not load libedit. */
#ifndef WEFT_EDIT_H
#define WEFT_EDIT_H

#include <stdio.h>

/* What may stand at the cursor. Each text replaces line[from .. cursor), whose bytes it
 * begins with. */
typedef struct EditMatches {
  int from, n;
  const char *const *text;
  const char *suffix; /* follows the match if there is only one */
} EditMatches;

typedef struct EditHost {
  void *ud;
  /* The texts live until the next call. */
  void (*complete)(void *ud, const char *line, int cursor, EditMatches *m);
} EditHost;

typedef enum {
  EDIT_LINE,
  EDIT_END,    /* Ctrl-D on an empty line, or the terminal is gone */
  EDIT_CLEARED /* Ctrl-C: the line is dropped */
} EditResult;

typedef struct Editor Editor;

typedef struct EditApi {
  int version; /* 1 */
  /* On the terminal of `in` and `out`. The host must outlive it; NULL if there is no
   * memory or no terminal. */
  Editor *(*open)(const EditHost *host, FILE *in, FILE *out);
  void (*close)(Editor *e);
  /* The line, without its newline, lives until the next call. In the prompt, \1 stands
   * before and after bytes that take no room on the screen. */
  EditResult (*read)(Editor *e, const char *prompt, const char **line);
  /* Adds an entry to what the up key brings back. */
  void (*remember)(Editor *e, const char *entry);
} EditApi;

#endif
