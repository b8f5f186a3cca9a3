/* terminal_row.h - a row of a terminal that is overwritten, as progress is shown. */
#ifndef WEFT_TERMINAL_ROW_H
#define WEFT_TERMINAL_ROW_H

#include <stdio.h>

/* Columns of a terminal; 80 of anything else. */
int terminal_columns(FILE *f);
/* Writes the first characters of `line` over the row where the cursor is, as many as stay
 * on it: the next call could not reach what had wrapped. */
void terminal_overwrite(FILE *f, const char *line);

#endif
