/* fields_data.c - packed documents, names of files, and what share of samples each has.
 */
#include "bindings/sandbox/length.h"
#include "schema.h"

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
  const char **list = field_list_texts(c, idx, path, "a file name or a list of them", &n);
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
  bool instead = named && lang_is_set(c->lp, arena_printf(c->arena, "%s.files", path));
  if (instead) /* --set data.files takes the place of items */
    return n;
  if (n > 0 && named)
    diag_error(c->d, "alias", path, "files are given both as items and as `files`");
  else if (n == 0 && !named)
    diag_error(c->d, "required", path, "which files? For example weft.%s \"data/*\"",
               kind);
  data->files = list;
  data->nfiles = n;
  return n;
}

/* ---- conversations ---- which become a token file (bindings/chat) */

/* "messages", or { prompt = "question", response = "answer" }. */
void field_chat_format(Check *c, int idx, const char *path) {
  static const char *const keys[] = {"prompt", "response"};
  if (lua_type(c->L, idx) == LUA_TSTRING) {
    check_name(c, "messages sharegpt alpaca preference", path, lua_tostring(c->L, idx));
    return;
  }
  for (int i = 0; i < LEN(keys); i++) {
    if (field_push(c->L, idx, keys[i]) != LUA_TSTRING)
      check_type(c, path, "a name, or { prompt = \"COLUMN\", response = \"COLUMN\" }",
                 idx);
    lua_pop(c->L, 1);
  }
}

void field_chat_template(Check *c, int idx, const char *path) {
  int type = lua_type(c->L, idx);
  if (type != LUA_TSTRING && type != LUA_TFUNCTION)
    check_type(c, path, "a name or a function(messages, tools, options)", idx);
}

/* Which options there are is known to the template. */
void field_chat_options(Check *c, int idx, const char *path) {
  if (!lua_istable(c->L, idx))
    check_type(c, path, "a table of the template's options", idx);
}
