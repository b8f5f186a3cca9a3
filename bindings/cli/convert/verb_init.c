/* verb_init.c - weft init: a folder with a plan to begin with. */
#include "bindings/script/api_doc.h"
#include "bindings/script/library.h"
#include "convert.h"

static int plan_stubs(lua_State *L) {
  api_doc_stub(script_push_text(L));
  script_end_text(L);
  return 1;
}

static void provide(lua_State *L) {
  lua_pushcfunction(L, plan_stubs);
  library_provide(L, "plan_stubs");
}

int verb_init(Cli *cli, Arena *arena) {
  cli->output = cli->arg[0];
  return convert_run(cli, arena, "first/first", provide);
}
