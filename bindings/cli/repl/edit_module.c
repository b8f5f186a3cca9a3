/* edit_module.c - weft_edit.so: the prompt's line editor, on libedit. Ctrl-C and Ctrl-Z
 * are keys while a line is edited, so that no signal arrives in the middle of an update.
 */
#include "edit.h"

#include <histedit.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

enum { HISTORY_SIZE = 1000, SHOWN_MATCHES = 200 };

struct Editor {
  EditLine *el;
  History *history;
  const EditHost *host;
  FILE *out;
  const char *prompt;
  char *line;
  bool cleared;
};

static Editor *editor_of(EditLine *el) {
  Editor *e = NULL;
  el_get(el, EL_CLIENTDATA, &e);
  return e;
}

static char *prompt_of(EditLine *el) { return (char *)editor_of(el)->prompt; }

/* ---- keys ---- */

/* Moves the terminal's cursor behind the line by writing the rest of the line again:
 * libedit, which redraws the line afterwards, would otherwise draw it a second time here.
 */
static void pass_line(EditLine *el) {
  const LineInfo *li = el_line(el);
  FILE *out = editor_of(el)->out;
  fwrite(li->cursor, 1, (size_t)(li->lastchar - li->cursor), out);
}

static unsigned char clear_line(EditLine *el, int key) {
  Editor *e = editor_of(el);
  pass_line(el);
  fputs("^C\n", e->out);
  e->cleared = true;
  return CC_NEWLINE;
}

/* Ctrl-D that was typed while code ran, when the terminal was in line mode, arrives as a
 * zero byte. */
static unsigned char end_ahead(EditLine *el, int key) {
  const LineInfo *li = el_line(el);
  return li->lastchar == li->buffer ? CC_EOF : CC_NORM;
}

static unsigned char suspend(EditLine *el, int key) {
  Editor *e = editor_of(el);
  pass_line(el);
  fputs("^Z\n", e->out);
  fflush(e->out);
  el_set(el, EL_PREP_TERM, 0);
  kill(0, SIGTSTP);
  el_set(el, EL_PREP_TERM, 1);
  return CC_REDISPLAY;
}

/* ---- completion ---- */

/* Length of the common prefix of all matches, at a character boundary. */
static size_t common_prefix(const EditMatches *m) {
  size_t n = strlen(m->text[0]);
  for (int i = 1; i < m->n; i++) {
    size_t k = 0;
    while (k < n && m->text[i][k] == m->text[0][k]) k++;
    n = k;
  }
  while (n && ((unsigned char)m->text[0][n] & 0xc0) == 0x80) n--;
  return n;
}

static int screen_width(FILE *out) {
  struct winsize w;
  return ioctl(fileno(out), TIOCGWINSZ, &w) == 0 && w.ws_col > 0 ? w.ws_col : 80;
}

static void list_matches(FILE *out, const EditMatches *m) {
  int n = m->n < SHOWN_MATCHES ? m->n : SHOWN_MATCHES, widest = 0;
  for (int i = 0; i < n; i++)
    if ((int)strlen(m->text[i]) > widest) widest = (int)strlen(m->text[i]);
  int columns = screen_width(out) / (widest + 2);
  if (columns < 1) columns = 1;
  int rows = (n + columns - 1) / columns;
  fputc('\n', out);
  for (int r = 0; r < rows; r++) {
    for (int i = r; i < n; i += rows)
      fprintf(out, "%-*s", i + rows < n ? widest + 2 : 0, m->text[i]);
    fputc('\n', out);
  }
  if (n < m->n) fprintf(out, "... %d more\n", m->n - n);
}

static bool insert(EditLine *el, const char *s, size_t n) {
  char *part = strndup(s, n);
  bool done = part && n && el_insertstr(el, part) == 0;
  free(part);
  return done;
}

