/* fields_chat.c - fields of weft.chat whose values have a form of their own. What they
 * say is used when the conversations become a token file (bindings/chat). */
#include "schema.h"

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
