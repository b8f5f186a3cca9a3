/* fields.c - fields whose values have a form of their own: tp_plan, precision, packed
 * documents, lists, learning rates, files. */
#include "bindings/sandbox/length.h"
#include "schema.h"

#include <math.h>

/* ---- lists ---- */

int field_list_length(Check *c, int idx, const char *path, const char *want) {
  lua_State *L = c->L;
  idx = lua_absindex(L, idx);
  if (!lua_istable(L, idx)) {
    check_type(c, path, want, idx);
    return -1;
  }
  lua_Integer n = list_length(L, idx);
  if (n >= 0) return (int)n;
  diag_error(c->d, "type", path, "expected %s, got a table with other keys", want);
  return -1;
}

const char *field_item_path(Check *c, const char *path, int i) {
  return arena_printf(c->arena, "%s[%d]", path, i);
}

/* Texts of a list; NULL after a diagnostic. The list ends with NULL. */
static const char **text_list(Check *c, int idx, const char *path, const char *want,
                              int *count) {
  lua_State *L = c->L;
  idx = lua_absindex(L, idx);
  int n = field_list_length(c, idx, path, want);
  if (n < 0) return NULL;
  const char **out = NEW_N(c->arena, const char *, n + 1);
  for (int i = 0; i < n; i++) {
    lua_rawgeti(L, idx, i + 1);
    bool ok = lua_type(L, -1) == LUA_TSTRING;
    if (ok)
      out[i] = arena_str(c->arena, lua_tostring(L, -1));
    else
      check_type(c, field_item_path(c, path, i + 1), "a string", -1);
    lua_pop(L, 1);
    if (!ok) return NULL;
  }
  *count = n;
  return out;
}

void field_mesh_order(Check *c, int idx, const char *path) {
  int n;
  const char **axes = text_list(c, idx, path, "a list of axes", &n);
  if (!axes) return;
  if (n > AXIS_N) {
    diag_error(c->d, "range", path, "a mesh has at most %d axes, got %d", AXIS_N, n);
    return;
  }
  memcpy(c->plan->mesh.order, axes, sizeof *axes * (size_t)n);
}

void field_pp_layers(Check *c, int idx, const char *path) {
  if (lua_isinteger(c->L, idx)) {
    check_type(c, path, "a list with the layers of each stage", idx)->suggestion =
        "a number of layers is layers_per_stage";
    return;
  }
  int n = field_list_length(c, idx, path, "a list with the layers of each stage");
  if (n < 0) return;
  int *layers = NEW_N(c->arena, int, n + 1);
  for (int i = 0; i < n; i++) {
    int64_t v = 0;
    lua_rawgeti(c->L, idx, i + 1);
    check_int(c, -1, field_item_path(c, path, i + 1), 0, 1e6, &v);
    layers[i] = (int)v;
    lua_pop(c->L, 1);
  }
  c->plan->pp.layers = layers;
  c->plan->pp.nlayers = n;
}

void field_pp_layout(Check *c, int idx, const char *path) {
  PpPlan *pp = &c->plan->pp;
  if (lua_type(c->L, idx) != LUA_TSTRING) {
    check_type(c, path, "a string such as \"Et*3|(tt|)*29,t|L\"", idx);
    return;
  }
  const char *wrong, *text = arena_str(c->arena, lua_tostring(c->L, idx));
  int n;
  const int *layers = pp_layout(text, c->arena, &n, &wrong);
  if (!layers) {
    diag_error(c->d, "layout", path, "%s", wrong);
    return;
  }
  if (pp->layers) {
    diag_error(c->d, "alias", path, PP_BOTH, "layers", "layout");
    return;
  }
  pp->layout = text;
  pp->layers = layers;
  pp->nlayers = n;
}

