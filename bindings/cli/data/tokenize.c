/* tokenize.c - weft tokenize: makes token files of text files, with a model's
 * tokenizer.json. A text file is one document; in a .jsonl file each line's "text" is
 * one. */
#include <jansson.h>
#include <stdlib.h>

#include "bindings/cli/cli.h"
#include "vm/base/terminal.h"
#include "vm/io/io.h"
#include "vm/text/tokenizer.h"

/* Up to this vocabulary size Megatron uses 16-bit ids. */
#define MEGATRON_U16_MOST 65500

typedef struct Writer {
  const Cli *cli;
  const Tokenizer *t;
  int32_t eot; /* -1: none */
  int width;
  FileOut bin;
  uint64_t at;          /* bytes that are written */
  char buffer[1 << 16]; /* bytes that are not written yet */
  size_t fill;
  const char *path;
  VEC(int32_t) lengths; /* of documents */
  int64_t ntokens;
  Arena *arena;
} Writer;

/* ---- ids to the file ---- */

static weft_status flush(Writer *w, weft_error *e) {
  TRY(file_put(&w->bin, w->at, w->buffer, w->fill, e));
  w->at += w->fill;
  w->fill = 0;
  return WEFT_OK;
}

static weft_status put_ids(Writer *w, const TokenIds *ids, weft_error *e) {
  for (size_t i = 0; i < ids->n; i++) {
    uint16_t narrow = (uint16_t)ids->at[i];
    const void *p = w->width == 2 ? (const void *)&narrow : &ids->at[i];
    if (w->fill + (size_t)w->width > sizeof w->buffer) TRY(flush(w, e));
    memcpy(w->buffer + w->fill, p, (size_t)w->width);
    w->fill += (size_t)w->width;
  }
  *VEC_PUSH(w->arena, w->lengths) = (int32_t)ids->n;
  w->ntokens += (int64_t)ids->n;
  return WEFT_OK;
}

static weft_status add_document(Writer *w, const char *s, size_t n, weft_error *e) {
  TokenIds ids = {0};
  weft_status st = tokenizer_encode(w->t, s, n, true, &ids, e);
  if (st == WEFT_OK && w->eot >= 0) st = token_ids_add(&ids, w->eot, e);
  if (st == WEFT_OK && ids.n) st = put_ids(w, &ids, e);
  token_ids_free(&ids);
  return st;
}

/* ---- text files ---- */

static weft_status add_line(Writer *w, const char *path, int line, const char *s,
                            size_t n, weft_error *e) {
  json_error_t why;
  json_t *v = json_loadb(s, n, JSON_ALLOW_NUL, &why);
  const json_t *text = json_object_get(v, "text");
  weft_status st =
      !v ? err_file(e, WEFT_EFILE, path, line, "is not JSON: %s", why.text)
      : json_is_string(text)
          ? add_document(w, json_string_value(text), json_string_length(text), e)
          : err_file(e, WEFT_EFILE, path, line, "has no \"text\", as each line must");
  json_decref(v);
  return st;
}

static weft_status add_lines(Writer *w, const char *path, const char *s, size_t n,
                             weft_error *e) {
  const char *end = s + n, *next;
  for (int line = 1; s < end; s = next, line++) {
    const char *nl = memchr(s, '\n', (size_t)(end - s));
    next = nl ? nl + 1 : end;
    size_t m = (size_t)((nl ? nl : end) - s);
    if (strspn(s, " \t\r") < m) TRY(add_line(w, path, line, s, m, e));
  }
  return WEFT_OK;
}

static weft_status add_file(Writer *w, const char *path, weft_error *e) {
  char *s;
  size_t n, m = strlen(path);
  bool lines = m > 6 && strcmp(path + m - 6, ".jsonl") == 0;
  TRY(file_read(NULL, path, FILE_OWN_MAX, &s, &n, e));
  weft_status st = lines ? add_lines(w, path, s, n, e) : add_document(w, s, n, e);
  mem_free(NULL, s, n + 1);
  if (st != WEFT_OK && e && !*e->file) snprintf(e->file, sizeof e->file, "%s", path);
  return st;
}

/* ---- headers and indices of token files ---- */

enum { HEADER = 256 }; /* size of llm.c's header in int32 numbers */

static weft_status put_header(Writer *w, weft_error *e) {
  int32_t header[HEADER] = {w->width == 2 ? 20240520 : 20240801, w->width == 2 ? 1 : 7,
                            (int32_t)w->ntokens};
  if (w->ntokens > INT32_MAX)
    return err_file(e, WEFT_ELIMIT, w->path, 0,
                    "llm.c's files hold at most %d tokens; give --format megatron",
                    INT32_MAX);
  return file_put(&w->bin, 0, header, sizeof header, e);
}

