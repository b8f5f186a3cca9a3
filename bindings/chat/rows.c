/* rows.c - reads rows without holding a file in memory: the end of a row is found by
 * counting brackets, then it is parsed. A file whose first character is [ is a list,
 * anything else has a row in each line. */
#include "rows.h"

#include <errno.h>
#include <stdio.h>

#include "vm/io/file.h"
#include "vm/io/json_text.h"

#define FAIL(line, ...) return err_file(e, WEFT_EFILE, r->path, (line), __VA_ARGS__)

const RowsOf rows_of_talks = {16 << 20, "a conversation", false, false,
                              "| weft tokenize --chat - ..."};
const RowsOf rows_of_texts = {FILE_OWN_MAX, "a text", true, true, ">NAME.jsonl"};

struct Rows {
  const char *path;
  const RowsOf *of;
  FILE *file;
  int line; /* of the next character */
  bool list, first, ended;
  Text text; /* of a row */
};

/* ---- files of other kinds ---- */

static const struct Kind {
  const char *magic, *is, *command;
} kinds[] = {
    {"PAR1", "Parquet",
     "python3 -c \"import sys, json, pyarrow.parquet as p; [print(json.dumps(r, "
     "default=str)) for b in p.ParquetFile(sys.argv[1]).iter_batches() for r in "
     "b.to_pylist()]\" FILE"},
    {"ARROW1", "Arrow",
     "python3 -c \"import sys, json, pyarrow as a; [print(json.dumps(r, default=str)) "
     "for r in a.ipc.open_file(sys.argv[1]).read_all().to_pylist()]\" FILE"},
    {"\x1f\x8b", "compressed by gzip", "zcat FILE"},
    {"\x28\xb5\x2f\xfd", "compressed by zstd", "zstdcat FILE"},
};
enum { HEAD = 6 }; /* bytes of the longest */

weft_status chat_rows_refuse(const char *path, const RowsOf *of, const char *head,
                             size_t n, weft_error *e) {
  for (int i = 0; i < LEN(kinds); i++) {
    size_t m = strlen(kinds[i].magic);
    if (n >= m && memcmp(head, kinds[i].magic, m) == 0)
      return err_file(e, WEFT_EFILE, path, 0, "is %s; rows are JSON: %s %s", kinds[i].is,
                      kinds[i].command, of->into);
  }
  return WEFT_OK;
}

static int peek(Rows *r) {
  int c = getc_unlocked(r->file);
  if (c != EOF) ungetc(c, r->file);
  return c;
}

static int next(Rows *r) {
  int c = getc_unlocked(r->file);
  r->line += c == '\n';
  return c;
}

/* Reads the beginning of a magic number, of which no JSON has the first character. */
static weft_status refuse_others(Rows *r, weft_error *e) {
  char head[HEAD];
  int c = peek(r), n = 0;
  bool may = c == 'P' || c == 'A' || c == 0x1f || c == 0x28;
  for (; may && n < HEAD && (c = getc(r->file)) != EOF; n++) head[n] = (char)c;
  TRY(chat_rows_refuse(r->path, r->of, head, (size_t)n, e));
  if (may) FAIL(1, "is not JSON");
  return WEFT_OK;
}

/* ---- begin and end ---- */

