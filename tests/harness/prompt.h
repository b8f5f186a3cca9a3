/* prompt.h - weft's interactive prompt on a terminal. Uses scratch.h. */
#ifndef WEFT_TESTS_PROMPT_H
#define WEFT_TESTS_PROMPT_H

#include "terminal.h"

/* terminal_start, and waits for the first prompt. */
Terminal *prompt_start(const char *command);
/* The same of weft repl, without colours; `file`: "" or a plan in the scratch folder. */
Terminal *prompt_repl(const char *file);
/* Enters a line; returns the output before the next prompt. */
const char *prompt_answer(Terminal *t, const char *line);
/* The same; fails the test unless the output is `want`. */
void prompt_says(Terminal *t, const char *line, const char *want);
/* Or unless `part` is in it. */
void prompt_tells(Terminal *t, const char *line, const char *part);
/* Sends Ctrl-D; fails the test unless the program ends well. */
void prompt_leave(Terminal *t);
/* Writes a plan with microbatches of this size; 0 is an error. */
void prompt_plan(const char *name, int micro);

#endif
