/* plan_tokenizer.c - finds the tokenizer of a plan; see plan_tokenizer.h. */
#include "plan_tokenizer.h"

#include <unistd.h>

#include "chat.h"
#include "chat_plan.h"
#include "vm/io/io.h"

#define NAME "tokenizer.json"

/* What is wrong with the field is said at its line. */
static weft_status as_diagnostic(LangPlan *lp, Diags *d, weft_status st, weft_error *e) {
  static const char field[] = "plan.tokenizer: ";
  size_t n = sizeof field - 1;
  if (st != WEFT_EPLAN || *e->file) return st;
  diag_error(d, "data", "tokenizer", "%s",
             e->text + (strncmp(e->text, field, n) == 0 ? n : 0));
  lang_locate(lp, d);
  err_clear(e);
  return st;
}

/* A tokenizer makes no tokens that are bytes. */
static weft_status takes_tokens(LangPlan *lp, Diags *d) {
  if (!lp->plan.tokenizer || lp->plan.data.kind != DATA_TEXT) return WEFT_OK;
  diag_error(
      d, "data", "tokenizer",
      "the tokens of weft.text are bytes; with a tokenizer take weft.tokens, whose "
      "files weft tokenize writes");
  lang_locate(lp, d);
  return WEFT_EPLAN;
}

weft_status plan_tokenizer(LangPlan *lp, const char *weights, const char **path, Diags *d,
                           weft_error *e) {
  const char *folder = NULL;
  *path = NULL;
  TRY(takes_tokens(lp, d));
  if (lp->plan.data.kind == DATA_TEXT) return WEFT_OK; /* tokens are bytes */
  if (!weights && lp->plan.data.kind == DATA_CHAT)
    return chat_plan_tokenizer(lp, path, e);
  weft_status st = lang_tokenizer_folder(lp, &folder, e);
  if (st != WEFT_OK) return as_diagnostic(lp, d, st, e);
  if (!folder) folder = weights ? weights : lang_folder(lp);
  if (!folder) return WEFT_OK;
  const char *file = arena_printf(lp->arena, "%s/" NAME, folder);
  if (access(file, R_OK) == 0) *path = file;
  return WEFT_OK;
}

/* "FILE:LINE: " of an error, as far as it has them. */
static const char *place(Arena *a, const weft_error *e) {
  if (!*e->file) return "";
  return e->line ? arena_printf(a, "%s:%d: ", e->file, e->line)
                 : arena_printf(a, "%s: ", e->file);
}

weft_status plan_tokenizer_check(LangPlan *lp, int64_t vocab, Diags *d, weft_error *e) {
  const char *folder;
  Tokenizer *t;
  if (!lp->plan.tokenizer) return WEFT_OK;
  TRY(takes_tokens(lp, d));
  weft_status st = lang_tokenizer_folder(lp, &folder, e);
  if (st != WEFT_OK) return as_diagnostic(lp, d, st, e);
  st = tokenizer_open(NULL, arena_printf(lp->arena, "%s/" NAME, folder), &t, e);
  if (st != WEFT_OK) { /* a run needs the ids of its data alone */
    diag_warn(d, "data", "tokenizer", "prompts are not possible: %s%s",
              place(lp->arena, e), e->text);
    err_clear(e);
    return WEFT_OK;
  }
  if (tokenizer_ids(t) > vocab)
    diag_warn(d, "data", "tokenizer",
              "%s/" NAME " has ids up to %d, and the model has %lld: a text with the "
              "others cannot be a prompt",
              folder, tokenizer_ids(t) - 1, (long long)vocab);
  tokenizer_close(t);
  return WEFT_OK;
}

/* Adds "key": id unless the file names no such token. */
static void add_id(const Tokenizer *t, const char *key, const char *token, bool *first,
                   Text *out) {
  int32_t id = token ? tokenizer_find(t, token) : -1;
  if (id < 0) return;
  text_printf(out, "%s\n  \"%s\": %d", *first ? "{" : ",", key, id);
  *first = false;
}

weft_status plan_tokenizer_generation(LangPlan *lp, const char *folder, Text *out,
                                      weft_error *e) {
  const char *file = arena_printf(lp->arena, "%s/" NAME, folder);
  TokenizerConfig config;
  Tokenizer *t;
  bool first = true;
  TRY(tokenizer_config_read(lp->arena, file, &config, e));
  if (!config.bos && !config.eos) return WEFT_OK;
  TRY(tokenizer_open(NULL, file, &t, e));
  add_id(t, "bos_token_id", config.bos, &first, out);
  add_id(t, "eos_token_id", config.eos, &first, out);
  if (!first) text_add(out, "\n}\n");
  tokenizer_close(t);
  return out->oom ? err_set(e, WEFT_ENOMEM, "out of memory") : WEFT_OK;
}
