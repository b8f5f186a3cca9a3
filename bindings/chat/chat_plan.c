/* chat_plan.c - weft.chat in a plan. Its fields are read from the plan's table, where the
 * template may be a function of the plan, which runs in the plan's own state. */
#include "chat_plan.h"

#include <sys/stat.h>

#include "bindings/lang/plan_key.h"
#include "chat_cache.h"
#include "chat_modules.h"
#include "vm/io/io.h"
#include "vm/base/plural.h"

typedef struct ChatData {
  LangPlan *lp;
  DataSpec *spec;
  bool val;
  int64_t vocab; /* of the model */
  Arena *arena;
  Tokenizer *tokenizer;
  TokenizerConfig config;
  ChatTemplate template;
  ChatSet set;
  const char *named;  /* data.tokenizer, or NULL */
  const char *cut_by; /* the field that says where conversations are cut */
  int before;         /* see chat_modules.h */
} ChatData;

/* ---- fields ---- */

static void push_data(lua_State *L, bool val) {
  field_push(L, PLAN_INDEX, "data");
  if (!val) return;
  field_push(L, -1, "val");
  lua_remove(L, -2);
}

/* Sets a field of the table on top to that of the table at `from`, or to a text. */
static void set_field(lua_State *L, int from, const char *key, const char *missing) {
  if (field_push(L, from, key) == LUA_TNIL && missing) {
    lua_pop(L, 1);
    lua_pushstring(L, missing);
  }
  lua_setfield(L, -2, key);
}

/* The template's options are copied, because more of them are added. */
static void set_options(lua_State *L, int from) {
  lua_newtable(L);
  int options = lua_gettop(L);
  if (field_push(L, from, "options") == LUA_TTABLE)
    for (lua_pushnil(L); lua_next(L, options + 1);) {
      lua_pushvalue(L, -2);
      lua_insert(L, -2);
      lua_rawset(L, options);
    }
  lua_settop(L, options);
  lua_setfield(L, -2, "options");
}

static void push_spec_of(lua_State *L, bool val) {
  push_data(L, val);
  int from = lua_gettop(L);
  lua_newtable(L);
  set_field(L, from, "format", "messages");
  set_field(L, from, "template", NULL);
  set_field(L, from, "train_on", "assistant");
  set_options(L, from);
  lua_remove(L, from);
}

/* In a call of the sandbox the plan's table is not on the stack. */
static void push_spec_called(lua_State *L, bool val) {
  state_push_plan(state_of(L));
  lua_insert(L, PLAN_INDEX);
  push_spec_of(L, val);
  lua_remove(L, PLAN_INDEX);
}

static void push_spec(lua_State *L, void *ud) {
  push_spec_called(L, ((const ChatData *)ud)->val);
}

void chat_plan_push_spec(lua_State *L) { push_spec_called(L, false); }

static void push_written(lua_State *L, void *ud) {
  push_spec_of(L, ((const ChatData *)ud)->val);
}

static bool flag(lua_State *L, int t, const char *key) {
  field_push(L, t, key);
  bool is = lua_toboolean(L, -1);
  lua_pop(L, 1);
  return is;
}

static void read_fields(lua_State *L, void *ud) {
  ChatData *c = ud;
  push_data(L, c->val);
  int t = lua_gettop(L);
  if (field_push(L, t, "tokenizer") == LUA_TSTRING)
    c->named = arena_str(c->arena, lua_tostring(L, -1));
  field_push(L, t, "max_length");
  c->set.max_length = (int64_t)lua_tonumber(L, -1);
  c->cut_by = "max_length";
  c->set.drop_bad = flag(L, t, "drop_bad");
  c->set.refuse_special = flag(L, t, "refuse_special");
}

/* ---- files ---- */

