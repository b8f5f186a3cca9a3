/* weft_table.c - the table `weft` of scripts: plan builders and constructors of objects.
 */
#include "runner.h"

#include "bindings/object/mesh_object.h"
#include "bindings/object/plan_object.h"
#include "bindings/sweep/sweep.h"
#include "bindings/script/library.h"

static int has_no(lua_State *L) { return script_unknown(L, "weft"); }

int script_weft(lua_State *L) {
  luaL_checkversion(L);
  library_open(L);
  mesh_object_open(L);
  sweep_open(L);
  lua_newtable(L);
  builders_add(L);
  lua_pushcfunction(L, mesh_object_make);
  lua_setfield(L, -2, "mesh");
  lua_pushcfunction(L, plan_object_load);
  lua_setfield(L, -2, "load");
  lua_pushcfunction(L, plan_object_make);
  lua_setfield(L, -2, "plan");
  lua_pushcfunction(L, sweep_grid_make);
  lua_setfield(L, -2, "grid");
  lua_pushcfunction(L, sweep_make);
  lua_setfield(L, -2, "sweep");
  lua_pushcfunction(L, sweep_best);
  lua_setfield(L, -2, "best");
  known_library(L, "weft");
  known_add(L, "weft");
  lua_pushglobaltable(L);
  known_globals(L, -1);
  known_add(L, "_G");
  lua_pop(L, 1);
  lua_createtable(L, 0, 2);
  lua_pushcfunction(L, has_no);
  lua_setfield(L, -2, "__index");
  lua_pushliteral(L, "weft");
  lua_setfield(L, -2, "__name");
  lua_setmetatable(L, -2);
  return 1;
}
