/* hf_export.c - writes the config.json of exported weights. */
#include "bindings/plan_table/json_value.h"
#include "bindings/sandbox/lua_fields.h"
#include "model.h"
#include "special_ids.h"

#include <stdio.h>

#include "vm/io/json_text.h"

/* How many layers behind the model predict further tokens. */
#define FURTHER_TOKENS "num_nextn_predict_layers"

typedef struct Export {
  LangPlan *lp;
  const char *dtype; /* "float32"; NULL: as in the folder */
  json_t *doc;       /* config.json of the folder, or the ids of special tokens */
  SpecialIds ids;
  Text *out;
  char needs[32]; /* an id that the class takes no null for; "": there is none */
  bool changed;   /* the document differs from the text of the file */
} Export;

static const char *torch_name(DType t) {
  return t == DT_F32    ? "float32"
         : t == DT_BF16 ? "bfloat16"
         : t == DT_F16  ? "float16"
                        : NULL;
}

/* ---- a model of the plan ---- */

static void push_architecture(lua_State *L, const LangPlan *lp) {
  stdlib_push(L, lua_pushfstring(L, "models/%s", lp->arch));
  lua_remove(L, -2);
}

static void push_ids(lua_State *L, const json_t *ids) {
  const char *key;
  json_t *id;
  lua_createtable(L, 0, SPECIAL_IDS);
  json_object_foreach((json_t *)ids, key, id) {
    if (json_is_null(id))
      lua_pushlightuserdata(L, NULL);
    else
      json_push(L, id);
    lua_setfield(L, -2, key);
  }
}

static void whole(lua_State *L, void *ud) {
  Export *x = ud;
  Json j = {.out = x->out, .pretty = true, .point = true, .python = true};
  stdlib_push(L, "models/export");
  field_push(L, -1, "whole");
  lua_pushstring(L, x->lp->arch);
  push_architecture(L, x->lp);
  lua_rawgeti(L, LUA_REGISTRYINDEX, x->lp->config);
  lua_pushstring(L, x->dtype);
  lua_pushlightuserdata(L, NULL);
  push_ids(L, x->doc);
  lua_call(L, 6, 1);
  if (x->lp->plan.mtp.layers) {
    set_integer(L, FURTHER_TOKENS, x->lp->plan.mtp.layers);
  }
  json_value(L, NULL, &j);
  text_add(x->out, "\n");
}

static weft_status of_plan(Export *x, weft_error *e) {
  bool ok = (x->doc = json_object()) != NULL, changed;
  for (int i = 0; ok && i < SPECIAL_IDS; i++)
    ok = json_object_set_new(x->doc, special_ids[i], json_null()) == 0;
  if (!ok || !special_ids_put(&x->ids, x->doc, false, &changed))
    return err_set(e, WEFT_ENOMEM, "out of memory");
  return state_protect(x->lp->state, whole, x, e);
}

/* ---- a model of a folder ---- */

/* Sets a key to the value on top, which is popped. */
static void change(lua_State *L, Export *x, const char *key) {
  Text text = {.alloc = x->out->alloc};
  Json j = {.out = &text, .point = true, .python = true};
  json_open(&j, NULL, '[');
  json_value(L, NULL, &j);
  json_close(&j, ']');
  json_t *list = text.oom ? NULL : json_text_python("", "", text.s, text.n, NULL);
  text_free(&text);
  int failed = json_object_set(x->doc, key, json_array_get(list, 0));
  json_decref(list);
  if (failed) luaL_error(L, "out of memory");
  x->changed = true;
}

static void changes(lua_State *L, void *ud) {
  Export *x = ud;
  push_architecture(L, x->lp);
  if (field_push(L, -1, "needs_id") == LUA_TSTRING)
    snprintf(x->needs, sizeof x->needs, "%s", lua_tostring(L, -1));
  lua_pop(L, 2);
  stdlib_push(L, "models/export");
  field_push(L, -1, "changes");
  push_architecture(L, x->lp);
  lua_rawgeti(L, LUA_REGISTRYINDEX, x->lp->folder_file);
  lua_rawgeti(L, LUA_REGISTRYINDEX, x->lp->folder_config);
  lua_rawgeti(L, LUA_REGISTRYINDEX, x->lp->config);
  lua_pushlightuserdata(L, NULL);
  lua_call(L, 5, 1);
  for (lua_pushnil(L); lua_next(L, -2);) change(L, x, lua_tostring(L, -2));
  const json_t *said = json_object_get(x->doc, FURTHER_TOKENS);
  int64_t layers = x->lp->plan.mtp.layers;
  if (!layers || json_integer_value(said) == layers) return;
  lua_pushinteger(L, layers);
  change(L, x, FURTHER_TOKENS);
}

