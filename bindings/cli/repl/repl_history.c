/* repl_history.c - the history file: one chunk per line, newlines as \n and backslashes
 * as \\. Each chunk is appended at once, so that two prompts keep each other's entries.
 */
#include "repl_input.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "vm/io/io.h"

enum { HISTORY_KEPT = 1000, HISTORY_MOST = 2000 };

const char *history_path(Arena *a) {
  const char *own = getenv("WEFT_HISTORY");
  if (own) return *own && strcmp(own, "/dev/null") != 0 ? arena_str(a, own) : NULL;
  const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
  if (state && *state == '/') return arena_printf(a, "%s/weft/history", state);
  if (!home || !*home) return NULL;
  return arena_printf(a, "%s/.local/state/weft/history", home);
}

/* ---- entries ---- */

static void encode(const char *entry, Text *out) {
  for (const char *p = entry; *p; p++) {
    if (*p == '\n')
      text_add(out, "\\n");
    else if (*p == '\\')
      text_add(out, "\\\\");
    else
      text_addn(out, p, 1);
  }
  text_add(out, "\n");
}

/* In place. */
static void decode(char *line) {
  char *to = line;
  for (const char *p = line; *p; p++) {
    bool escape = *p == '\\' && p[1];
    if (escape) p++;
    *to++ = escape && *p == 'n' ? '\n' : *p;
  }
  *to = 0;
}

/* ---- reading ---- */

weft_status history_load(Arena *a, const char *path,
                         void (*fn)(void *ud, const char *entry), void *ud,
                         weft_error *e) {
  char *text;
  size_t n;
  struct stat info;
  if (stat(path, &info) != 0 || !S_ISREG(info.st_mode)) return WEFT_OK;
  TRY(file_read(NULL, path, FILE_OWN_MAX, &text, &n, e));
  int lines = 0;
  for (size_t i = 0; i < n; i++) lines += text[i] == '\n';
  char *p = text;
  const char *all = text + n;
  for (int skip = lines - HISTORY_KEPT; skip > 0; skip--)
    p = (char *)memchr(p, '\n', (size_t)(all - p)) + 1;
  weft_status st = WEFT_OK;
  const FilePart last = {p, (size_t)(all - p)};
  if (lines > HISTORY_MOST) st = file_write_as(NULL, path, &last, 1, 0600, false, e);
  for (char *end; (end = memchr(p, '\n', (size_t)(all - p))); p = end + 1) {
    *end = 0;
    decode(p);
    if (*p) fn(ud, p);
  }
  mem_free(NULL, text, n + 1);
  return st;
}

/* ---- writing ---- */

/* New folders are readable by their owner only. */
weft_status history_append(Arena *a, const char *path, const char *entry, weft_error *e) {
  Dir in = DIR_CLOSED;
  FileEnd file;
  const char *slash = strrchr(path, '/');
  if (slash) TRY(dir_open(arena_strn(a, path, (size_t)(slash - path) + 1), 0700, &in, e));
  weft_status st =
      file_extend(slash ? &in : NULL, slash ? slash + 1 : path, 0600, false, &file, e);
  dir_close(&in);
  TRY(st);
  /* What was typed may be private. */
  file_mode(&file, 0600);
  Text line = {0};
  encode(entry, &line);
  st = file_add_text(&file, &line, e);
  file_end(&file);
  return st;
}
