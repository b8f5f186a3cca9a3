/* plan_tokenizer.c - finds the tokenizer of a plan; see plan_tokenizer.h. */
#include "plan_tokenizer.h"

#include <sys/stat.h>
#include <unistd.h>

#include "chat.h"
#include "bindings/model/special_ids.h"
#include "chat_plan.h"
#include "vm/io/json_text.h"

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

/* ---- texts ---- */

/* Which of the plan's data are texts, by the name of the field; NULL: none. Without
 * `named` those whose bytes the plan asks for by name do not count. */
static const char *texts_of(const Plan *p, bool named) {
  const DataSpec *all[] = {&p->data, p->data.val};
  static const char *const field[] = {"data", "data.val"};
  for (int i = 0; i < LEN(all); i++)
    if (all[i] && all[i]->kind == DATA_TEXT && (named || all[i]->format != TEXT_BYTES))
      return field[i];
  return NULL;
}

/* The tokenizer.json of weft.hf's folder; NULL: it has none. */
static const char *own_tokenizer(LangPlan *lp) {
  const char *folder = lang_folder(lp);
  const char *file = folder ? arena_printf(lp->arena, "%s/" NAME, folder) : NULL;
  return file && access(file, F_OK) == 0 ? file : NULL;
}

static weft_status refuse(LangPlan *lp, Diags *d, const char *field, const char *text) {
  diag_error(d, "data", field, "%s", text);
  lang_locate(lp, d);
  return WEFT_EPLAN;
}

weft_status plan_takes_tokens(LangPlan *lp, Diags *d) {
  const char *file, *field = texts_of(&lp->plan, true);
  if (!field) return WEFT_OK;
  if (lp->plan.tokenizer)
    return refuse(lp, d, "tokenizer",
                  "the tokens of weft.text are bytes; with a tokenizer take weft.tokens, "
                  "whose files weft tokenize writes");
  if (!(field = texts_of(&lp->plan, false))) return WEFT_OK;
  if (lp->plan.data.kind == DATA_CHAT)
    return refuse(lp, d, field,
                  "the tokens of weft.text are bytes, and those of weft.chat are not: "
                  "take weft.chat, or weft.tokens, whose files weft tokenize writes");
  if (!(file = own_tokenizer(lp))) return WEFT_OK;
  return refuse(lp, d, field,
                arena_printf(lp->arena,
                             "the tokens of weft.text are bytes, and those of the model "
                             "are made by %s: take weft.tokens, whose files weft "
                             "tokenize writes, or say that bytes are meant with weft."
                             "text { ..., format = \"bytes\" }",
                             file));
}

/* Bytes need 256 rows, and few more for special tokens. */
static void warn_of_bytes(LangPlan *lp, int64_t vocab, Diags *d) {
  enum { MANY = 1024 };
  const char *field = texts_of(&lp->plan, false);
  if (!field || vocab <= MANY) return;
  diag_warn(d, "data", field,
            "the tokens of weft.text are bytes, ids below 256 of the model's %lld: weft "
            "tokenize makes token files of texts, for weft.tokens; weft.text { ..., "
            "format = \"bytes\" } says that bytes are meant",
            (long long)vocab);
}

/* ---- of a plan ---- */

