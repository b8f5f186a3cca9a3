/* library.h - Lua files of stdlib that work for scripts and the prompt: reports, methods,
 * what the prompt says. They run in an environment of their own, with Lua's functions as
 * they were at first, so that whatever a script does to its globals does not change them.
 * They call functions such as string.format by name and no methods of texts, whose
 * metatable is the script's. Beside Lua's functions they have:
 *
 *   use(name)             the value of another file, or what library_provide gave
 *   fail(text)            raises at the place of the code that called the library
 *   expected(v, type, f)  raises if the argument v of a function f has another type
 *   suggest(text, names)  the name that was probably meant, or nil
 *   keys(t)               a list of the keys that are numbers, texts or booleans, sorted
 *   origin(f)             where a plan's function stands and the hash of its code; for
 *                         others nil and the name that Lua or weft have for it, if any
 *   builder(t)            the kind of builder that made a table ("adamw"), or nil
 *   box(value, meta)      a userdata with a metatable; unbox(u) is its value */
#ifndef WEFT_LIBRARY_H
#define WEFT_LIBRARY_H

#include <lua.h>

/* Takes the functions that Lua has now; the first call in a state counts. */
void library_open(lua_State *L);
/* Pushes what the file stdlib/NAME.lua returned, or what was provided. */
void library_push(lua_State *L, const char *name);
/* Pops a value, which is `name` for the library from now on. */
void library_provide(lua_State *L, const char *name);
/* Raises, as luaL_error does, at the place of the code that called the library: for
 * functions of C that methods in Lua call. */
int library_error(lua_State *L, const char *fmt, ...);

#endif
