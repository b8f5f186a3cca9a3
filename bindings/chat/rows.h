/* rows.h - the rows of a data set, one at a time: JSON lines, or one JSON list. */
#ifndef WEFT_CHAT_ROWS_H
#define WEFT_CHAT_ROWS_H

#include <jansson.h>

#include "vm/base/base.h"

enum { ROW_MAX = 16 << 20 }; /* bytes of one */

typedef struct Rows Rows;
/* `path` is borrowed; "-" is the standard input. Files that hold no JSON are refused with
 * the command that makes JSON of them. */
weft_status chat_rows_open(const char *path, Rows **out, weft_error *e);
/* The next row and its line; NULL at the end. Errors name the file and the line. */
weft_status chat_rows_next(Rows *r, json_t **row, int *line, weft_error *e);
const char *chat_rows_path(const Rows *r); /* for messages */
void chat_rows_close(Rows *r);

#endif
