/* rows.h - the rows of a data set, one at a time: JSON lines, or one JSON list. Rows are
 * conversations or texts. */
#ifndef WEFT_CHAT_ROWS_H
#define WEFT_CHAT_ROWS_H

#include <jansson.h>

#include "vm/base/base.h"

typedef struct RowsOf {
  size_t most;      /* bytes of one row */
  const char *what; /* for messages: "a conversation" */
  bool nul;         /* texts may have the character \u0000 */
  bool big;         /* whole numbers may have more than 64 bits: nothing reads them */
  const char *into; /* where a command that makes JSON of a file writes it */
} RowsOf;
extern const RowsOf rows_of_talks, rows_of_texts;

typedef struct Rows Rows;
/* `path` and `of` are borrowed; "-" is the standard input. Files that hold no JSON are
 * refused with the command that makes JSON of them. */
weft_status chat_rows_open(const char *path, const RowsOf *of, Rows **out, weft_error *e);
/* Refuses a file of another kind by its first bytes, as above; other files are good. */
weft_status chat_rows_refuse(const char *path, const RowsOf *of, const char *head,
                             size_t n, weft_error *e);
/* The next row and its line; NULL at the end. Errors name the file and the line. */
weft_status chat_rows_next(Rows *r, json_t **row, int *line, weft_error *e);
const char *chat_rows_path(const Rows *r); /* for messages */
void chat_rows_close(Rows *r);

#endif