static weft_status put_index(Writer *w, const char *path, weft_error *e) {
  int64_t n = w->lengths.n, at = 0, count[2] = {n, n + 1};
  unsigned char head[34] = "MMIDIDX\0\0\1";
  int64_t *begin = NEW_N(w->arena, int64_t, n + 1),
          *document = NEW_N(w->arena, int64_t, n + 1);
  head[17] = w->width == 2 ? 8 : 4;
  memcpy(head + 18, count, sizeof count);
  for (int64_t i = 0; i <= n; i++) {
    document[i] = i;
    begin[i] = at;
    if (i < n) at += (int64_t)w->lengths.at[i] * w->width;
  }
  FilePart part[] = {{head, sizeof head},
                     {w->lengths.at, (size_t)n * sizeof(int32_t)},
                     {begin, (size_t)n * sizeof *begin},
                     {document, (size_t)(n + 1) * sizeof *document}};
  return file_write(NULL, path, part, LEN(part), e);
}

static bool is_llmc(const Cli *cli) {
  return cli->format && strcmp(cli->format, "llmc") == 0;
}

static weft_status write_all(Writer *w, weft_error *e) {
  if (is_llmc(w->cli)) w->at = HEADER * sizeof(int32_t);
  for (int i = 1; i < w->cli->narg; i++) TRY(add_file(w, w->cli->arg[i], e));
  TRY(flush(w, e));
  return is_llmc(w->cli) ? put_header(w, e) : WEFT_OK;
}

/* ---- the verb ---- */

static weft_status check_options(const Cli *cli, weft_error *e) {
  size_t n = cli->out ? strlen(cli->out) : 0;
  if (cli->narg < 2)
    return err_set(e, WEFT_EUSAGE, "tokenize needs a %s", cli->verb->needs);
  if (n < 5 || strcmp(cli->out + n - 4, ".bin") != 0)
    return err_set(e, WEFT_EUSAGE, "tokenize needs --out NAME.bin");
  if (cli->format && !is_llmc(cli) && strcmp(cli->format, "megatron") != 0)
    return err_set(e, WEFT_EUSAGE, "--format is megatron or llmc, not %s", cli->format);
  return WEFT_OK;
}

static weft_status tokenize(Writer *w, Tokenizer *t, weft_error *e) {
  const Cli *cli = w->cli;
  int32_t most = is_llmc(cli) ? 65536 : MEGATRON_U16_MOST - 1;
  w->t = t;
  w->width = tokenizer_ids(t) <= most ? 2 : 4;
  w->eot = cli->eot ? tokenizer_find(t, cli->eot) : -1;
  if (cli->eot && w->eot < 0)
    return err_file(e, WEFT_EUSAGE, cli->arg[0], 0, "has no token %s for --eot",
                    cli->eot);
  w->path = cli->out;
  TRY(file_create(NULL, w->path, 0, &w->bin, e));
  weft_status st = write_all(w, e);
  if (st != WEFT_OK) {
    file_drop(&w->bin);
    return st;
  }
  TRY(file_finish(&w->bin, e));
  if (is_llmc(cli)) return WEFT_OK;
  int stem = (int)strlen(w->path) - 4;
  return put_index(w, arena_printf(w->arena, "%.*s.idx", stem, w->path), e);
}

int verb_tokenize(Cli *cli, Arena *arena) {
  Writer *w = NEW(arena, Writer);
  w->cli = cli;
  w->arena = arena;
  Tokenizer *t = NULL;
  weft_error e;
  err_clear(&e);
  weft_status st = check_options(cli, &e);
  if (st == WEFT_OK) st = tokenizer_open(NULL, cli->arg[0], &t, &e);
  if (st == WEFT_OK) st = tokenize(w, t, &e);
  tokenizer_close(t);
  if (st == WEFT_OK)
    printf("%s: %d document%s, %lld tokens of %d bits, %s\n", SHOWN(w->path),
           w->lengths.n, w->lengths.n == 1 ? "" : "s", (long long)w->ntokens,
           8 * w->width, is_llmc(cli) ? "llm.c" : "Megatron");
  else if (e.line)
    report_error("%s:%d: error: %s", e.file, e.line, e.text);
  else
    report_error("%s%s%s", e.file, *e.file ? ": error: " : "", e.text);
  return weft_exit_code(st);
}