void field_pp_modules(Check *c, int idx, const char *path) {
  int n = field_list_length(c, idx, path, "a list with a list of units for each stage");
  if (n < 0) return;
  const char *const **stages = NEW_N(c->arena, const char *const *, n + 1);
  for (int i = 0, count; i < n; i++) {
    lua_rawgeti(c->L, idx, i + 1);
    stages[i] =
        text_list(c, -1, field_item_path(c, path, i + 1), "a list of units", &count);
    lua_pop(c->L, 1);
    if (!stages[i]) return;
  }
  c->plan->pp.modules = (const char *const *const *)stages;
  c->plan->pp.nmodules = n;
}

void field_betas(Check *c, int idx, const char *path) {
  double v[2] = {0, 0};
  int n = field_list_length(c, idx, path, "a list of two numbers");
  if (n < 0) return;
  if (n != 2) {
    diag_error(c->d, "range", path, "expected two numbers, got %d", n);
    return;
  }
  for (int i = 0; i < 2; i++) {
    lua_rawgeti(c->L, idx, i + 1);
    v[i] = lua_tonumber(c->L, -1);
    const char *sub = field_item_path(c, path, i + 1);
    if (lua_type(c->L, -1) != LUA_TNUMBER || !(v[i] >= 0 && v[i] < 1))
      check_type(c, sub, "a number from 0 to below 1", -1);
    else if ((float)v[i] == 1)
      diag_error(c->d, "range", sub, "%.15g is 1 in f32, in which averages are computed",
                 v[i])
          ->suggestion = "at most 0.99999997";
    lua_pop(c->L, 1);
  }
  c->plan->opt.beta1 = v[0];
  c->plan->opt.beta2 = v[1];
}

/* ---- tp_plan ---- */

/* An option of a style in a table { "colwise", gather_output = true }: with it the style
 * is another one. */
static const struct StyleOption {
  const char *key;
  TpStyle off, on;
} style_options[] = {{"gather_output", STYLE_COLWISE, STYLE_COLWISE_GATHER},
                     {"split_input", STYLE_ROWWISE, STYLE_ROWWISE_REP}};

static void style_option(Check *c, const char *path, const char *key, int v,
                         TpRule *rule) {
  static const char *const names[] = {"gather_output", "split_input"};
  for (int i = 0; i < LEN(style_options); i++) {
    const struct StyleOption *o = &style_options[i];
    if (strcmp(o->key, key) != 0) continue;
    const char *sub = arena_printf(c->arena, "%s.%s", path, key);
    if (!lua_isboolean(c->L, v))
      check_type(c, sub, "true or false", v);
    else if (rule->style != o->off && rule->style != o->on)
      diag_error(c->d, "tp-plan", sub, "is an option of %s, not of %s",
                 tp_style_name(o->off), tp_style_name(rule->style));
    else
      rule->style = lua_toboolean(c->L, v) ? o->on : o->off;
    return;
  }
  diag_error(c->d, "unknown-field", path, "a style has no option \"%s\"", key)
      ->suggestion = name_suggest(key, names, LEN(names));
}

/* The options of the style whose name is the first item of the table at `t`. */
static void style_table(Check *c, int t, const char *path, TpRule *rule) {
  lua_State *L = c->L;
  int top = lua_gettop(L);
  if (!sorted_keys(L, t)) return;
  int keys = lua_gettop(L), n = (int)lua_rawlen(L, keys);
  for (int i = 0; i < n; i++, lua_settop(L, keys)) {
    lua_rawgeti(L, keys, i + 1);
    lua_pushvalue(L, -1);
    lua_rawget(L, t);
    if (lua_type(L, keys + 1) == LUA_TSTRING)
      style_option(c, path, lua_tostring(L, keys + 1), keys + 2, rule);
    else if (!lua_isinteger(L, keys + 1) || lua_tointeger(L, keys + 1) != 1)
      diag_error(c->d, "type", path, "a style is one name and options");
  }
  lua_settop(L, top);
}

