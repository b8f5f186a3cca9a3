/* tokenize.c - weft tokenize: makes token files of text files, with a model's
 * tokenizer.json. A text file is one document; in a file of JSON rows the "text" of each
 * row is one. */
#include <jansson.h>
#include <stdlib.h>

#include "tokenize.h"
#include "bindings/chat/rows.h"
#include "bindings/cli/chat_options.h"
#include "vm/base/terminal.h"
#include "vm/io/source.h"
#include "vm/io/token_file_write.h"
#include "vm/text/tokenizer.h"
#include "vm/base/plural.h"

typedef struct Writer {
  const Cli *cli;
  const Tokenizer *t;
  int32_t eot; /* -1: none */
  TokenFileOut *out;
  long long documents, tokens; /* that are written */
  int bits;                    /* of an id */
} Writer;

static weft_status add_document(Writer *w, const char *s, size_t n, weft_error *e) {
  TokenIds ids = {0};
  weft_status st = tokenizer_encode(w->t, s, n, true, &ids, e);
  if (st == WEFT_OK && *w->cli->stop) st = err_set(e, WEFT_EINTR, "interrupted");
  if (st == WEFT_OK && w->eot >= 0) st = token_ids_add(&ids, w->eot, e);
  if (st == WEFT_OK && ids.n) st = token_file_add(w->out, ids.at, NULL, ids.n, e);
  token_ids_free(&ids);
  return st;
}

/* ---- rows ---- */

static weft_status add_row(Writer *w, const char *path, int line, const json_t *row,
                           weft_error *e) {
  const json_t *text = json_object_get(row, "text");
  if (!json_is_string(text))
    return err_file(e, WEFT_EFILE, path, line, "has no \"text\", as each row must");
  return add_document(w, json_string_value(text), json_string_length(text), e);
}

static weft_status add_rows(Writer *w, Rows *rows, const char *path, weft_error *e) {
  for (;;) {
    json_t *row;
    int line = 0;
    TRY(chat_rows_next(rows, &row, &line, e));
    if (!row) return WEFT_OK;
    weft_status st = add_row(w, path, line, row, e);
    json_decref(row);
    TRY(st);
  }
}

static weft_status add_file_of_rows(Writer *w, const char *path, weft_error *e) {
  Rows *rows;
  TRY(chat_rows_open(path, &rows_of_texts, &rows, e));
  weft_status st = add_rows(w, rows, path, e);
  chat_rows_close(rows);
  return st;
}

/* ---- text files ---- */

/* Whether the first value of a text, or of a list that it begins, is a row. */
static bool begins_with_row(const char *s, size_t n) {
  static const char blanks[] = " \t\r\n";
  json_error_t why;
  size_t i = strspn(s, blanks);
  if (s[i] == '[') i += 1 + strspn(s + i + 1, blanks);
  if (s[i] != '{') return false;
  size_t some = MIN(n - i, (size_t)1 << 20); /* a parsed value takes much more memory */
  json_t *v = json_loadb(s + i, some, JSON_DISABLE_EOF_CHECK | JSON_ALLOW_NUL, &why);
  bool is = json_is_string(json_object_get(v, "text"));
  json_decref(v);
  return is;
}

/* What is no prose would become tokens nevertheless, and nobody would know. */
static weft_status add_text(Writer *w, const char *path, const char *s, size_t n,
                            weft_error *e) {
  static const char mark[] = "\xef\xbb\xbf"; /* of byte order, which is not text */
  TRY(chat_rows_refuse(path, &rows_of_texts, s, n, e));
  size_t skip = strncmp(s, mark, 3) == 0 ? 3 : 0;
  s += skip, n -= skip;
  if (begins_with_row(s, n))
    return err_file(e, WEFT_EFILE, path, 0,
                    "holds rows of JSON with a \"text\", and would be read as one text: "
                    "name it NAME.jsonl, NAME.ndjson or NAME.json");
  return add_document(w, s, n, e);
}

static weft_status add_file_of_text(Writer *w, const char *path, weft_error *e) {
  char *s;
  size_t n;
  TRY(file_read(NULL, path, FILE_OWN_MAX, &s, &n, e));
  weft_status st = add_text(w, path, s, n, e);
  mem_free(NULL, s, n + 1);
  return st;
}