/* Transformers 5 writes "dtype", earlier ones "torch_dtype", and each reads its own
 * first: both are set where a file has both, torch_dtype where it has none. */
static bool set_dtype(Export *x) {
  static const char *const key[] = {"dtype", "torch_dtype"};
  bool newer = json_object_get(x->doc, key[0]) != NULL;
  if (!x->dtype) return true;
  for (int i = 0; i < LEN(key); i++) {
    const json_t *has = json_object_get(x->doc, key[i]);
    bool is_read = has || (i == 1 && !newer);
    if (!is_read || str_eq(json_string_value(has), x->dtype)) continue;
    x->changed = true;
    if (json_object_set_new(x->doc, key[i], json_string(x->dtype)) != 0) return false;
  }
  return true;
}

/* A class that takes no null for an id has its own where the key is missing. */
static void drop_null(Export *x) {
  if (json_is_null(json_object_get(x->doc, x->needs))) {
    json_object_del(x->doc, x->needs);
    x->changed = true;
  }
}

/* What is written are weights, also where the folder has codes that stand for them. */
static void drop_codes(Export *x) {
  if (json_object_del(x->doc, "quantization_config") == 0) x->changed = true;
}

static weft_status of_folder(Export *x, weft_error *e) {
  Text path = {0};
  char *text;
  size_t n;
  text_printf(&path, "%s/config.json", x->lp->folder);
  if (path.oom) return err_set(e, WEFT_ENOMEM, "out of memory");
  weft_status st = file_read(x->out->alloc, path.s, FILE_CODE_MAX, &text, &n, e);
  if (st == WEFT_OK) {
    x->doc = json_text_python(path.s, "", text, n, e);
    st = !x->doc ? WEFT_EFILE : state_protect(x->lp->state, changes, x, e);
    if (st == WEFT_OK &&
        (!set_dtype(x) || !special_ids_put(&x->ids, x->doc, false, &x->changed)))
      st = err_set(e, WEFT_ENOMEM, "out of memory");
    if (st == WEFT_OK) drop_null(x), drop_codes(x);
    if (st == WEFT_OK && !x->changed) text_addn(x->out, text, n);
    if (st == WEFT_OK && x->changed) {
      json_text_to_python(x->doc, x->out);
      text_add(x->out, "\n");
    }
    mem_free(x->out->alloc, text, n + 1);
  }
  text_free(&path);
  return st;
}

weft_status lang_hf_config(LangPlan *lp, const json_t *ids, DType dtype, Text *out,
                           bool *known, weft_error *e) {
  Export x = {.lp = lp, .dtype = torch_name(dtype), .out = out};
  *known = lp->arch != NULL;
  if (!lp->arch) return WEFT_OK;
  TRY(special_ids_open(lp, ids, &x.ids, e));
  weft_status st = lp->folder ? of_folder(&x, e) : of_plan(&x, e);
  json_decref(x.doc);
  special_ids_close(&x.ids);
  if (st == WEFT_OK && out->oom) st = err_set(e, WEFT_ENOMEM, "out of memory");
  return st;
}

/* ---- modules that files have as one ---- */

void model_packed(lua_State *L, LangPlan *lp, HfPacked *out) {
  int top = lua_gettop(L);
  *out = (HfPacked){0};
  if (!lp->arch) return;
  push_architecture(L, lp);
  if (field_push(L, -1, "packed") == LUA_TTABLE)
    for (int i = 0; i < HF_PACKED && lua_rawgeti(L, -1, i + 1) == LUA_TSTRING; i++) {
      snprintf(out->text[i], sizeof out->text[i], "%s", lua_tostring(L, -1));
      out->name[i] = out->text[i];
      lua_pop(L, 1);
    }
  lua_settop(L, top);
}

typedef struct ListPacked {
  LangPlan *lp;
  HfPacked *out;
} ListPacked;

static void list_packed(lua_State *L, void *ud) {
  const ListPacked *x = ud;
  model_packed(L, x->lp, x->out);
}

weft_status lang_hf_packed(LangPlan *lp, HfPacked *out, weft_error *e) {
  return state_protect(lp->state, list_packed, &(ListPacked){lp, out}, e);
}