static weft_status find_tokenizer_file(ChatData *c, weft_error *e) {
  Folders in = lang_folders(c->lp);
  struct stat st;
  const char *path = NULL;
  if (c->named)
    path = folders_find(&in, c->arena, c->named);
  else
    TRY(lang_tokenizer_folder(c->lp, &path, e));
  if (!path) path = lang_folder(c->lp);
  if (!path)
    return err_set(e, WEFT_EPLAN,
                   "tokenizer: which? The folder of a model that has a "
                   "tokenizer.json, here or as plan.tokenizer; that of weft.hf needs no "
                   "name");
  if (c->named) TRY(folders_hold(&in, path, e));
  bool folder = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
  c->set.tokenizer = folder ? arena_printf(c->arena, "%s/tokenizer.json", path) : path;
  return WEFT_OK;
}

static weft_status find_tokenizer(ChatData *c, weft_error *e) {
  TRY(find_tokenizer_file(c, e));
  TRY(tokenizer_config_read(c->arena, c->set.tokenizer, &c->config, e));
  c->set.config = &c->config;
  return WEFT_OK;
}

typedef VEC(struct stat) Known;

/* Whether the path leads to a file that is known already; from now on it is. */
static bool is_known_file(Arena *a, Known *known, const char *path) {
  struct stat st;
  if (stat(path, &st) != 0) return false;
  for (int i = 0; i < known->n; i++)
    if (known->at[i].st_dev == st.st_dev && known->at[i].st_ino == st.st_ino) return true;
  *VEC_PUSH(a, *known) = st;
  return false;
}

/* Several names without weights are one stream, in which a file counts once, as it does
 * for other data; a name whose files are all those of earlier ones is left out. */
static weft_status find_files(ChatData *c, weft_error *e) {
  const DataSpec *s = c->spec;
  Known known = {0};
  c->set.files = NEW_N(c->arena, const char *const *, s->nfiles);
  c->set.nfiles = NEW_N(c->arena, int, s->nfiles);
  c->set.n = 0;
  for (int i = 0; i < s->nfiles; i++) {
    const char *const *found;
    int n, left = 0;
    TRY(data_find(c->arena, s, s->files[i], &found, &n, e));
    const char **files = NEW_N(c->arena, const char *, n);
    for (int k = 0; k < n; k++)
      if (s->nweights > 1 || !is_known_file(c->arena, &known, found[k]))
        files[left++] = found[k];
    if (left == 0) continue;
    c->set.files[c->set.n] = files;
    c->set.nfiles[c->set.n++] = left;
  }
  return WEFT_OK;
}

static weft_status name_folder(ChatData *c, const char **name, weft_error *e) {
  Text t = {0};
  weft_status st = plan_key_value(c->lp, push_written, c, &t, e);
  if (st == WEFT_OK && t.oom) st = err_set(e, WEFT_ENOMEM, "out of memory");
  if (st == WEFT_OK) {
    /* Zeros in it would end it too early. */
    c->set.written = arena_printf(c->arena, "%zu %016llx", t.n,
                                  (unsigned long long)hash_bytes(0, t.s, t.n));
    st = chat_cache_name(c->arena, &c->set, name, e);
  }
  text_free(&t);
  return st;
}

/* Whether the data set is there. A folder whose modules have other texts now leads to the
 * name of one that was written by these, and *name ends where there is none. */
static weft_status find_folder(ChatData *c, const char **name, ChatCounts *n, bool *has,
                               weft_error *e) {
  LangState *s = c->lp->state;
  const char *now;
  for (;; *name = chat_cache_next(c->arena, *name, now)) {
    *has = chat_cache_has(c->arena, s->dir, *name, n);
    if (!*has || !n->modules) return WEFT_OK;
    TRY(chat_modules_now(s, n->modules, c->arena, &now, e));
    if (str_eq(now, n->modules)) return WEFT_OK;
  }
}

/* ---- writing ---- */