static void tp_rule(Check *c, int t, int key, const char *path, TpRule *rule,
                    uint8_t *with) {
  lua_State *L = c->L;
  bool later = false;
  *rule = (TpRule){.pattern = arena_str(c->arena, lua_tostring(L, key))};
  lua_pushvalue(L, key);
  rule->from_default = mark_is_default(L, t);
  int value = lua_gettop(L);
  if (lua_istable(L, value)) lua_rawgeti(L, value, 1);
  if (lua_type(L, -1) != LUA_TSTRING) {
    check_type(c, path, "the name of a style, or { \"colwise\", option = value }", value);
    return;
  }
  const char *name = lua_tostring(L, -1);
  int style = tp_style_parse(name, &later);
  if (style >= 0 && !later) {
    rule->style = (TpStyle)style;
    *with = (uint8_t)tp_style_with(name);
    if (lua_istable(L, value)) style_table(c, value, path, rule);
  } else if (later) {
    not_built(c, path, arena_printf(c->arena, "the style \"%s\"", name));
  } else {
    int n = 0;
    const char *const *names = tp_style_names();
    while (names[n]) n++;
    Diag *g = diag_error(c->d, "unknown-name", path, "unknown style \"%s\"", name);
    g->suggestion = name_suggest(name, names, n);
    if (!g->suggestion)
      g->suggestion = "one of: colwise, rowwise, replicate, sequence_parallel, "
                      "embedding_rowwise, colwise_rep, rowwise_rep, packed_colwise, "
                      "packed_rowwise";
  }
}

void field_tp_plan(Check *c, int t, const char *path) {
  lua_State *L = c->L;
  if (!lua_istable(L, t)) {
    check_type(c, path, "a table of pattern = style, such as weft.tp_plan \"llama\"", t);
    return;
  }
  if (c->plan->tp) {
    diag_error(c->d, "alias", path, "tp_plan is given twice");
    return;
  }
  if (!check_mark(c, t, path)) return;
  t = lua_absindex(L, t);
  if (!sorted_keys(L, t)) {
    diag_error(c->d, "type", path, "the keys of tp_plan are patterns (strings)");
    return;
  }
  int keys = lua_gettop(L), n = (int)lua_rawlen(L, keys), rules = 0;
  TpRule *rule = NEW_N(c->arena, TpRule, n + 1);
  uint8_t *with = NEW_N(c->arena, uint8_t, n + 1);
  for (int i = 0; i < n; i++, lua_settop(L, keys)) {
    lua_rawgeti(L, keys, i + 1);
    const char *sub = path_join(c->arena, path, L, keys + 1);
    if (lua_type(L, keys + 1) != LUA_TSTRING) {
      diag_error(c->d, "type", sub, "the keys of tp_plan are patterns (strings)");
      continue;
    }
    lua_pushvalue(L, keys + 1);
    lua_rawget(L, t);
    tp_rule(c, t, keys + 1, sub, &rule[rules], &with[rules]);
    rules++;
  }
  lua_settop(L, keys - 1);
  c->plan->tp = rule;
  c->plan->tp_with = with;
  c->plan->ntp = rules;
}

/* ---- others ---- */

/* A loss scale that nothing reads would be believed. */
static void scale_options(Check *c, int idx, const char *path) {
  static const char *const keys[] = {"init_scale",      "growth_factor", "backoff_factor",
                                     "growth_interval", "hysteresis",    "min_scale"};
  for (int i = 0; i < LEN(keys) && c->plan->dtype != DT_F16; i++) {
    if (field_push(c->L, idx, keys[i]) != LUA_TNIL)
      diag_error(
          c->d, "option", arena_printf(c->arena, "%s.%s", path, keys[i]),
          "gradients of %s are not scaled; param_dtype = \"f16\" needs a loss scale",
          dtype_name(c->plan->dtype));
    lua_pop(c->L, 1);
  }
}

void field_precision(Check *c, int idx, const char *path) {
  if (lua_istable(c->L, idx) && lua_rawlen(c->L, idx) > 0) {
    check_type(c, path, "a name, or a table with param_dtype", idx)->suggestion =
        "a name alone is written without braces";
  } else if (lua_istable(c->L, idx)) {
    check_scope(c, idx, "precision", path, 1);
    scale_options(c, idx, path);
  } else if (lua_type(c->L, idx) != LUA_TSTRING) {
    check_type(c, path, "\"f32\", \"bf16\", \"f16\" or a table", idx);
  } else {
    const char *names = schema_find("precision", "param_dtype")->names;
    const char *name = check_name(c, names, path, lua_tostring(c->L, idx));
    if (name) c->plan->dtype = dtype_named(name);
  }
}