static unsigned char complete(EditLine *el, int key) {
  Editor *e = editor_of(el);
  const LineInfo *li = el_line(el);
  int cursor = (int)(li->cursor - li->buffer);
  char *line = strndup(li->buffer, (size_t)(li->lastchar - li->buffer));
  if (!line) return CC_ERROR;
  /* At the start of a line the key indents. */
  if ((int)strspn(line, " \t") >= cursor) {
    free(line);
    return el_insertstr(el, "  ") == 0 ? CC_REFRESH : CC_ERROR;
  }
  EditMatches m = {.from = cursor};
  e->host->complete(e->host->ud, line, cursor, &m);
  free(line);
  if (m.n == 0) return CC_ERROR;
  size_t have = (size_t)(cursor - m.from), common = common_prefix(&m);
  bool grown = common > have && insert(el, m.text[0] + have, common - have);
  if (m.n == 1) {
    if (m.suffix) grown |= insert(el, m.suffix, strlen(m.suffix));
    return CC_REFRESH;
  }
  if (grown) return CC_REFRESH;
  pass_line(el);
  list_matches(e->out, &m);
  return CC_REDISPLAY;
}

/* ---- life ---- */

static void bind_keys(EditLine *el) {
  el_set(el, EL_EDITOR, "emacs");
  el_set(el, EL_ADDFN, "weft-complete", "Completes names", complete);
  el_set(el, EL_ADDFN, "weft-clear", "Drops the line", clear_line);
  el_set(el, EL_ADDFN, "weft-suspend", "Stops the program", suspend);
  el_set(el, EL_ADDFN, "weft-end-ahead", "Ends, typed ahead", end_ahead);
  el_set(el, EL_BIND, "^I", "weft-complete", NULL);
  el_set(el, EL_BIND, "^@", "weft-end-ahead", NULL);
  el_set(el, EL_BIND, "^C", "weft-clear", NULL);
  el_set(el, EL_BIND, "^Z", "weft-suspend", NULL);
  el_set(el, EL_BIND, "^R", "em-inc-search-prev", NULL);
  el_set(el, EL_SETTY, "-d", "-isig", NULL);
}

static void editor_close(Editor *e) {
  if (e->el) el_end(e->el);
  if (e->history) history_end(e->history);
  free(e->line);
  free(e);
}

static Editor *editor_open(const EditHost *host, FILE *in, FILE *out) {
  Editor *e = calloc(1, sizeof *e);
  if (!e) return NULL;
  HistEvent event;
  e->host = host;
  e->out = out;
  e->el = el_init("weft", in, out, stderr);
  e->history = history_init();
  if (!e->el || !e->history) {
    editor_close(e);
    return NULL;
  }
  history(e->history, &event, H_SETSIZE, HISTORY_SIZE);
  history(e->history, &event, H_SETUNIQUE, 1);
  el_set(e->el, EL_CLIENTDATA, e);
  el_set(e->el, EL_PROMPT_ESC, prompt_of, '\1');
  el_set(e->el, EL_HIST, history, e->history);
  el_set(e->el, EL_SIGNAL, 1);
  bind_keys(e->el);
  el_source(e->el, NULL); /* ~/.editrc of the user */
  return e;
}

static EditResult editor_read(Editor *e, const char *prompt, const char **line) {
  int n = 0;
  e->prompt = prompt;
  e->cleared = false;
  /* Before the prompt is shown, so that keys that are already typed are not echoed twice.
   */
  el_set(e->el, EL_PREP_TERM, 1);
  e->host->line_begins(e->host->ud);
  const char *s = el_gets(e->el, &n);
  if (e->cleared) return EDIT_CLEARED;
  if (!s || n <= 0) {
    fputc('\n', e->out);
    return EDIT_END;
  }
  free(e->line);
  size_t len = (size_t)n;
  while (len && (s[len - 1] == '\n' || s[len - 1] == '\r')) len--;
  e->line = strndup(s, len);
  *line = e->line ? e->line : "";
  return EDIT_LINE;
}

static void editor_remember(Editor *e, const char *entry) {
  HistEvent event;
  history(e->history, &event, H_ENTER, entry);
}

__attribute__((visibility("default"))) const EditApi weft_edit_api = {
    .version = 2,
    .open = editor_open,
    .close = editor_close,
    .read = editor_read,
    .remember = editor_remember,
};
