/* fields_loss.c - plan.loss: a name of stdlib/losses or a function, with options. What a
 * sum of losses is divided by, and which second model it reads, are known before the
 * function is called. */
#include "schema.h"

/* The text of a key at `t`, or NULL. */
static const char *text_of(Check *c, int t, const char *key) {
  if (!t) return NULL;
  bool is = field_push(c->L, t, key) == LUA_TSTRING;
  const char *s = is ? arena_str(c->arena, lua_tostring(c->L, -1)) : NULL;
  lua_pop(c->L, 1);
  return s;
}

/* A text of one of these names at key `key`; *out is its number. */
static void choose(Check *c, int t, const char *path, const char *key, const char *names,
                   const char *const *name, int n, int *out) {
  const char *at = arena_printf(c->arena, "%s.%s", path, key);
  if (field_push(c->L, t, key) != LUA_TNIL) {
    if (lua_type(c->L, -1) != LUA_TSTRING)
      check_type(c, at, names, -1);
    else if (check_name(c, names, at, lua_tostring(c->L, -1)))
      for (int i = 0; i < n; i++)
        if (str_eq(name[i], lua_tostring(c->L, -1))) *out = i;
  }
  lua_pop(c->L, 1);
}

static void choose_per(Check *c, int t, const char *path) {
  static const char *const name[] = {"tokens", "sequences", "pairs"};
  int per = (int)c->plan->loss.per;
  choose(c, t, path, "per", "tokens sequences pairs", name, LEN(name), &per);
  c->plan->loss.per = (LossPer)per;
}

static void choose_second(Check *c, int t, const char *path) {
  static const char *const name[] = {
      [SECOND_NONE] = "", [SECOND_COPY] = "copy", [SECOND_BASE] = "base"};
  int second = (int)c->plan->loss.second;
  choose(c, t, path, "reference", "copy base", name, LEN(name), &second);
  const char *teacher = text_of(c, t, "teacher");
  if (teacher && second != SECOND_NONE)
    diag_error(c->d, "option", arena_printf(c->arena, "%s.teacher", path),
               "a loss has one model beside the one that is trained, and reference says "
               "which");
  if (teacher) second = SECOND_TEACHER;
  c->plan->loss.second = (SecondKind)second;
  c->plan->loss.teacher = teacher;
}

/* The reference's losses, computed ahead, in the place of the reference. */
static void choose_file(Check *c, int t, const char *path) {
  const char *file = text_of(c, t, "reference_file");
  const char *at = arena_printf(c->arena, "%s.reference_file", path);
  if (!file) return;
  if (field_push(c->L, t, "reference") != LUA_TNIL || c->plan->loss.teacher)
    diag_error(c->d, "option", at,
               "has what a reference gave, and the plan says %s too: a loss reads one",
               c->plan->loss.teacher ? "teacher" : "reference");
  lua_pop(c->L, 1);
  c->plan->loss.second = SECOND_FILE;
  c->plan->loss.file = file;
}

/* Keeps the function on top of the stack, and the table of options at t or an empty one.
 */
static void keep(Check *c, int t) {
  c->lp->loss = luaL_ref(c->L, LUA_REGISTRYINDEX);
  if (t)
    lua_pushvalue(c->L, t);
  else
    lua_newtable(c->L);
  c->lp->loss_options = luaL_ref(c->L, LUA_REGISTRYINDEX);
}

/* The name is on top of the stack. */
static void named(Check *c, int t, const char *path) {
  lua_State *L = c->L;
  const char *name = check_name(c, LOSS_NAMES, path, lua_tostring(L, -1));
  if (!name) return;
  c->plan->loss.name = name;
  if (t) check_scope(c, t, name, path, 2);
  stdlib_push(L, lua_pushfstring(L, "losses/%s", name));
  int module = lua_gettop(L);
  choose_per(c, module, path);
  choose_second(c, module, path);
  if (t) choose_per(c, t, path), choose_second(c, t, path);
  if (t && str_eq(name, "dpo")) choose_file(c, t, path);
  if (str_eq(name, "distill") && !c->plan->loss.teacher)
    diag_error(c->d, "required", arena_printf(c->arena, "%s.teacher", path), "is missing")
        ->suggestion = "the folder of a model of Hugging Face, with the same vocabulary";
  field_push(L, module, "loss");
  keep(c, t);
}

static void own_function(Check *c, int t, const char *path) {
  c->plan->loss.name = "function";
  if (t) choose_per(c, t, path), choose_second(c, t, path), choose_file(c, t, path);
  keep(c, t);
}

/* loss = false, "dpo", { "dpo", beta = 0.1 }, f or { f, per = "sequences" } */
void field_loss(Check *c, int idx, const char *path) {
  lua_State *L = c->L;
  int top = lua_gettop(L);
  if (lua_isboolean(L, idx) && !lua_toboolean(L, idx)) return;
  idx = lua_absindex(L, idx);
  int t = lua_istable(L, idx) ? idx : 0;
  if (t)
    lua_rawgeti(L, t, 1);
  else
    lua_pushvalue(L, idx);
  if (lua_isfunction(L, -1))
    own_function(c, t, path);
  else if (lua_type(L, -1) == LUA_TSTRING)
    named(c, t, path);
  else
    check_type(c, path, "a name or a function, or a table that begins with one",
               t ? -1 : idx);
  lua_settop(L, top);
}

