/* model.c - from plan.model to a build function and a config. The model may be a preset,
 * an architecture of the library, a Hugging Face folder or a function of the plan. Config
 * keys have the names of Hugging Face's config.json; an architecture has their defaults,
 * aliases and checks. */
#include "model_int.h"

#include <stdio.h>
#include <unistd.h>

#include "vm/base/absent.h"

/* ---- architectures and presets ---- */

bool push_architecture(lua_State *L, const char *name) {
  int top = lua_gettop(L);
  if (stdlib_push(L, lua_pushfstring(L, "models/%s", name)) && lua_istable(L, -1)) {
    bool ok = field_push(L, -1, "build") == LUA_TFUNCTION;
    lua_pop(L, 1);
    lua_replace(L, top + 1);
    if (ok) return true;
  }
  lua_settop(L, top);
  return false;
}

static bool is_architecture(lua_State *L, const char *name) {
  bool is = push_architecture(L, name);
  if (is) lua_pop(L, 1);
  return is;
}

/* Pushes the table of a preset; false if there is none. */
static bool push_preset(lua_State *L, const char *name) {
  if (!stdlib_push(L, "presets")) return false;
  bool ok = field_push(L, -1, name) == LUA_TTABLE;
  lua_remove(L, -2);
  if (!ok) lua_pop(L, 1);
  return ok;
}

/* Starts the config with the defaults of the architecture `name`. */
static bool begin_config(Model *m, const char *name, const char *path) {
  lua_State *L = m->L;
  if (!push_architecture(L, name)) {
    unknown_model(m, path, name);
    return false;
  }
  m->arch = lua_gettop(L);
  m->lp->arch = arena_str(m->arena, name);
  lua_newtable(L);
  m->config = lua_gettop(L);
  lua_newtable(L);
  m->written = lua_gettop(L);
  lua_newtable(L);
  m->ids = lua_gettop(L);
  if (field_push(L, m->arch, "defaults") == LUA_TTABLE)
    for (lua_pushnil(L); state_next(L, -2); lua_pop(L, 1)) {
      lua_pushvalue(L, -2);
      lua_pushvalue(L, -2);
      lua_rawset(L, m->config);
    }
  lua_pop(L, 1);
  return true;
}

static void end_config(Model *m, bool check) {
  lua_State *L = m->L;
  int errors = m->d->errors;
  config_ids(m);
  if (check) config_check(m);
  if (check && m->d->errors == errors) config_check_read(m);
  field_push(L, m->arch, "build");
  m->lp->build = luaL_ref(L, LUA_REGISTRYINDEX);
  lua_pushvalue(L, m->config);
  m->lp->config = luaL_ref(L, LUA_REGISTRYINDEX);
}

/* Layers for further tokens are the plan's: a model's own key adds none. */
static void warn_of_further_layers(Model *m, int t) {
  static const char *const keys[] = {"num_nextn_predict_layers", "num_mtp_layers"};
  for (int i = 0; i < LEN(keys); i++) {
    int type = field_push(m->L, t, keys[i]);
    lua_Integer n = type == LUA_TNUMBER ? lua_tointeger(m->L, -1) : 0;
    lua_pop(m->L, 1);
    if (n <= 0 || n == m->lp->plan.mtp.layers) continue;
    diag_warn(m->d, "no-effect", arena_printf(m->arena, "model.%s", keys[i]),
              "the model has %lld such layers, as plan.mtp says",
              (long long)m->lp->plan.mtp.layers)
        ->suggestion = "plan.mtp = { num_layers = N } adds them";
  }
}

/* ---- presets, folders, functions ---- */