static weft_status add_file(Writer *w, const char *path, weft_error *e) {
  weft_status st =
      is_named_rows(path) ? add_file_of_rows(w, path, e) : add_file_of_text(w, path, e);
  if (st != WEFT_OK && st != WEFT_EINTR && e && !*e->file)
    snprintf(e->file, sizeof e->file, "%s", path);
  return st;
}

/* ---- the verb ---- */

static bool is_llmc(const Cli *cli) {
  return cli->format && strcmp(cli->format, "llmc") == 0;
}

/* Ignored, one of them would be tokens that nobody has asked for. */
static weft_status refuse_chat_options(const Cli *cli, weft_error *e) {
  const Belongs of_chat[] = {
      {cli->tokenizer, "--tokenizer", "--chat: of texts it is the first argument"},
      {cli->template, "--template", "--chat"},
      {cli->noption, "--option", "--chat"},
      {cli->train_on, "--train-on", "--chat"},
      {cli->max_length >= 0, "--max-length", "--chat"},
      {cli->drop_bad, "--drop-bad", "--chat"},
      {cli->refuse_special, "--refuse-special", "--chat"}};
  return options_belong(of_chat, LEN(of_chat), e);
}

static weft_status check_options(const Cli *cli, weft_error *e) {
  TRY(refuse_chat_options(cli, e));
  if (cli->narg < 2)
    return err_set(e, WEFT_EUSAGE, "tokenize needs a %s", cli->verb->needs);
  if (!ends_in(cli->out, ".bin"))
    return err_set(e, WEFT_EUSAGE, "tokenize needs --out NAME.bin");
  if (cli->format && !is_llmc(cli) && strcmp(cli->format, "megatron") != 0)
    return err_set(e, WEFT_EUSAGE, "--format is megatron or llmc, not %s", cli->format);
  return WEFT_OK;
}

static weft_status tokenize(Writer *w, weft_error *e) {
  const Cli *cli = w->cli;
  TokenFileSpec spec = {.name = cli->out,
                        .kind = is_llmc(cli) ? TOKEN_FILE_LLMC : TOKEN_FILE_MEGATRON,
                        .ids = tokenizer_ids(w->t)};
  w->eot = cli->eot ? tokenizer_find(w->t, cli->eot) : -1;
  if (cli->eot && w->eot < 0)
    return err_file(e, WEFT_EUSAGE, cli->arg[0], 0, "has no token %s for --eot",
                    cli->eot);
  heed_ends(cli);
  TRY(token_file_create(&spec, &w->out, e));
  weft_status st = WEFT_OK;
  for (int i = 1; i < cli->narg && st == WEFT_OK; i++) st = add_file(w, cli->arg[i], e);
  if (st != WEFT_OK) {
    token_file_drop(w->out);
    return st;
  }
  w->documents = token_file_documents(w->out);
  w->tokens = token_file_tokens(w->out);
  w->bits = token_file_bits(w->out);
  return token_file_finish(w->out, e);
}

int tokenize_end(const Cli *cli, weft_status st, const weft_error *e) {
  if (st == WEFT_EINTR) /* wherever that was, it is no fault of the file */
    report_error("%s", e->text);
  else if (st != WEFT_OK && e->line)
    report_error("%s:%d: error: %s", e->file, e->line, e->text);
  else if (st != WEFT_OK)
    report_error("%s%s%s", e->file, *e->file ? ": error: " : "", e->text);
  return code_of_signal(cli, st, weft_exit_code(st));
}

int verb_tokenize(Cli *cli, Arena *arena) {
  Writer w = {.cli = cli};
  Tokenizer *t = NULL;
  weft_error e = NO_ERROR;
  if (cli->chat) return tokenize_chat(cli, arena);
  weft_status st = check_options(cli, &e);
  if (st == WEFT_OK) st = tokenizer_open(NULL, cli->arg[0], &t, &e);
  w.t = t;
  if (st == WEFT_OK) st = tokenize(&w, &e);
  tokenizer_close(t);
  if (st == WEFT_OK)
    printf("%s: %lld document%s, %lld token%s of %d bits, %s\n", SHOWN(cli->out),
           w.documents, plural(w.documents, "s"), w.tokens, plural(w.tokens, "s"), w.bits,
           is_llmc(cli) ? "llm.c" : "Megatron");
  return tokenize_end(cli, st, &e);
}