weft_status plan_tokenizer(LangPlan *lp, const char *weights, const char **path, Diags *d,
                           weft_error *e) {
  const char *folder = NULL;
  *path = NULL;
  TRY(plan_takes_tokens(lp, d));
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

/* ---- which one ---- */

static const char *dir_of(Arena *a, const char *file) {
  const char *slash = strrchr(file, '/');
  return slash ? arena_strn(a, file, (size_t)(slash - file)) : ".";
}

static bool same_file(const char *a, const char *b) {
  struct stat x, y;
  return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev &&
         x.st_ino == y.st_ino;
}

weft_status plan_tokenizer_named(LangPlan *lp, PlanTokenizer *out, weft_error *e) {
  const char *model = lang_folder(lp), *file;
  *out = (PlanTokenizer){0};
  TRY(lang_tokenizer_folder(lp, &out->folder, e));
  if (out->folder) {
    out->file = arena_printf(lp->arena, "%s/" NAME, out->folder);
    return WEFT_OK;
  }
  if (lp->plan.data.kind != DATA_CHAT) return WEFT_OK;
  weft_status st = chat_plan_own_tokenizer(lp, &file, e);
  if (st != WEFT_OK) {
    weft_error was = *e;
    return err_set(e, st, "data.tokenizer, %s%s%s; plan.tokenizer would take its place",
                   was.file, *was.file ? ": " : "", was.text);
  }
  if (!file) return WEFT_OK;
  if (access(file, R_OK) != 0)
    return err_set(e, WEFT_EPLAN, "data.tokenizer: there is no %s", file);
  if (model && same_file(file, arena_printf(lp->arena, "%s/" NAME, model)))
    return WEFT_OK;
  *out = (PlanTokenizer){file, dir_of(lp->arena, file)};
  return WEFT_OK;
}

/* ---- checks ---- */

/* "FILE:LINE: " of an error, as far as it has them. */
static const char *place(Arena *a, const weft_error *e) {
  if (!*e->file) return "";
  return e->line ? arena_printf(a, "%s:%d: ", e->file, e->line)
                 : arena_printf(a, "%s: ", e->file);
}

static weft_status same_bytes(const char *a, const char *b, bool *same, weft_error *e) {
  char *x, *y;
  size_t n, m;
  *same = same_file(a, b);
  if (*same) return WEFT_OK;
  TRY(file_read(NULL, a, FILE_OWN_MAX, &x, &n, e));
  weft_status st = file_read(NULL, b, FILE_OWN_MAX, &y, &m, e);
  if (st == WEFT_OK) {
    *same = n == m && memcmp(x, y, n) == 0;
    mem_free(NULL, y, m + 1);
  }
  mem_free(NULL, x, n + 1);
  return st;
}

/* What is exported has the plan's tokenizer, and the model reads that of weft.chat. */
static weft_status warn_of_two(LangPlan *lp, const char *folder, Diags *d,
                               weft_error *e) {
  const char *own, *file = arena_printf(lp->arena, "%s/" NAME, folder);
  bool same;
  if (lp->plan.data.kind != DATA_CHAT) return WEFT_OK;
  TRY(chat_plan_own_tokenizer(lp, &own, e));
  if (!own) return WEFT_OK;
  TRY(same_bytes(own, file, &same, e));
  if (!same)
    diag_warn(d, "data", "data.tokenizer",
              "the conversations have tokens of %s, and the exported weights have "
              "plan.tokenizer, %s, which is another one",
              own, file);
  return WEFT_OK;
}

weft_status plan_tokenizer_check(LangPlan *lp, int64_t vocab, Diags *d, weft_error *e) {
  const char *folder;
  Tokenizer *t;
  TRY(plan_takes_tokens(lp, d));
  warn_of_bytes(lp, vocab, d);
  if (!lp->plan.tokenizer) return WEFT_OK;
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
  return warn_of_two(lp, folder, d, e);
}

/* ---- ids of special tokens ---- */

/* Whether the model has rows for the id, or for all of a list. */
static bool has_rows(const json_t *ids, int64_t vocab) {
  size_t n = json_is_array(ids) ? json_array_size(ids) : 1;
  for (size_t i = 0; i < n; i++) {
    const json_t *id = json_is_array(ids) ? json_array_get(ids, i) : ids;
    int64_t v = json_is_integer(id) ? json_integer_value(id) : -1;
    if (v < 0 || v >= vocab) return false;
  }
  return n > 0;
}

static weft_status put_id(json_t *out, const char *key, json_t *id, int64_t vocab,
                          weft_error *e) {
  bool ok = !id || !has_rows(id, vocab) || json_object_set(out, key, id) == 0;
  return ok ? WEFT_OK : err_set(e, WEFT_ENOMEM, "out of memory");
}

/* Those of generation_config.json, if there is one. */
static weft_status ids_of_generation(LangPlan *lp, const char *folder, int64_t vocab,
                                     json_t *out, weft_error *e) {
  const char *path = arena_printf(lp->arena, "%s/generation_config.json", folder);
  Folders in = lang_folders(lp);
  char *text;
  size_t n;
  if (access(path, F_OK) != 0) return WEFT_OK;
  TRY(folders_hold(&in, path, e));
  TRY(file_read(NULL, path, FILE_CODE_MAX, &text, &n, e));
  json_t *doc = json_text_python(path, "", text, n, e);
  mem_free(NULL, text, n + 1);
  weft_status st = doc ? WEFT_OK : e->code;
  for (int i = 0; i < SPECIAL_IDS && st == WEFT_OK; i++)
    st = put_id(out, special_ids[i], json_object_get(doc, special_ids[i]), vocab, e);
  json_decref(doc);
  return st;
}

/* Those of the tokens that tokenizer_config.json names. */
static weft_status ids_of_names(LangPlan *lp, const char *file, int64_t vocab,
                                json_t *out, weft_error *e) {
  TokenizerConfig c;
  Tokenizer *t;
  weft_status st = WEFT_OK;
  TRY(tokenizer_config_read(lp->arena, file, &c, e));
  const char *const token[SPECIAL_IDS] = {c.bos, c.eos, c.pad};
  if (!c.bos && !c.eos && !c.pad) return WEFT_OK;
  st = tokenizer_open(NULL, file, &t, e);
  if (st == WEFT_EFILE) { /* of a kind that others may open, of which a plan is warned */
    err_clear(e);
    return WEFT_OK;
  }
  TRY(st);
  for (int i = 0; i < SPECIAL_IDS && st == WEFT_OK; i++) {
    json_t *id = token[i] ? json_integer(tokenizer_find(t, token[i])) : NULL;
    st = put_id(out, special_ids[i], id, vocab, e);
    json_decref(id);
  }
  tokenizer_close(t);
  return st;
}

weft_status plan_tokenizer_ids(LangPlan *lp, const PlanTokenizer *of, json_t **out,
                               weft_error *e) {
  int64_t vocab = INT32_MAX;
  if (lp->arch) (void)lang_config_int(lp, "vocab_size", &vocab);
  if (!(*out = json_object())) return err_set(e, WEFT_ENOMEM, "out of memory");
  TRY(ids_of_generation(lp, of->folder, vocab, *out, e));
  return json_object_size(*out) ? WEFT_OK : ids_of_names(lp, of->file, vocab, *out, e);
}