static void from_name(Model *m, int t, const char *name) {
  lua_State *L = m->L;
  const char *arch = name;
  int preset = 0, errors = m->d->errors;
  if (push_preset(L, name) || (!is_architecture(L, name) && push_public(m, name))) {
    preset = lua_gettop(L);
    lua_rawgeti(L, preset, 1);
    arch = lua_tostring(L, -1);
  }
  if (!begin_config(m, arch, "model")) return;
  if (preset) config_overlay(m, preset, NULL);
  config_write(m, t);
  warn_of_further_layers(m, t);
  end_config(m, m->d->errors == errors);
}

static int block_size(lua_State *L, int t, int i) {
  int n = 0;
  if (field_push(L, t, "weight_block_size") == LUA_TTABLE) {
    lua_rawgeti(L, -1, i);
    n = (int)lua_tointeger(L, -1);
  }
  return n;
}

/* Forgets the codes that weights of a folder are in, if they are read as what they stand
 * for (vm/io/safetensors/st_type.h): the model has none. */
static void forget_codes(Model *m, int json) {
  lua_State *L = m->L;
  int top = lua_gettop(L);
  if (field_push(L, json, "quantization_config") == LUA_TTABLE) {
    int t = lua_gettop(L);
    bool named = field_push(L, t, "quant_method") == LUA_TSTRING;
    const char *method = named ? lua_tostring(L, -1) : "";
    bool blocks =
        str_eq(method, "fp8") && block_size(L, t, 1) == 128 && block_size(L, t, 2) == 128;
    if (blocks || str_eq(method, "mxfp4")) {
      lua_pushnil(L);
      lua_setfield(L, json, "quantization_config");
    }
  }
  lua_settop(L, top);
}

static void refuse_codes(Model *m, int json, const char *file) {
  lua_State *L = m->L;
  int top = lua_gettop(L);
  bool table = field_push(L, json, "quantization_config") == LUA_TTABLE;
  bool named = table && field_push(L, top + 1, "quant_method") == LUA_TSTRING;
  const char *scheme =
      named ? arena_printf(m->arena, " (quant_method = \"%s\")", lua_tostring(L, -1))
            : "";
  diag_error(m->d, "model", m->path, "%s: quantized weights cannot be trained%s", file,
             scheme)
      ->suggestion = "weights of mxfp4, or of fp8 in blocks of 128 x 128, are read; "
                     "adapter.base = \"nf4\" quantizes those of bf16, f16 and f32";
  lua_settop(L, top);
}

/* Warns about unknown keys of a file: the model may not compute what the file means. */
static void warn_unread(Model *m, int json, const char *file) {
  const char *list = NULL;
  bool codes = field_push(m->L, json, "quantization_config") != LUA_TNIL;
  lua_pop(m->L, 1);
  for (int i = 0; i < m->unread.n; i++) {
    const char *key = m->unread.at[i];
    bool says = strcmp(key, "quantization_config") == 0;
    bool mtp = strcmp(key, "num_nextn_predict_layers") == 0 && m->lp->plan.mtp.layers;
    if (says && codes) refuse_codes(m, json, file);
    if (!says && !mtp) list = list ? arena_printf(m->arena, "%s, %s", list, key) : key;
  }
  if (list)
    diag_warn(m->d, "model", m->path,
              "%s has keys that mean nothing to %s models here: %s", file, m->lp->arch,
              list);
}

/* Keeps the folder's config, with which hf_export.c compares that of the plan. */
static void keep_folder(Model *m, const char *dir, int json) {
  lua_State *L = m->L;
  m->lp->folder = arena_str(m->arena, dir);
  lua_pushvalue(L, json);
  m->lp->folder_file = luaL_ref(L, LUA_REGISTRYINDEX);
  lua_newtable(L);
  for (lua_pushnil(L); state_next(L, m->config);) {
    lua_pushvalue(L, -2);
    lua_insert(L, -2);
    lua_rawset(L, -4);
  }
  m->lp->folder_config = luaL_ref(L, LUA_REGISTRYINDEX);
}

