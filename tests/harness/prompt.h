/* prompt.h - the prompt of weft on a terminal. Uses scratch.h. */
#ifndef WEFT_TESTS_PROMPT_H
#define WEFT_TESTS_PROMPT_H

#include "terminal.h"

/* terminal_start, and the first prompt is there. */
Terminal *prompt_start(const char *command);
/* Enters a line; what was printed before the next prompt. */
const char *prompt_answer(Terminal *t, const char *line);
/* The same; the test fails unless that is `want`. */
void prompt_says(Terminal *t, const char *line, const char *want);
/* Ctrl-D; the exit code. */
int prompt_leave(Terminal *t);
/* Writes a plan with microbatches of this size; 0 of them are an error. */
void prompt_plan(const char *name, int micro);

#endif