static bool is_blank(int c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

static void skip_blanks(Rows *r) {
  while (is_blank(peek(r))) next(r);
}

static weft_status begin(Rows *r, weft_error *e) {
  TRY(refuse_others(r, e));
  if (peek(r) == 0xef)
    for (int i = 0; i < 3; i++) next(r); /* a byte order mark */
  skip_blanks(r);
  r->list = peek(r) == '[';
  r->first = true;
  if (r->list) next(r);
  return WEFT_OK;
}

weft_status chat_rows_open(const char *path, const RowsOf *of, Rows **out,
                           weft_error *e) {
  bool input = strcmp(path, "-") == 0;
  *out = NULL;
  FILE *f = input ? stdin : fopen(path, "rb");
  if (!f)
    return err_file(e, WEFT_EFILE, path, 0, "cannot be opened: %s", strerror(errno));
  Rows *r = mem_new(NULL, sizeof *r);
  if (!r) {
    if (!input) fclose(f);
    return err_set(e, WEFT_ENOMEM, "out of memory");
  }
  *r = (Rows){.path = input ? "stdin" : path, .of = of, .file = f, .line = 1};
  weft_status st = begin(r, e);
  if (st == WEFT_OK)
    *out = r;
  else
    chat_rows_close(r);
  return st;
}

void chat_rows_close(Rows *r) {
  if (!r) return;
  if (r->file != stdin) fclose(r->file);
  text_free(&r->text);
  mem_free(NULL, r, sizeof *r);
}

const char *chat_rows_path(const Rows *r) { return r->path; }

/* ---- a row ---- */

static weft_status keep(Rows *r, int c, int line, weft_error *e) {
  if (r->text.n == r->of->most)
    FAIL(line, "the row is longer than %d MiB, the most for %s", (int)(r->of->most >> 20),
         r->of->what);
  text_addn(&r->text, &(char){(char)c}, 1);
  return r->text.oom ? err_set(e, WEFT_ENOMEM, "out of memory") : WEFT_OK;
}

static weft_status read_line(Rows *r, weft_error *e) {
  int line = r->line;
  for (int c; (c = next(r)) != EOF && c != '\n';) TRY(keep(r, c, line, e));
  return WEFT_OK;
}

/* A value of the list: up to the comma or bracket that is in none of its own brackets. */
static weft_status read_item(Rows *r, weft_error *e) {
  int line = r->line, depth = 0, c;
  bool quoted = false;
  while ((c = peek(r)) != EOF) {
    if (!quoted && depth == 0 && (c == ',' || c == ']')) return WEFT_OK;
    TRY(keep(r, next(r), line, e));
    if (quoted && c == '\\') {
      TRY(keep(r, next(r), line, e));
    } else if (c == '"') {
      quoted = !quoted;
    } else if (!quoted) {
      depth += (c == '{' || c == '[') - (c == '}' || c == ']');
    }
  }
  FAIL(line, "the list of rows does not end");
}

/* After the last item: nothing but its bracket may follow. */
static weft_status end_list(Rows *r, weft_error *e) {
  next(r);
  skip_blanks(r);
  if (peek(r) != EOF) FAIL(r->line, "something follows the list of rows");
  r->ended = true;
  return WEFT_OK;
}

static weft_status next_item(Rows *r, weft_error *e) {
  int c = peek(r);
  if (!r->first && c == ',') {
    next(r);
    skip_blanks(r);
  } else if (c == ']') {
    return end_list(r, e);
  } else if (!r->first) {
    FAIL(r->line, "the list of rows does not end");
  }
  r->first = false;
  return WEFT_OK;
}

/* The error of a row in words of the file, not of the row. */
static weft_status parse_error(const Rows *r, int line, weft_error *e) {
  const char *byte = strstr(e->text, "unable to decode byte");
  char why[sizeof e->text];
  int at = e->line ? e->line + line - 1 : line;
  snprintf(why, sizeof why, "%s%s", byte ? "is not UTF-8: " : "", byte ? byte : e->text);
  if (strstr(e->text, "JSON_ALLOW_NUL"))
    snprintf(why, sizeof why, "holds the character \\u0000, which no text may have");
  err_clear(e);
  FAIL(at, "%s", why);
}

static weft_status parse(const Rows *r, int line, json_t **row, weft_error *e) {
  const char *s = r->text.s ? r->text.s : "";
  *row = json_text_row(r->path, s, r->text.n, r->of->nul, r->of->big, e);
  return *row ? WEFT_OK : parse_error(r, line, e);
}

weft_status chat_rows_next(Rows *r, json_t **row, int *line, weft_error *e) {
  *row = NULL;
  skip_blanks(r);
  if (r->list && !r->ended) TRY(next_item(r, e));
  if (r->ended || (!r->list && peek(r) == EOF)) {
    if (ferror(r->file)) FAIL(r->line, "cannot be read: %s", strerror(errno));
    return WEFT_OK;
  }
  *line = r->line;
  r->text.n = 0;
  TRY(r->list ? read_item(r, e) : read_line(r, e));
  return parse(r, *line, row, e);
}
