/* repl_history.c - the history file: one chunk a line, a newline in it written as \n and
 * a backslash as \\. Each chunk is appended at once, so that two prompts that run at the
 * same time keep each other's entries. */
#include "repl_input.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

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

/* Replaces the file by its last entries, at once. */
static weft_status cut(Arena *a, const char *path, const char *from, size_t n,
                       weft_error *e) {
  const char *temp = arena_printf(a, "%s.%ld", path, (long)getpid());
  int fd = open(temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return err_set(e, WEFT_EFILE, "cannot write %s: %s", temp, strerror(errno));
  bool good = write(fd, from, n) == (ssize_t)n;
  good = close(fd) == 0 && good && rename(temp, path) == 0;
  if (good) return WEFT_OK;
  err_set(e, WEFT_EFILE, "cannot write %s: %s", temp, strerror(errno));
  unlink(temp);
  return WEFT_EFILE;
}

weft_status history_load(Arena *a, const char *path,
                         void (*fn)(void *ud, const char *entry), void *ud,
                         weft_error *e) {
  char *text;
  size_t n;
  struct stat info;
  if (stat(path, &info) != 0 || !S_ISREG(info.st_mode)) return WEFT_OK;
  TRY(file_read(NULL, path, FILE_OWN_MAX, &text, &n, e));
  int lines = 0;
  for (size_t i = 0; i < n; i++)
    lines += text[i] == '\n';
  char *p = text;
  const char *all = text + n;
  for (int skip = lines - HISTORY_KEPT; skip > 0; skip--)
    p = (char *)memchr(p, '\n', (size_t)(all - p)) + 1;
  weft_status st = lines > HISTORY_MOST ? cut(a, path, p, (size_t)(all - p), e) : WEFT_OK;
  for (char *end; (end = memchr(p, '\n', (size_t)(all - p))); p = end + 1) {
    *end = 0;
    decode(p);
    if (*p) fn(ud, p);
  }
  mem_free(NULL, text, n + 1);
  return st;
}

/* ---- writing ---- */

/* Makes the folders above the file, for their owner only. */
static void make_folders(Arena *a, const char *path) {
  char *p = arena_str(a, path);
  for (char *slash = p; (slash = strchr(slash + 1, '/'));) {
    *slash = 0;
    mkdir(p, 0700);
    *slash = '/';
  }
}

weft_status history_append(Arena *a, const char *path, const char *entry, weft_error *e) {
  int flags = O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC;
  int fd = open(path, flags, 0600);
  if (fd < 0 && errno == ENOENT) {
    make_folders(a, path);
    fd = open(path, flags, 0600);
  }
  if (fd < 0) return err_set(e, WEFT_EFILE, "cannot write %s: %s", path, strerror(errno));
  struct stat s;
  /* What was typed may be private, whoever made the file. */
  if (fstat(fd, &s) == 0 && S_ISREG(s.st_mode) && s.st_mode & 077) fchmod(fd, 0600);
  Text line = {0};
  encode(entry, &line);
  bool good = !line.oom && write(fd, line.s, line.n) == (ssize_t)line.n;
  int why = errno;
  text_free(&line);
  good = close(fd) == 0 && good;
  return good ? WEFT_OK
              : err_set(e, WEFT_EFILE, "cannot write %s: %s", path, strerror(why));
}
