/* chat_options.c - the template of the command line; see chat_options.h. */
#include "chat_options.h"

#include "bindings/plan_table/loaded_plan.h"

bool ends_in(const char *s, const char *end) {
  size_t n = s ? strlen(s) : 0, m = strlen(end);
  return n > m && strcmp(s + n - m, end) == 0;
}

bool chat_template_file(const Cli *cli) { return ends_in(cli->template, ".lua"); }

/* ---- the state ---- */

/* Evaluates the user's template. */
static weft_status run_file(const Cli *cli, Arena *a, LangState *s, weft_error *e) {
  Diags d = {.arena = a};
  weft_status st = state_run(s, &d, e);
  if (st == WEFT_EPLAN && d.list.n)
    return err_file(e, st, d.list.at[0].file ? d.list.at[0].file : cli->template,
                    d.list.at[0].line, "%s", d.list.at[0].summary);
  if (st == WEFT_OK) state_keep_plan(s);
  return st;
}

weft_status chat_state_open(const Cli *cli, Arena *a, LangOptions *o, LangState **out,
                            weft_error *e) {
  const char *path = cli->template ? cli->template : cli->tokenizer;
  const char *slash = strrchr(path, '/');
  const char *dir = slash ? arena_strn(a, path, (size_t)(slash - path) + 1) : "";
  *o = (LangOptions){.instruction_limit = INT64_C(20000000000), .stop = cli->stop};
  TRY(plan_state_new(o, a, path, dir, NULL, out, e));
  return chat_template_file(cli) ? run_file(cli, a, *out, e) : WEFT_OK;
}

/* ---- the spec of stdlib/chat ---- */

/* A date such as 2025-08-05 is a text, not a difference. */
static void push_value(lua_State *L, const char *s) {
  if (str_eq(s, "true") || str_eq(s, "false"))
    lua_pushboolean(L, str_eq(s, "true"));
  else
    lua_pushstring(L, s);
}

static void set_options(lua_State *L, const Cli *cli) {
  if (lua_getfield(L, -1, "options") != LUA_TTABLE) {
    lua_pop(L, 1);
    lua_newtable(L);
  }
  for (int i = 0; i < cli->noption; i++) {
    const char *eq = strchr(cli->option[i], '=');
    if (!eq) luaL_error(L, "--option takes NAME=VALUE, got \"%s\"", cli->option[i]);
    lua_pushlstring(L, cli->option[i], (size_t)(eq - cli->option[i]));
    push_value(L, eq + 1);
    lua_rawset(L, -3);
  }
  lua_setfield(L, -2, "options");
}

void chat_options_set(lua_State *L, const Cli *cli) {
  set_options(L, cli);
  if (!cli->template) return;
  if (!chat_template_file(cli)) {
    lua_pushstring(L, cli->template);
  } else {
    state_push_plan(state_of(L));
    if (!lua_isfunction(L, -1))
      luaL_error(L, "the file returns a %s, and not a function(messages, tools, options)",
                 luaL_typename(L, -1));
  }
  lua_setfield(L, -2, "template");
}
