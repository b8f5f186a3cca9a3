/* script_api.c - the table `weft` as scripts have it: the builders of plans, and what
 * gives objects. */
#include "script.h"

#include "lang.h"

static int has_no(lua_State *L) {
  return script_unknown(L, "weft");
}

int script_weft(lua_State *L) {
  luaL_checkversion(L);
  lua_newtable(L);
  builders_add(L);
  lua_createtable(L, 0, 2);
  lua_pushcfunction(L, has_no);
  lua_setfield(L, -2, "__index");
  lua_pushliteral(L, "weft");
  lua_setfield(L, -2, "__name");
  lua_setmetatable(L, -2);
  return 1;
}