/* Of a strategy. */
void field_mp_policy(Check *c, int idx, const char *path) {
  int top = lua_gettop(c->L);
  bool both = field_push(c->L, PLAN_INDEX, "precision") != LUA_TNIL ||
              field_push(c->L, PLAN_INDEX, "mp_policy") != LUA_TNIL;
  lua_settop(c->L, top);
  if (both)
    diag_error(c->d, "alias", path,
               "is another name of plan.precision, which is given too");
  field_precision(c, idx, path);
}

/* What goes with `size` alone, and what does not go with it. */
static void packed_size(Check *c, int idx, const char *path) {
  const char *key = c->plan->packed.size ? "labels" : "too_long";
  bool given = field_push(c->L, idx, key) != LUA_TNIL;
  lua_pop(c->L, 1);
  if (!given || (c->plan->packed.size && c->plan->packed.within)) return;
  path = arena_printf(c->arena, "%s.%s", path, key);
  if (c->plan->packed.size)
    diag_error(c->d, "option", path,
               "with size labels are of their token's document, as \"within\" says");
  else
    diag_error(c->d, "option", path, "says what size needs, which is not given");
}

/* packed = { eot = 2 } or { bos = 1 }: how the data separates documents; { size = 512 }:
 * they are not cut. */
void field_packed(Check *c, int idx, const char *path) {
  Packed *p = &c->plan->packed;
  if (lua_isboolean(c->L, idx) && !lua_toboolean(c->L, idx)) return;
  if (!lua_istable(c->L, idx)) {
    check_type(
        c, path,
        "{ eot = the token that ends a document }, { bos = ... } or { size = ... }", idx);
    return;
  }
  check_scope(c, idx, "packed", path, 1);
  p->on = true;
  bool bos = field_push(c->L, idx, "bos") != LUA_TNIL;
  bool eot = field_push(c->L, idx, "eot") != LUA_TNIL;
  packed_size(c, idx, path);
  if (bos == eot && !(p->size && !bos))
    diag_error(c->d, bos ? "alias" : "required", path,
               bos ? "eot and bos both say where documents end; give one of them: eot if "
                     "the token between belongs to the document before it"
                   : "which token separates documents? eot: the last one of each, bos: "
                     "the first one of each");
  p->first = bos;
  p->separated = bos || eot;
  p->separator = (int32_t)lua_tonumber(c->L, eot ? -1 : -2);
  lua_pop(c->L, 2);
}

/* files = "a.txt" or { "a.txt", "b/_.txt" }; weft.text "a.txt" gives item 1. */
void field_files(Check *c, int idx, const char *path) {
  DataSpec *data = &c->plan->data;
  if (lua_type(c->L, idx) == LUA_TSTRING) {
    const char **one = NEW_N(c->arena, const char *, 2);
    one[0] = arena_str(c->arena, lua_tostring(c->L, idx));
    data->files = one;
    data->nfiles = 1;
    return;
  }
  int n;
  const char **list = text_list(c, idx, path, "a file name or a list of them", &n);
  if (!list) return;
  if (n == 0) diag_error(c->d, "required", path, "which files? The list is empty");
  data->files = list;
  data->nfiles = n;
}

/* weights = { 0.7, 0.3 }: one for each of the files, which are counted when all fields
 * were seen. */
void field_weights(Check *c, int idx, const char *path) {
  DataSpec *data = &c->plan->data;
  int n = field_list_length(c, idx, path, "a list of numbers");
  if (n < 0) return;
  double *w = NEW_N(c->arena, double, n + 1);
  for (int i = 0; i < n; i++) {
    lua_rawgeti(c->L, idx, i + 1);
    w[i] = lua_type(c->L, -1) == LUA_TNUMBER ? lua_tonumber(c->L, -1) : 0;
    if (!(w[i] > 0 && w[i] < 1e15))
      check_type(c, field_item_path(c, path, i + 1), "a number above 0", -1);
    lua_pop(c->L, 1);
  }
  data->weights = w;
  data->nweights = n;
}

