/* lua.c - weft lua: a script with all of Lua, in which require "weft" needs no file. */
#include "cli.h"

#include "bindings/script.h"

weft_status run_script(lua_State *L, const Cli *cli, const char *path) {
  weft_error e;
  err_clear(&e);
  weft_status st = script_run(L, path, cli->script_argc, cli->script_argv, &e);
  if (st == WEFT_OK) return st;
  /* The whole text: that of the error is cut. */
  fflush(stdout);
  if (lua_gettop(L))
    complain("%s", lua_tostring(L, -1));
  else
    complain("%s%s%s", e.file, *e.file ? " " : "", e.text);
  return st;
}

int verb_lua(Cli *cli, Arena *arena) {
  ScriptHost host = {.stop = cli->stop};
  lua_State *L = script_new(&host);
  if (!L) {
    complain("out of memory");
    return weft_exit_code(WEFT_ENOMEM);
  }
  weft_status st = run_script(L, cli, cli->arg[0]);
  lua_close(L);
  return weft_exit_code(st);
}
