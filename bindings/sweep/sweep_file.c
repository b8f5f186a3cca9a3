/* sweep_file.c - the rows of a sweep as lines of JSON, written in the order of the points
 * as they are done, so that an interrupted sweep can be taken up again. The first line
 * says which sweep it is; a last line that is cut short does not count. */
#include "sweep.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "vm/base/json.h"
#include "vm/io/io.h"

typedef struct SweepFile {
  FILE *f;
  const char *path;
  int64_t written; /* rows [0, written) are in the file */
} SweepFile;

static weft_status failed(const char *path, weft_error *e) {
  return err_file(e, WEFT_EFILE, path, 0, "cannot be written: %s", strerror(errno));
}

/* ---- writing ---- */

static void add_header(const Sweep *s, Text *t) {
  Json j = {.out = t};
  char key[24];
  snprintf(key, sizeof key, "%016llx", (unsigned long long)s->key);
  json_open(&j, NULL, '{');
  json_str(&j, "format_version", "1.0");
  json_str(&j, "key", key);
  json_int(&j, "points", s->grid.points);
  json_close(&j, '}');
  text_add(t, "\n");
}

static const char *const states[] = {
    [POINT_OK] = "ok", [POINT_ILLEGAL] = "illegal", [POINT_MEMORY] = "memory"};

static void add_figures(const Sweep *s, int64_t i, Json *j) {
  const PointRow *r = &s->row[i];
  json_num(j, "bubble", r->bubble);
  json_open(j, "comm_bytes", '{');
  json_num(j, "dp", r->dp_bytes);
  json_num(j, "pp", r->pp);
  json_num(j, "tp", r->tp);
  json_close(j, '}');
  json_int(j, "dp", r->dp);
  json_num(j, "flop", r->flops);
  json_num(j, "flop_again", r->again);
  json_int(j, "microbatches", r->microbatches);
}

static void add_line(const Sweep *s, int64_t i, const PointReason *why, Text *t) {
  const PointRow *r = &s->row[i];
  Json j = {.out = t};
  int choice[64];
  json_open(&j, NULL, '{');
  if (r->state != POINT_ILLEGAL) add_figures(s, i, &j);
  json_int(&j, "n", s->todo[i]);
  if (r->state != POINT_ILLEGAL) json_num(&j, "peak_bytes", r->bytes);
  json_open(&j, "point", '{');
  sweep_grid_choice(&s->grid, s->todo[i], choice);
  for (int k = 0; k < s->grid.n; k++)
    json_str(&j, s->grid.axis[k].path, s->grid.axis[k].text[choice[k]]);
  json_close(&j, '}');
  if (why) {
    json_open(&j, "reason", '{');
    json_str(&j, "code", why->code);
    json_str(&j, "path", why->path);
    json_str(&j, "summary", why->text);
    json_close(&j, '}');
  }
  json_str(&j, "state", states[r->state]);
  if (r->state == POINT_OK && r->seconds > 0) json_num(&j, "step_ms", r->seconds * 1e3);
  if (r->state != POINT_ILLEGAL) json_int(&j, "worst_rank", r->worst);
  json_close(&j, '}');
  text_add(t, "\n");
}

/* Adds rows from f->written on; with `all`, also those behind a gap. */
static void add_lines(const Sweep *s, SweepFile *f, bool all, Text *t) {
  for (int64_t i = f->written; i < s->ntodo; i++) {
    if (s->ready[i])
      add_line(s, i, s->why[i], t);
    else if (!all)
      return;
    f->written = i + 1;
  }
}

static weft_status put_text(const SweepFile *f, Text *t, weft_error *e) {
  bool ok =
      !t->oom && (!t->n || fwrite(t->s, 1, t->n, f->f) == t->n) && fflush(f->f) == 0;
  text_free(t);
  return ok ? WEFT_OK : failed(f->path, e);
}

weft_status sweep_file_add(Sweep *s, weft_error *e) {
  Text t = {0};
  if (!s->file) return WEFT_OK;
  add_lines(s, s->file, false, &t);
  return put_text(s->file, &t, e);
}

weft_status sweep_file_close(Sweep *s, weft_error *e) {
  SweepFile *f = s->file;
  s->file = NULL;
  if (!f || !f->f) return WEFT_OK;
  Text t = {0};
  add_lines(s, f, true, &t);
  weft_status st = put_text(f, &t, e);
  if (fclose(f->f) != 0 && st == WEFT_OK) st = failed(f->path, e);
  return st;
}

/* ---- taking up ---- */

static double number(const json_t *o, const char *key) {
  return json_number_value(json_object_get(o, key));
}

/* Every figure that add_line writes for such a row is there. */
static bool has_figures(const json_t *o, const json_t *comm) {
  static const char *const keys[] = {"bubble",     "dp",           "flop",
                                     "flop_again", "microbatches", "peak_bytes",
                                     "worst_rank"};
  bool ok = true;
  for (int i = 0; i < LEN(keys); i++)
    ok &= json_is_number(json_object_get(o, keys[i]));
  static const char *const axes[] = {"dp", "pp", "tp"};
  for (int i = 0; i < LEN(axes); i++)
    ok &= json_is_number(json_object_get(comm, axes[i]));
  return ok;
}

