/* prompt.h - weft's interactive prompt on a terminal. Uses scratch.h. */
#ifndef WEFT_TESTS_PROMPT_H
#define WEFT_TESTS_PROMPT_H

#include "terminal.h"

/* terminal_start, and waits for the first prompt. */
Terminal *prompt_start(const char *command);
/* Enters a line; returns the output before the next prompt. */
const char *prompt_answer(Terminal *t, const char *line);
/* The same; fails the test unless the output is `want`. */
void prompt_says(Terminal *t, const char *line, const char *want);
/* Sends Ctrl-D; returns the exit code. */
int prompt_leave(Terminal *t);
/* Writes a plan with microbatches of this size; 0 is an error. */
void prompt_plan(const char *name, int micro);

#endif