static weft_status write_one(void *ud, int i, const Dir *in, ChatCounts *n,
                             weft_error *e) {
  ChatData *c = ud;
  ChatFileSpec spec = {.files = c->set.files[i],
                       .nfiles = c->set.nfiles[i],
                       .tokenizer = c->tokenizer,
                       .template = &c->template,
                       .in = in,
                       .out = chat_cache_file(c->arena, i),
                       .max_length = c->set.max_length,
                       .drop_bad = c->set.drop_bad,
                       .stop = c->lp->opt.stop};
  TRY(chat_file_write(&spec, n, e));
  return chat_modules_since(c->lp->state, c->before, c->arena, &n->modules, e);
}

static weft_status write_files(ChatData *c, const char *name, ChatCounts *n,
                               weft_error *e) {
  ChatOpen o = {.path = "", .push_spec = push_spec, .ud = c, .config = &c->config};
  TRY(tokenizer_open(c->lp->opt.alloc, c->set.tokenizer, &c->tokenizer, e));
  if (c->set.refuse_special) o.refuse = c->tokenizer;
  weft_status st = chat_modules_begin(c->lp->state, &c->before, e);
  if (st == WEFT_OK) st = chat_template_open(c->lp->state, &o, &c->template, e);
  if (st == WEFT_OK)
    st =
        chat_cache_write(c->arena, c->lp->state->dir, name, c->set.n, write_one, c, n, e);
  chat_template_close(&c->template);
  chat_modules_end(c->lp->state, &c->before);
  tokenizer_close(c->tokenizer);
  return st;
}

/* Rows that truncate cut conversations where max_length would, so that what nothing is
 * learnt of then is left out: a pair without an answer would count with a loss of log 2.
 */
static void cut_as_rows_do(ChatData *c) {
  const Packed *p = &c->lp->plan.packed;
  if (!p->size || p->too_long != TOO_LONG_TRUNCATE) return;
  if (c->set.max_length && c->set.max_length <= p->size) return;
  c->set.max_length = p->size;
  c->cut_by = "packed.size";
}

/* The same for every run with these data, so it is said each time. */
static void warn(const ChatData *c, const ChatCounts *n, Diags *d) {
  const char *path = c->val ? "data.val" : "data";
  if (n->truncated)
    diag_warn(d, "data", path,
              "%lld of %lld conversation%s %s cut after %s = %lld tokens",
              (long long)n->truncated, (long long)n->conversations,
              plural(n->conversations, "s"), n->truncated == 1 ? "was" : "were",
              c->cut_by, (long long)c->set.max_length);
  if (n->unreasoned)
    diag_warn(
        d, "data", path,
        "%lld answer%s learnt without the reasoning that %s: the template leaves it "
        "out, and keeps it with options = { keep_reasoning = true } if it has that",
        (long long)n->unreasoned, n->unreasoned == 1 ? " is" : "s are",
        n->unreasoned == 1 ? "it has" : "they have");
  if (n->unlearnt)
    diag_warn(d, "data", path,
              "%lld conversation%s left out, because nothing in %s is learnt",
              (long long)n->unlearnt, n->unlearnt == 1 ? " is" : "s are",
              n->unlearnt == 1 ? "it" : "them");
  if (n->bad)
    diag_warn(d, "data", path,
              "%lld conversation%s left out, because %s cannot be used; the first: %s",
              (long long)n->bad, n->bad == 1 ? " is" : "s are",
              n->bad == 1 ? "it" : "they", n->first_bad);
}

/* A row of the run holds the longest conversation, unless the plan says what becomes of
 * such a one. */
static weft_status fits(const ChatData *c, const ChatCounts *n, weft_error *e) {
  const Packed *p = &c->lp->plan.packed;
  if (!p->size || p->too_long != TOO_LONG_ERROR || n->longest <= p->size) return WEFT_OK;
  return err_set(
      e, WEFT_EPLAN,
      "%s: the conversation has %lld tokens, more than packed.size = %lld; say "
      "packed = { ..., too_long = \"truncate\" } or \"drop\", or max_length "
      "here",
      n->longest_at, (long long)n->longest, (long long)p->size);
}

