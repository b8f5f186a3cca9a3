/* terminal.h - runs a program on a pseudo-terminal and keeps the screen that its user
 * would see. Uses the folder and the arena of scratch.h. */
#ifndef WEFT_TESTS_TERMINAL_H
#define WEFT_TESTS_TERMINAL_H

#include <stdio.h>
#include <sys/types.h>

#include "scratch.h"

enum { TERMINAL_COLUMNS = 120, TERMINAL_ROWS = 600 };

typedef struct Terminal {
  pid_t pid;
  int fd;
  int row, column;
  char cell[TERMINAL_ROWS][TERMINAL_COLUMNS][5]; /* UTF-8, "" where nothing was written */
  char pending[64]; /* an incomplete escape sequence or character */
  int npending;
  int colours; /* number of colour changes so far */
  bool ended;
} Terminal;

/* Runs `sh -c "exec COMMAND"` in the source folder, where $weft is the built program; its
 * history file is in the scratch folder. */
Terminal *terminal_start(const char *command);
/* Sends keys unchanged. */
void terminal_type(Terminal *t, const char *keys);
/* Waits until the cursor's row equals `text` and is below `row`, or (NULL) the program
 * has ended. Fails the test after some seconds. */
void terminal_wait_row(Terminal *t, int row, const char *text);
/* Waits until `text` appears anywhere on the screen. */
void terminal_wait(Terminal *t, const char *text);
/* Waits until it appears on the cursor's row, which may be one that is overwritten. */
void terminal_wait_here(Terminal *t, const char *text);
/* Waits until the line editor has given the terminal back, so that Ctrl-C is a signal. */
void terminal_wait_signals(Terminal *t);
/* The same, and until the program computes. */
void terminal_wait_busy(Terminal *t);
/* Types a line, waits for its echo, presses enter and waits for the prompt `then`. */
void terminal_enter(Terminal *t, const char *line, const char *then);
/* Rows from..to of the screen without blanks at their ends, in the scratch arena. */
const char *terminal_rows(const Terminal *t, int from, int to);
const char *terminal_row(const Terminal *t, int row);
/* Waits for the program to end; returns its exit code, 128 + n for signal n. */
int terminal_end(Terminal *t);

#endif
