/* result.c - gives result tables their methods; see result.h. */
#include "result.h"

#include "bindings/script/library.h"

void object_methods(lua_State *L, const char *object) {
  int methods = lua_gettop(L);
  library_push(L, lua_pushfstring(L, "objects/%s", object));
  lua_pushvalue(L, methods);
  lua_call(L, 1, 0);
  lua_settop(L, methods);
}
