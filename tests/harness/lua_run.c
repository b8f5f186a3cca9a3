/* lua_run.c - Lua code of tests. */
#include "lua_run.h"

#include <check.h>
#include <lauxlib.h>

#include "bindings/runner/runner.h"
#include "scratch.h"

static const char prelude[] =
    "function same(got, want)\n"
    "  if got ~= want then error(string.format('%s, not %s', tostring(got),\n"
    "    tostring(want)), 2) end\n"
    "end\n"
    "function prints(value, text)\n"
    "  local got = tostring(value)\n"
    "  if got ~= text then error('it prints\\n' .. got .. '\\nnot\\n' .. text, 2) end\n"
    "end\n"
    "function says(value, text)\n"
    "  local got = tostring(value)\n"
    "  if not got:find(text, 1, true) then\n"
    "    error('it prints\\n' .. got .. '\\nwithout\\n' .. text, 2) end\n"
    "end\n"
    "function raises(text, f, ...)\n"
    "  local ok, e = pcall(f, ...)\n"
    "  if ok then error('nothing was raised', 2) end\n"
    "  if not tostring(e):find(text, 1, true) then\n"
    "    error('it raised\\n' .. tostring(e) .. '\\nnot\\n' .. text, 2) end\n"
    "end\n"
    "weft = require 'weft'\n";

static void run(lua_State *L, const char *code, const char *name) {
  lua_pushcfunction(L, script_handler);
  int status = luaL_loadbuffer(L, code, strlen(code), name);
  if (status == LUA_OK) status = lua_pcall(L, 0, 0, 1);
  if (status != LUA_OK) ck_abort_msg("%s", luaL_tolstring(L, -1, NULL));
  lua_settop(L, 0);
}

void lua_run(const char *code) {
  lua_State *L = script_new(NULL);
  ck_assert_ptr_nonnull(L);
  lua_pushstring(L, WEFT_SOURCE_DIR "/plans/");
  lua_setglobal(L, "PLANS");
  lua_pushfstring(L, "%s/", scratch_dir);
  lua_setglobal(L, "SCRATCH");
  run(L, prelude, "=prelude");
  run(L, code, "=test");
  lua_close(L);
}