/* Names of NCCL's own list, "Ring,Tree" or "^tree". */
void field_nccl_names(Check *c, int idx, const char *path) {
  static const struct {
    const char *key, *words;
  } lists[] = {
#define INTEGER(key, variable, lo, hi, doc)
#define SWITCH(key, variable, doc)
#define WORD(key, variable, words, doc)
#define WORDS(key, variable, doc)
#define LIST(key, variable, words, doc) {#key, words},
#include "vm/plan/nccl.def"
  };
  const char *key = strrchr(path, '.') + 1, *words = "", *out = "";
  for (int i = 0; i < LEN(lists); i++)
    if (strcmp(lists[i].key, key) == 0) words = lists[i].words;
  if (lua_type(c->L, idx) != LUA_TSTRING) {
    check_type(c, path, "a name, or names with commas", idx);
    return;
  }
  const char *s = lua_tostring(c->L, idx);
  bool without = *s == '^';
  for (s += without;; s++) {
    size_t n = strcspn(s, ",");
    const char *one = check_name(c, words, path, arena_strn(c->arena, s, n));
    if (!one) return;
    out = arena_printf(c->arena, "%s%s%s", out, *out ? "," : without ? "^" : "", one);
    s += n;
    if (!*s) break;
  }
  field_set_text(schema_find("nccl", key), c->plan, out);
}

/* The GPU of a cluster. */
void field_gpu(Check *c, int idx, const char *path) {
  if (lua_type(c->L, idx) != LUA_TSTRING)
    check_type(c, path, "the name of a GPU", idx);
  else
    cluster_known(c->L, lua_tostring(c->L, idx), path, c->d);
}

int field_items(Check *c, const char *kind, int idx, const char *path) {
  lua_State *L = c->L;
  DataSpec *data = &c->plan->data;
  int n = (int)table_length(L, idx);
  if (strcmp(kind, "cluster") == 0 && n > 0) {
    lua_rawgeti(L, idx, 1);
    field_gpu(c, -1, path);
    lua_pop(L, 1);
    return 1;
  }
  const Field *list_of = schema_find(kind, "files");
  if (!list_of) return 0;
  const char **list = NEW_N(c->arena, const char *, n + 1);
  for (int i = 0; i < n; i++) {
    lua_rawgeti(L, idx, i + 1);
    if (lua_type(L, -1) == LUA_TSTRING)
      list[i] = arena_str(c->arena, lua_tostring(L, -1));
    else
      check_type(c, field_item_path(c, path, i + 1), "a file name", -1);
    lua_pop(L, 1);
  }
  bool named = field_push(L, idx, "files") != LUA_TNIL;
  lua_pop(L, 1);
  if (n > 0 && named)
    diag_error(c->d, "alias", path, "files are given both as items and as `files`");
  else if (n == 0 && !named)
    diag_error(c->d, "required", path, "which files? For example weft.%s \"data/*\"",
               kind);
  data->files = list;
  data->nfiles = n;
  return n;
}

/* Of a plan it stays below the plan's folder, as what it reads does. */
void field_checkpoint_dir(Check *c, int idx, const char *path) {
  const char *dir = lua_type(c->L, idx) == LUA_TSTRING ? lua_tostring(c->L, idx) : "";
  Checkpointing *to = &c->plan->checkpoint;
  if (!*dir) {
    check_type(c, path, "the name of a folder", idx);
    return;
  }
  bool named = lang_is_set(c->lp, path);
  to->within = named ? NULL : c->lp->state->dir;
  to->dir = named ? arena_str(c->arena, dir) : folders_below(c->arena, to->within, dir);
  if (!to->dir)
    diag_error(c->d, "outside", path,
               "\"%.100s\" is outside of the plan's folder; give the folder that it may "
               "be on the command line: --set checkpoint.dir=DIR",
               dir);
}
