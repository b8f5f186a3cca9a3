/* library.h - Lua files of stdlib for scripts and the prompt: reports, methods, output of
 * the prompt. They run in an environment of their own, with Lua's functions as they were
 * at the start, so that changes of a script's globals do not affect them. They call
 * functions such as string.format by name and no string methods, because the metatable of
 * strings belongs to the script. Besides Lua's functions they have:
 *
 *   use(name)             the value of another file, or of library_provide
 *   require(name)         the same: require "weft.models.llama" is use "models/llama"
 *   fail(text)            raises an error at the place that called the library
 *   expected(v, type, f)  raises an error if argument v of function f has another type
 *   suggest(text, names)  the name that was probably meant, or nil
 *   keys(t)               a sorted list of keys that are numbers, strings or booleans
 *   origin(f)             the place of a plan's function and a hash of its code; for
 * other functions nil and their name in Lua or weft, if any builder(t)            the
 * kind of builder that made a table ("adamw"), or nil box(value, meta)      a userdata
 * with a metatable; unbox(u) is its value */
#ifndef WEFT_LIBRARY_H
#define WEFT_LIBRARY_H

#include <lua.h>

/* Copies Lua's functions; only the first call in a state has an effect. */
void library_open(lua_State *L);
/* Pushes the value of stdlib/NAME.lua, or the one provided by library_provide. */
void library_push(lua_State *L, const char *name);
/* Pops a value, which the library gets as `name` from now on. */
void library_provide(lua_State *L, const char *name);
/* Raises an error, as luaL_error does, at the place that called the library: for C
 * functions that methods in Lua call. */
int library_error(lua_State *L, const char *fmt, ...);

#endif