/* Pairs are of two documents in a row, which nothing takes apart. */
static void pair_rules(Check *c) {
  Plan *p = c->plan;
  const DataSpec *val = p->data.val;
  p->packed.pairs = true;
  if (p->packed.size && p->packed.too_long != TOO_LONG_ERROR &&
      p->packed.too_long != TOO_LONG_TRUNCATE)
    diag_error(c->d, "option", "packed.too_long",
               "would take one of a pair away, or add to it: \"error\" and \"truncate\" "
               "leave pairs whole");
  if (p->data.val_fraction > 0)
    diag_error(c->d, "unsupported", "data.val_fraction",
               "is not built for pairs: data.val names files for validation");
  for (const DataSpec *d = &p->data; d; d = d == val ? NULL : val)
    if (d->nweights > 1)
      diag_error(c->d, "unsupported", d == val ? "data.val" : "data",
                 "a blend of pairs is not built: name the files without weights");
}

static bool has_files(const DataSpec *d) { return d && d->kind != DATA_SYNTHETIC; }

/* Losses of sequences and pairs need sequences that hold one document. */
static void data_rules(Check *c) {
  Plan *p = c->plan;
  bool pairs = p->loss.per == LOSS_PER_PAIRS;
  if (p->loss.per == LOSS_PER_TOKENS) return;
  if (p->packed.on && !p->packed.alone)
    diag_error(c->d, "option", "packed",
               "a loss that is divided by sequences or pairs needs one document in each")
        ->suggestion = "packed = { size = batch.seq, alone = true }";
  else if (pairs && !p->packed.alone && (has_files(&p->data) || has_files(p->data.val)))
    diag_error(c->d, "required", "packed",
               "a loss of pairs needs whole documents, two of which are a pair")
        ->suggestion = "packed = { size = batch.seq, alone = true }";
  if (pairs) pair_rules(c);
}

/* Cross entropy, divided by label tokens. */
static bool by_tokens(const Plan *p) {
  return str_eq(p->loss.name, "cross_entropy") && p->loss.per == LOSS_PER_TOKENS;
}

/* A z-loss is of label tokens. */
static void token_rules(Check *c) {
  if (!str_eq(c->plan->loss.name, "cross_entropy") || by_tokens(c->plan)) return;
  if (field_push(c->L, PLAN_INDEX, "loss") == LUA_TTABLE) {
    field_push(c->L, lua_gettop(c->L), "z_loss");
    if (lua_tonumber(c->L, -1) > 0)
      diag_error(c->d, "not-built", "loss.z_loss",
                 "is built for a loss that is divided by label tokens")
          ->suggestion = "per = \"tokens\"";
    lua_pop(c->L, 1);
  }
  lua_pop(c->L, 1);
}

/* Conversations are pairs for a loss of pairs, and for no other. The table of their
 * fields is on top of the stack. */
static void chat_format(Check *c, const char *path) {
  bool pairs = c->plan->loss.per == LOSS_PER_PAIRS;
  const char *format = text_of(c, lua_gettop(c->L), "format");
  if (str_eq(format ? format : "", "preference") == pairs) return;
  diag_error(c->d, "option", arena_printf(c->arena, "%s.format", path),
             pairs ? "the loss is of pairs: a row has a chosen and a rejected answer"
                   : "rows with a chosen and a rejected answer are for a loss of pairs")
      ->suggestion = pairs ? "format = \"preference\"" : "loss = \"dpo\"";
}

static void chat_rules(Check *c) {
  const DataSpec *data = &c->plan->data;
  int top = lua_gettop(c->L);
  if (field_push(c->L, PLAN_INDEX, "data") == LUA_TTABLE) {
    if (data->kind == DATA_CHAT) chat_format(c, "data");
    if (data->val && data->val->kind == DATA_CHAT) {
      field_push(c->L, top + 1, "val");
      chat_format(c, "data.val");
    }
  }
  lua_settop(c->L, top);
}

/* A file has a number for each sequence of one stream. */
static void file_rules(Check *c) {
  const DataSpec *d = &c->plan->data;
  if (c->plan->loss.second != SECOND_FILE) return;
  if (d->nweights > 1 || (d->val && d->val->nweights > 1))
    diag_error(c->d, "unsupported", "loss.reference_file",
               "is not built for a blend of data: name the files without weights, or say "
               "reference = \"copy\"");
}

/* What the field cannot know of others: is called when all are checked. */
void loss_rules(Check *c) {
  LossPlan *loss = &c->plan->loss;
  const Adapter *a = &c->plan->adapter;
  bool said = false;
  chat_rules(c);
  if (!loss->name) return;
  if (field_push(c->L, PLAN_INDEX, "loss") == LUA_TTABLE)
    said = text_of(c, lua_gettop(c->L), "reference") != NULL;
  lua_pop(c->L, 1);
  if (loss->second == SECOND_COPY && !said && a->rank && !a->saved.n)
    loss->second = SECOND_BASE;
  if (loss->second == SECOND_BASE && a->saved.n)
    diag_error(c->d, "option", "loss.reference",
               "\"base\" is the model without its adapter, and adapter.modules_to_save "
               "changes it, too")
        ->suggestion = "reference = \"copy\"";
  if (loss->second == SECOND_BASE && !a->rank)
    diag_error(c->d, "option", "loss.reference",
               "\"base\" is the model without its adapter, and the plan has no adapter")
        ->suggestion = "reference = \"copy\"";
  if (loss->second == SECOND_COPY && a->rank && a->from)
    diag_error(c->d, "unsupported", "loss.reference",
               "a copy of a model with adapter.from is not built: it would be one of the "
               "base")
        ->suggestion = "\"base\"";
  file_rules(c);
  data_rules(c);
  token_rules(c);
  if (c->plan->loss_chunks != 0 && c->plan->loss_chunks != 1 && !by_tokens(c->plan))
    diag_error(
        c->d, "unsupported", "loss_chunks",
        "is built for the cross entropy of a plan without loss, or per = \"tokens\"")
        ->suggestion = "leave loss_chunks out";
}
