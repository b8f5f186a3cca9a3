/* lua.c - weft lua: a script with all of Lua, in which require "weft" needs no file. */
#include "cli.h"

#include "bindings/script.h"

int verb_lua(Cli *cli, Arena *arena) {
  ScriptHost host = {.stop = cli->stop};
  weft_error e;
  err_clear(&e);
  lua_State *L = script_new(&host);
  if (!L) {
    complain("out of memory");
    return weft_exit_code(WEFT_ENOMEM);
  }
  weft_status st = script_run(L, cli->arg[0], cli->script_argc, cli->script_argv, &e);
  if (st != WEFT_OK) {
    /* The whole text: that of the error is cut. */
    fflush(stdout);
    if (lua_gettop(L))
      complain("%s", lua_tostring(L, -1));
    else
      complain("%s%s%s", e.file, *e.file ? " " : "", e.text);
  }
  lua_close(L);
  return weft_exit_code(st);
}