/* True, and an error, of a file whose model has others beside the one of text. */
static bool has_text_model(Model *m, int json, const char *file, const char *type) {
  lua_State *L = m->L;
  bool has = field_push(L, json, "text_config") == LUA_TTABLE;
  const char *inner = NULL;
  if (has && field_push(L, -1, "model_type") == LUA_TSTRING)
    inner = arena_str(m->arena, lua_tostring(L, -1));
  lua_settop(L, json + 1);
  if (!has) return false;
  Diag *g = diag_error(m->d, "unsupported", m->path,
                       "%s: \"%s\" is a model of images or sound around one of text "
                       "(text_config), and models of text alone are trained here",
                       file, type);
  if (inner)
    g->suggestion = arena_printf(
        m->arena, "a folder of the model of text alone: its model_type is \"%s\"", inner);
  return true;
}

static int64_t vocab_of(lua_State *L, int config) {
  field_push(L, config, "vocab_size");
  int64_t n = lua_isinteger(L, -1) ? lua_tointeger(L, -1) : 0;
  lua_pop(L, 1);
  return n;
}

/* new_tokens = "mean": embedding and head get the rows that the folder has not. `had`:
 * its tokens. */
static void grow_vocabulary(Model *m, int t, int64_t had) {
  lua_State *L = m->L;
  int64_t has = vocab_of(L, m->config);
  if (field_push(L, t, "new_tokens") == LUA_TNIL) return;
  if (lua_type(L, -1) != LUA_TSTRING || !str_eq(lua_tostring(L, -1), "mean"))
    diag_error(m->d, "type", "model.new_tokens", "expected \"mean\", got %s",
               value_describe(m->arena, L, -1));
  else if (!m->lp->weights)
    diag_error(m->d, "option", "model.new_tokens",
               "is about the rows that weights have not, and none are read");
  else if (has <= had)
    diag_error(m->d, "option", "model.new_tokens",
               "nothing is new: the folder has %lld tokens, and so does the model",
               (long long)had)
        ->suggestion = "say how many tokens the model has: vocab_size";
  else
    m->lp->plan.grown = (VocabGrowth){had, has};
}

static void from_folder(Model *m, int t, const char *dir) {
  lua_State *L = m->L;
  int errors = m->d->errors;
  Folders in = lang_folders(m->lp);
  weft_error e = NO_ERROR;
  const char *hub = absent_hub(m->arena, dir);
  dir = folders_find(&in, m->arena, dir);
  const char *file = arena_printf(m->arena, "%s/config.json", dir);
  if (access(file, F_OK) == 0 && folders_hold(&in, file, &e) != WEFT_OK) {
    diag_error(m->d, "file", m->path, "%s: %s", file, e.text);
    return;
  }
  if (!hf_config_push(L, file, hub, m->path, m->d)) return;
  int json = lua_gettop(L);
  if (field_push(L, json, "model_type") != LUA_TSTRING) {
    diag_error(m->d, "model", m->path, "%s has no model_type", file);
    return;
  }
  const char *type = lua_tostring(L, -1);
  if (has_text_model(m, json, file, type) || !begin_config(m, type, m->path)) return;
  m->file = file;
  config_overlay(m, json, NULL);
  int64_t had = vocab_of(L, m->config);
  forget_codes(m, json);
  keep_folder(m, dir, json);
  warn_unread(m, json, file);
  config_write(m, t);
  warn_of_further_layers(m, t);
  end_config(m, m->d->errors == errors);
  if (field_push(L, t, "weights") != LUA_TNIL && !lua_isboolean(L, -1))
    diag_error(m->d, "type", "model.weights", "expected true or false, got %s",
               value_describe(m->arena, L, -1));
  bool weights = lua_isnil(L, -1) || lua_toboolean(L, -1);
  m->lp->weights = weights ? arena_str(m->arena, dir) : NULL;
  grow_vocabulary(m, t, had);
}