/* The model has an embedding for each token. */
static weft_status is_known(const ChatData *c, const ChatCounts *n, weft_error *e) {
  if (n->top < c->vocab) return WEFT_OK;
  return err_set(
      e, WEFT_EPLAN,
      "%s: the token \"%s\" has the id %lld, and the model has ids below %lld: the "
      "tokenizer has tokens that the model was made without. Of weights of Hugging Face "
      "embedding and head grow by weft.hf { \"DIR\", vocab_size = %lld, new_tokens = "
      "\"mean\" }; a model without weights needs a vocab_size of %lld or more",
      n->top_at, n->top_text, (long long)n->top, (long long)c->vocab,
      (long long)n->top + 1, (long long)n->top + 1);
}

/* The same data as token files. */
static void use_files(ChatData *c, const char *name) {
  DataSpec *s = c->spec;
  const char **files = NEW_N(c->arena, const char *, c->set.n);
  for (int i = 0; i < c->set.n; i++)
    files[i] =
        arena_printf(c->arena, CHAT_CACHE "/%s/%s", name, chat_cache_file(c->arena, i));
  s->kind = DATA_TOKENS;
  s->format = TOKENS_MEGATRON;
  s->names = s->files;
  s->files = files;
  s->nfiles = c->set.n;
}

static weft_status prepare_set(ChatData *c, Diags *d, weft_error *e) {
  LangPlan *lp = c->lp;
  ChatCounts n;
  const char *name;
  bool has;
  TRY(state_protect(lp->state, read_fields, c, e));
  cut_as_rows_do(c);
  TRY(find_tokenizer(c, e));
  TRY(find_files(c, e));
  TRY(name_folder(c, &name, e));
  TRY(find_folder(c, &name, &n, &has, e));
  if (!has) TRY(write_files(c, name, &n, e));
  warn(c, &n, d);
  TRY(is_known(c, &n, e));
  TRY(fits(c, &n, e));
  use_files(c, name);
  return WEFT_OK;
}

/* What is wrong with the fields is said at their line of the plan. */
static weft_status prepare(LangPlan *lp, DataSpec *spec, bool val, int64_t vocab,
                           Diags *d, weft_error *e) {
  ChatData c = {.lp = lp, .spec = spec, .val = val, .vocab = vocab, .arena = lp->arena};
  weft_status st = prepare_set(&c, d, e);
  if (st != WEFT_EPLAN || *e->file) return st;
  diag_error(d, "data", val ? "data.val" : "data", "%s", e->text);
  err_clear(e);
  return st;
}

weft_status chat_plan_tokenizer(LangPlan *lp, const char **path, weft_error *e) {
  ChatData c = {.lp = lp, .arena = lp->arena};
  TRY(state_protect(lp->state, read_fields, &c, e));
  TRY(find_tokenizer_file(&c, e));
  *path = c.set.tokenizer;
  return WEFT_OK;
}

weft_status chat_plan_own_tokenizer(LangPlan *lp, const char **path, weft_error *e) {
  ChatData c = {.lp = lp, .arena = lp->arena};
  *path = NULL;
  TRY(state_protect(lp->state, read_fields, &c, e));
  if (!c.named) return WEFT_OK;
  TRY(find_tokenizer_file(&c, e));
  *path = c.set.tokenizer;
  return WEFT_OK;
}

weft_status chat_plan_data(LangPlan *lp, DataSpec *data, int64_t vocab, Diags *d,
                           weft_error *e) {
  if (data->val && data->val->kind == DATA_CHAT) {
    DataSpec *val = arena_copy(lp->arena, data->val, sizeof *val);
    val->dir = data->dir;
    val->folders = data->folders;
    val->nfolders = data->nfolders;
    data->val = val;
    TRY(prepare(lp, val, true, vocab, d, e));
  }
  return data->kind == DATA_CHAT ? prepare(lp, data, false, vocab, d, e) : WEFT_OK;
}
