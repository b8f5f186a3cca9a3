/* terminal.c - see terminal.h: a pseudo-terminal and the part of a VT100 that libedit and
 * the prompt use. */
#include "terminal.h"

#include "process.h"

#include <check.h>
#include <errno.h>
#include <poll.h>
#include <pty.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { PATIENCE = 180 };
#else
enum { PATIENCE = 60 };
#endif

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- the screen ---- */

static void down(Terminal *t) {
  t->row++;
  ck_assert_msg(t->row < TERMINAL_ROWS, "the screen is full");
}

static void put(Terminal *t, const char *s, int n) {
  if (t->column == TERMINAL_COLUMNS) {
    t->column = 0;
    down(t);
  }
  memset(t->cell[t->row][t->column], 0, 5);
  memcpy(t->cell[t->row][t->column++], s, (size_t)n);
}

static void erase(Terminal *t, int row, int from) {
  memset(t->cell[row][from], 0,
         sizeof t->cell[row][0] * (size_t)(TERMINAL_COLUMNS - from));
}

static void insert_cells(Terminal *t, int n) {
  int moved = TERMINAL_COLUMNS - t->column - n;
  char(*at)[5] = &t->cell[t->row][t->column];
  memmove(at + n, at, (size_t)moved * 5);
  memset(at, 0, (size_t)n * 5);
}

static void delete_cells(Terminal *t, int n) {
  int moved = TERMINAL_COLUMNS - t->column - n;
  char(*at)[5] = &t->cell[t->row][t->column];
  memmove(at, at + n, (size_t)moved * 5);
  erase(t, t->row, TERMINAL_COLUMNS - n);
}

/* ESC [ numbers letter; false if it is not supported. */
static bool control(Terminal *t, const char *numbers, char letter) {
  int first = atoi(numbers), n = MAX(first, 1);
  switch (letter) {
  case 'm': t->colours++; return true;
  case 'A': t->row = MAX(t->row - n, 0); return true;
  case 'B': t->row = MIN(t->row + n, TERMINAL_ROWS - 1); return true;
  case 'C': t->column = MIN(t->column + n, TERMINAL_COLUMNS - 1); return true;
  case 'D': t->column = MAX(t->column - n, 0); return true;
  case 'G': t->column = n - 1; return true;
  case 'K':
    if (first == 0) erase(t, t->row, t->column);
    return first == 0;
  case 'J':
    erase(t, t->row, t->column);
    for (int r = t->row + 1; r < TERMINAL_ROWS; r++) erase(t, r, 0);
    return first == 0;
  case '@': insert_cells(t, n); return true;
  case 'P': delete_cells(t, n); return true;
  case 'h':
  case 'l': return true; /* modes */
  }
  return false;
}

static int utf8_length(unsigned char c) {
  return c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
}

/* True if the pending bytes were complete, and have been shown. */
static bool whole(Terminal *t) {
  const char *p = t->pending;
  int n = t->npending;
  if (*p == '\033') {
    if (n < 2) return false;
    if (p[1] != '[') return n == 3 || !strchr("()", p[1]); /* character sets, modes */
    if (n < 3 || !(p[n - 1] >= '@' && p[n - 1] <= '~')) return false;
    ck_assert_msg(control(t, p + 2, p[n - 1]), "unknown sequence ESC%.*s", n - 1, p + 1);
    return true;
  }
  if (n < utf8_length((unsigned char)*p)) return false;
  put(t, p, n);
  return true;
}

static void show(Terminal *t, char c) {
  if (!t->npending && c == '\r') {
    t->column = 0;
  } else if (!t->npending && c == '\n') {
    down(t);
  } else if (!t->npending && c == '\b') {
    t->column = MAX(t->column - 1, 0);
  } else if (!t->npending && c == '\t') {
    t->column = MIN((t->column | 7) + 1, TERMINAL_COLUMNS - 1);
  } else if (t->npending || (unsigned char)c >= ' ' || c == '\033') {
    ck_assert_int_lt(t->npending, (int)sizeof t->pending - 1);
    t->pending[t->npending++] = c;
    t->pending[t->npending] = 0;
    if (whole(t)) t->npending = 0;
  }
}

const char *terminal_row(const Terminal *t, int row) {
  char text[TERMINAL_COLUMNS * 4 + 1], *p = text;
  for (int i = 0; i < TERMINAL_COLUMNS; i++)
    p = stpcpy(p, *t->cell[row][i] ? t->cell[row][i] : " ");
  while (p > text && p[-1] == ' ') p--;
  return arena_strn(scratch_arena, text, (size_t)(p - text));
}