/* f(g, config): the other keys are its config, as written. */
static void from_function(Model *m, int fn, int t) {
  lua_State *L = m->L;
  lua_newtable(L);
  int config = lua_gettop(L);
  if (t)
    for (lua_pushnil(L); state_next(L, t); lua_pop(L, 1)) {
      if (lua_isinteger(L, -2) && lua_tointeger(L, -2) == 1) continue;
      lua_pushvalue(L, -2);
      lua_pushvalue(L, -2);
      lua_rawset(L, config);
    }
  m->lp->config = luaL_ref(L, LUA_REGISTRYINDEX);
  lua_pushvalue(L, fn);
  m->lp->build = luaL_ref(L, LUA_REGISTRYINDEX);
}

static void resolve_table(Model *m, int t, bool hf) {
  lua_State *L = m->L;
  m->hf = hf;
  lua_rawgeti(L, t, 1);
  if (lua_isfunction(L, -1) && !hf)
    from_function(m, lua_gettop(L), t);
  else if (lua_type(L, -1) == LUA_TSTRING && hf)
    from_folder(m, t, lua_tostring(L, -1));
  else if (lua_type(L, -1) == LUA_TSTRING)
    from_name(m, t, lua_tostring(L, -1));
  else
    diag_error(m->d, "type", "model", "the first item of weft.%s is %s, got %s",
               hf ? "hf" : "model",
               hf ? "a folder"
                  : "a preset, an architecture or a "
                    "function",
               value_describe(m->arena, L, -1))
        ->suggestion =
        hf ? "write weft.hf \"DIR\"" : "write weft.model { \"llama\", key = value }";
}

/* The teacher of plan.loss, a model of a folder: its build function and config. */
static void resolve_teacher(lua_State *L, LangPlan *lp, Diags *d) {
  if (lp->plan.loss.second != SECOND_TEACHER) return;
  int top = lua_gettop(L);
  LangPlan of = *lp;
  Model m = {.L = L, .lp = &of, .arena = d->arena, .d = d, .path = "loss.teacher"};
  m.hf = true;
  lua_newtable(L);
  from_folder(&m, lua_gettop(L), lp->plan.loss.teacher);
  lp->teacher_build = of.build == lp->build ? LUA_NOREF : of.build;
  lp->teacher_config = of.config == lp->config ? LUA_NOREF : of.config;
  lua_settop(L, top);
}

static void resolve_model(lua_State *L, LangPlan *lp, Diags *d) {
  Model m = {.L = L, .lp = lp, .arena = d->arena, .d = d, .path = "model"};
  int top = lua_gettop(L);
  lua_pushliteral(L, "model");
  lua_rawget(L, PLAN_INDEX);
  int v = lua_gettop(L);
  const char *kind = mark_kind(L, v), *hint, *bad = mark_bad(L, v, &hint);
  if (bad) {
    diag_error(d, "builder", "model", "%s", bad)->suggestion =
        hint ? arena_str(d->arena, hint) : NULL;
  } else if (lua_isfunction(L, v)) {
    from_function(&m, v, 0);
  } else if (str_eq(kind, "model") || str_eq(kind, "hf")) {
    resolve_table(&m, v, str_eq(kind, "hf"));
  } else if (!lua_isnil(L, v)) {
    Diag *g = diag_error(d, "type", "model",
                         "expected weft.model, weft.hf or a function, "
                         "got %s",
                         value_describe(d->arena, L, v));
    if (lua_type(L, v) == LUA_TSTRING) {
      const char *name = lua_tostring(L, v), *near = near_model(&m, name);
      g->suggestion =
          arena_printf(d->arena, "write weft.model \"%s\"", near ? near : name);
    }
    if (lua_istable(L, v)) g->suggestion = "write weft.model before the table";
  }
  lua_settop(L, top);
}

void model_resolve(lua_State *L, LangPlan *lp, Diags *d) {
  resolve_model(L, lp, d);
  resolve_teacher(L, lp, d);
}
