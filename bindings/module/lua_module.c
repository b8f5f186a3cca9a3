/* lua_module.c - the entry of weft.so, with which require "weft" works in any Lua 5.4. It
 * uses the Lua functions of the program that loads it: a second copy of Lua in the
 * process would not share states with the first. */
#include "bindings/runner/runner.h"

/* The only name that the module exports. */
__attribute__((visibility("default"))) int luaopen_weft(lua_State *L) {
  return script_weft(L);
}