const char *terminal_rows(const Terminal *t, int from, int to) {
  Text all = {0};
  for (int i = from; i <= to; i++) {
    text_add(&all, terminal_row(t, i));
    text_add(&all, "\n");
  }
  const char *s = arena_str(scratch_arena, all.s ? all.s : "");
  text_free(&all);
  return s;
}

/* ---- the program ---- */

Terminal *terminal_start(const char *command) {
  Terminal *t = NEW(scratch_arena, Terminal);
  struct winsize size = {.ws_row = TERMINAL_ROWS, .ws_col = TERMINAL_COLUMNS};
  fflush(NULL);
  t->pid = forkpty(&t->fd, NULL, NULL, &size);
  ck_assert_int_ge(t->pid, 0);
  if (t->pid) return t;
  const char *history = arena_printf(scratch_arena, "%s/history", scratch_dir);
  if (chdir(WEFT_SOURCE_DIR) || setenv("weft", WEFT_BINARY_DIR "/weft", 1) ||
      setenv("TERM", "xterm", 1) || setenv("WEFT_HISTORY", history, 0) ||
      setenv("HOME", scratch_dir, 1) || unsetenv("NO_COLOR"))
    _exit(127);
  execl("/bin/sh", "sh", "-c", arena_printf(scratch_arena, "exec env %s", command),
        (char *)NULL);
  _exit(127);
}

void terminal_type(Terminal *t, const char *keys) {
  size_t n = strlen(keys);
  ck_assert_int_eq(write(t->fd, keys, n), (ssize_t)n);
}

/* Shows the output of a few milliseconds. Reading fails once the program has ended. */
static void look(Terminal *t) {
  struct pollfd p = {.fd = t->fd, .events = POLLIN};
  char buf[4096];
  if (t->ended || poll(&p, 1, 5) <= 0) return;
  ssize_t n = read(t->fd, buf, sizeof buf);
  if (n <= 0 && errno != EINTR) t->ended = true;
  for (ssize_t i = 0; i < n; i++) show(t, buf[i]);
}

static void give_up(Terminal *t, const char *what) {
  /* The end of a long screen: Check limits the length of messages. */
  const char *screen = terminal_rows(t, 0, t->row);
  size_t n = strlen(screen), most = 3000;
  ck_abort_msg("waited for %s; the screen:\n%s", what,
               screen + (n > most ? n - most : 0));
}

void terminal_wait_row(Terminal *t, int row, const char *text) {
  double end = now() + PATIENCE;
  for (;;) {
    bool there = t->row > row && !t->npending;
    if (text ? there && strcmp(terminal_row(t, t->row), text) == 0 : t->ended) return;
    if (now() > end || (text && t->ended)) give_up(t, text ? text : "the end");
    look(t);
  }
}

void terminal_wait(Terminal *t, const char *text) {
  double end = now() + PATIENCE;
  while (!strstr(terminal_rows(t, 0, t->row), text)) {
    if (now() > end || t->ended) give_up(t, text);
    look(t);
  }
}

void terminal_wait_here(Terminal *t, const char *text) {
  double end = now() + PATIENCE;
  while (t->npending || !strstr(terminal_row(t, t->row), text)) {
    if (now() > end || t->ended) give_up(t, text);
    look(t);
  }
}

void terminal_wait_signals(Terminal *t) {
  double end = now() + PATIENCE;
  struct termios modes;
  for (;;) {
    if (tcgetattr(t->fd, &modes) == 0 && modes.c_lflag & ISIG) return;
    if (now() > end || t->ended) give_up(t, "signals of the terminal");
    look(t);
  }
}

void terminal_wait_busy(Terminal *t) {
  terminal_wait_signals(t);
  double end = now() + PATIENCE;
  for (long from = process_ticks(t->pid); process_ticks(t->pid) < from + 2;) {
    if (now() > end || t->ended) give_up(t, "a program that computes");
    look(t);
  }
}

void terminal_enter(Terminal *t, const char *line, const char *then) {
  int row = t->row;
  const char *before = terminal_row(t, row);
  const char *gap = *before && *line ? " " : "";
  terminal_type(t, line);
  terminal_wait_row(t, row - 1, arena_printf(scratch_arena, "%s%s%s", before, gap, line));
  terminal_type(t, "\n");
  terminal_wait_row(t, row, then);
}

int terminal_end(Terminal *t) {
  int status;
  terminal_wait_row(t, 0, NULL);
  ck_assert_int_eq(waitpid(t->pid, &status, 0), t->pid);
  close(t->fd);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
