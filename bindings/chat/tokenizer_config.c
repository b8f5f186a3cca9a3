/* tokenizer_config.c - what a model's folder says of conversations. Its chat_template is
 * Jinja, which is not run: it is recognised by its hash, or it is an error. */
#include "chat.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "vm/base/sha256.h"
#include "vm/io/file.h"
#include "vm/io/json_text.h"

/* ---- reading ---- */

const char *tokenizer_folder(Arena *a, const char *path) {
  struct stat st;
  const char *slash = strrchr(path, '/');
  if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) return arena_str(a, path);
  return slash ? arena_strn(a, path, (size_t)(slash - path)) : ".";
}

/* "<s>", or an object with the token as its content. */
static const char *token_text(Arena *a, const json_t *v) {
  if (json_is_object(v)) v = json_object_get(v, "content");
  return json_is_string(v) ? arena_str(a, json_string_value(v)) : NULL;
}

/* A text, or a list of { name, template } with one called default. */
static const char *template_text(Arena *a, const json_t *v) {
  size_t i;
  json_t *one;
  json_array_foreach(v, i, one) {
    const char *name = json_string_value(json_object_get(one, "name"));
    if (name && strcmp(name, "default") == 0)
      return token_text(a, json_object_get(one, "template"));
  }
  return json_is_string(v) ? arena_str(a, json_string_value(v)) : NULL;
}

/* A tokenizer without a longest text says so by model_max_length = 10^30. */
static weft_status read_config(Arena *a, const char *path, TokenizerConfig *out,
                               weft_error *e) {
  char *s;
  size_t n;
  TRY(file_read(NULL, path, FILE_CODE_MAX, &s, &n, e));
  json_t *doc = json_text_reals(path, "", s, n, e);
  mem_free(NULL, s, n + 1);
  if (!doc) return WEFT_EFILE;
  out->path = path;
  out->bos = token_text(a, json_object_get(doc, "bos_token"));
  out->eos = token_text(a, json_object_get(doc, "eos_token"));
  out->pad = token_text(a, json_object_get(doc, "pad_token"));
  out->template = template_text(a, json_object_get(doc, "chat_template"));
  json_decref(doc);
  return WEFT_OK;
}

static weft_status read_jinja(Arena *a, const char *path, TokenizerConfig *out,
                              weft_error *e) {
  char *s;
  size_t n;
  TRY(file_read(NULL, path, FILE_CODE_MAX, &s, &n, e));
  out->path = path;
  out->template = arena_str(a, s);
  mem_free(NULL, s, n + 1);
  return WEFT_OK;
}

weft_status tokenizer_config_read(Arena *a, const char *tokenizer, TokenizerConfig *out,
                                  weft_error *e) {
  const char *folder = tokenizer_folder(a, tokenizer);
  const char *config = arena_printf(a, "%s/tokenizer_config.json", folder);
  const char *jinja = arena_printf(a, "%s/chat_template.jinja", folder);
  *out = (TokenizerConfig){.path = config};
  if (access(config, F_OK) == 0) TRY(read_config(a, config, out, e));
  return access(jinja, F_OK) == 0 ? read_jinja(a, jinja, out, e) : WEFT_OK;
}

/* ---- recognising ---- */

void chat_template_hash(const char *jinja, char hex[65]) {
  uint8_t sum[SHA256_BYTES];
  Sha256 s;
  jinja += strspn(jinja, " \t\r\n");
  size_t n = strlen(jinja);
  while (n && strchr(" \t\r\n", jinja[n - 1])) n--;
  sha256_begin(&s);
  sha256_add(&s, jinja, n);
  sha256_end(&s, sum);
  for (int i = 0; i < SHA256_BYTES; i++) snprintf(hex + 2 * i, 3, "%02x", sum[i]);
}

static void set_missing(lua_State *L, int table, const char *key, const char *value) {
  if (lua_getfield(L, table, key) == LUA_TNIL && value) {
    lua_pushstring(L, value);
    lua_setfield(L, table, key);
  }
  lua_pop(L, 1);
}

/* Of the options with which a recognised template has the text of the model's. */
static void set_recognised(lua_State *L, int options, int found) {
  for (lua_pushnil(L); lua_next(L, found); lua_pop(L, 1)) {
    if (lua_type(L, -2) != LUA_TSTRING) continue;
    lua_pushvalue(L, -2);
    if (lua_rawget(L, options) == LUA_TNIL) {
      lua_pushvalue(L, -3);
      lua_pushvalue(L, -3);
      lua_rawset(L, options);
    }
    lua_pop(L, 1);
  }
}

static void recognise(lua_State *L, int spec, int options, const TokenizerConfig *c) {
  char hex[65];
  if (!c->template)
    luaL_error(L, "%s has no chat_template; name one: --template chatml, or template =",
               c->path);
  chat_template_hash(c->template, hex);
  stdlib_push(L, "chat/chat");
  lua_getfield(L, -1, "recognize");
  lua_pushstring(L, hex);
  lua_call(L, 1, 2);
  if (lua_isnil(L, -2))
    luaL_error(
        L,
        "the chat_template of %s is none that weft has, and Jinja is not run: name "
        "the template that gives the same text (--template NAME), or write it as a "
        "Lua file that returns a function(messages, tools, options) (--template "
        "FILE.lua); docs/finetune.md has an example",
        c->path);
  lua_pushvalue(L, -2);
  lua_setfield(L, spec, "template");
  set_recognised(L, options, lua_gettop(L));
  lua_settop(L, options);
}

void tokenizer_config_apply(lua_State *L, const TokenizerConfig *c) {
  int spec = lua_gettop(L), options = spec + 1;
  luaL_checkstack(L, 12, NULL);
  lua_getfield(L, spec, "options");
  set_missing(L, options, "bos", c->bos);
  set_missing(L, options, "eos", c->eos);
  if (lua_getfield(L, spec, "template") == LUA_TNIL) {
    lua_settop(L, options);
    recognise(L, spec, options, c);
  }
  lua_settop(L, spec);
}
