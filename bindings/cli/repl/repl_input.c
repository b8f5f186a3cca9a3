/* repl_input.c - reads lines of input, through the line editor where there is one. */
#include "repl_input.h"

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

#include "bindings/cli/cli.h"
#include "vm/base/module.h"

#define MODULE "weft_edit.so"

struct Input {
  Arena *arena;
  StopFlag *interrupted;
  const EditApi *api; /* NULL: no editor */
  Editor *editor;
  const char *history; /* path; NULL: no history file */
  char *last;          /* the last entry */
  char *line;          /* buffer of getline */
  size_t cap;
  bool complained;
};

/* The module is never closed; it takes a few pages until the program ends. */
static const EditApi *edit_api(void) {
  char path[4096];
  module_find(MODULE, path, sizeof path);
  void *so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!so) {
    const char *why = dlerror();
    report_error("no line editing and no completion: %s (Debian: libedit2)",
                 why ? why : MODULE);
    return NULL;
  }
  const EditApi *api = dlsym(so, "weft_edit_api");
  if (api && api->version == 2) return api;
  report_error("no line editing and no completion: %s belongs to another version of weft",
               path);
  return NULL;
}

/* ---- history ---- */

static void bring_back(void *ud, const char *entry) {
  Input *in = ud;
  if (in->api) in->api->remember(in->editor, entry);
}

/* An error of the history file is reported once; the prompt works without it. */
static void check_history(Input *in, weft_status st, const weft_error *e) {
  if (st == WEFT_OK || in->complained) return;
  in->complained = true;
  report_error("the history is not kept: %s%s%s", e->file, *e->file ? ": " : "", e->text);
}

void input_remember(Input *in, const char *chunk) {
  if (str_eq(in->last, chunk)) return;
  in->last = arena_str(in->arena, chunk);
  if (in->api) in->api->remember(in->editor, chunk);
  weft_error e = NO_ERROR;
  if (in->history)
    check_history(in, history_append(in->arena, in->history, chunk, &e), &e);
}

/* ---- life ---- */

Input *input_open(Arena *a, const EditHost *host, StopFlag *interrupted) {
  Input *in = NEW(a, Input);
  const char *term = getenv("TERM");
  in->arena = a;
  in->interrupted = interrupted;
  in->history = history_path(a);
  if (term && *term && strcmp(term, "dumb") != 0) in->api = edit_api();
  if (in->api) in->editor = in->api->open(host, stdin, stdout);
  if (!in->editor) in->api = NULL;
  weft_error e = NO_ERROR;
  if (in->history)
    check_history(in, history_load(a, in->history, bring_back, in, &e), &e);
  return in;
}

void input_close(Input *in) {
  if (!in) return;
  if (in->api) in->api->close(in->editor);
  free(in->line);
}

/* ---- lines ---- */

/* Prints the prompt without the marks around invisible bytes. */
static void show_prompt(const char *prompt) {
  for (const char *p = prompt; *p; p++)
    if (*p != '\1') fputc(*p, stdout);
  fflush(stdout);
}

/* Waits for a line or Ctrl-C; the signal is blocked at all other times. */
static bool wait_for_line(Input *in) {
  struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
  sigset_t interrupt, before;
  sigemptyset(&interrupt);
  sigaddset(&interrupt, SIGINT);
  sigprocmask(SIG_BLOCK, &interrupt, &before);
  while (!*in->interrupted && ppoll(&p, 1, NULL, &before) < 0 && errno == EINTR)
    ;
  sigprocmask(SIG_SETMASK, &before, NULL);
  return !*in->interrupted;
}

static EditResult read_plainly(Input *in, const char *prompt, const char **line) {
  show_prompt(prompt);
  if (!wait_for_line(in)) {
    fputc('\n', stdout);
    return EDIT_CLEARED;
  }
  ssize_t n = getline(&in->line, &in->cap, stdin);
  if (n < 0) {
    fputc('\n', stdout);
    return EDIT_END;
  }
  while (n && (in->line[n - 1] == '\n' || in->line[n - 1] == '\r')) in->line[--n] = 0;
  *line = in->line;
  return EDIT_LINE;
}

EditResult input_read(Input *in, const char *prompt, const char **line) {
  fflush(stdout);
  return in->api ? in->api->read(in->editor, prompt, line)
                 : read_plainly(in, prompt, line);
}