static const char *string(const json_t *o, const char *key) {
  const char *s = json_string_value(json_object_get(o, key));
  return s ? s : "";
}

/* Fills the row that a line is about; false if it is none of this sweep. */
static bool read_row(Sweep *s, const json_t *o, int64_t i) {
  PointRow *r = &s->row[i];
  PointReason why = {.code = ""};
  const char *state = string(o, "state");
  const json_t *comm = json_object_get(o, "comm_bytes");
  PointState known = POINT_NONE;
  for (int k = POINT_OK; k <= POINT_MEMORY; k++)
    if (strcmp(state, states[k]) == 0) known = (PointState)k;
  if (known == POINT_NONE) return false;
  if (known != POINT_ILLEGAL && !has_figures(o, comm)) return false;
  r->state = known;
  r->dp = (int)number(o, "dp");
  r->microbatches = (int)number(o, "microbatches");
  r->worst = (int)number(o, "worst_rank");
  r->bytes = number(o, "peak_bytes");
  r->bubble = number(o, "bubble");
  r->flops = number(o, "flop");
  r->again = number(o, "flop_again");
  r->seconds = number(o, "step_ms") / 1e3;
  r->tp = number(comm, "tp"), r->dp_bytes = number(comm, "dp"),
  r->pp = number(comm, "pp");
  const json_t *reason = json_object_get(o, "reason");
  snprintf(why.code, sizeof why.code, "%s", string(reason, "code"));
  snprintf(why.path, sizeof why.path, "%s", string(reason, "path"));
  snprintf(why.text, sizeof why.text, "%s", string(reason, "summary"));
  sweep_note(s, i, &why);
  s->nresumed++;
  return true;
}

/* The index of a point in the list of those to judge, or -1. */
static int64_t find_point(const Sweep *s, int64_t n) {
  int64_t lo = 0, hi = s->ntodo;
  while (lo < hi) {
    int64_t mid = (lo + hi) / 2;
    if (s->todo[mid] < n)
      lo = mid + 1;
    else
      hi = mid;
  }
  return lo < s->ntodo && s->todo[lo] == n ? lo : -1;
}

static weft_status foreign(const Sweep *s, weft_error *e) {
  return err_file(e, WEFT_EFILE, s->resume, 0,
                  "is not of this sweep: its plan or its grid was another");
}

static weft_status read_line(Sweep *s, const char *line, size_t n, bool first,
                             weft_error *e) {
  json_t *o = json_loadb(line, n, 0, NULL);
  char key[24];
  snprintf(key, sizeof key, "%016llx", (unsigned long long)s->key);
  bool ok = json_is_object(o);
  if (ok && first) {
    ok = strcmp(string(o, "key"), key) == 0;
  } else if (ok) {
    int64_t i = find_point(s, (int64_t)number(o, "n"));
    if (i >= 0 && !s->ready[i]) ok = read_row(s, o, i);
  }
  json_decref(o);
  if (ok) return WEFT_OK;
  return first ? foreign(s, e)
               : err_file(e, WEFT_EFILE, s->resume, 0,
                          "has a line that is no row of a sweep");
}

/* A file that was cut in its first line, not one that somebody else wrote. */
static bool begins_header(const Sweep *s, const char *text, size_t n) {
  Text t = {0};
  add_header(s, &t);
  bool same = !t.oom && n <= t.n && memcmp(text, t.s, n) == 0;
  text_free(&t);
  return same;
}

static weft_status read_old(Sweep *s, weft_error *e) {
  char *text;
  size_t n;
  TRY(file_read(NULL, s->resume, FILE_OWN_MAX, &text, &n, e));
  weft_status st = WEFT_OK;
  bool first = true;
  if (n && !strchr(text, '\n') && !begins_header(s, text, n)) st = foreign(s, e);
  for (char *line = text, *end; st == WEFT_OK && (end = strchr(line, '\n'));
       line = end + 1, first = false)
    st = read_line(s, line, (size_t)(end - line), first, e);
  mem_free(NULL, text, n + 1);
  return st;
}

/* The header and the rows that are there, in a whole new file. */
static weft_status begin_file(Sweep *s, const char *path, weft_error *e) {
  Text t = {0};
  SweepFile *f = s->file;
  add_header(s, &t);
  add_lines(s, f, false, &t);
  weft_status st = t.oom ? err_set(e, WEFT_ENOMEM, "out of memory in a sweep")
                         : file_write(path, &(FilePart){t.s, t.n}, 1, e);
  text_free(&t);
  return st;
}

weft_status sweep_file_open(Sweep *s, weft_error *e) {
  const char *path = s->resume ? s->resume : s->jsonl;
  if (!path) return WEFT_OK;
  s->why = NEW_N(s->arena, PointReason *, s->ntodo + 1);
  struct stat is;
  if (s->resume && stat(s->resume, &is) == 0) {
    if (!S_ISREG(is.st_mode))
      return err_file(e, WEFT_EFILE, path, 0, "is not a file that can be taken up");
    TRY(read_old(s, e));
  }
  s->file = NEW(s->arena, SweepFile);
  s->file->path = path;
  TRY(begin_file(s, path, e));
  s->file->f = fopen(path, "a");
  return s->file->f ? WEFT_OK : failed(path, e);
}
