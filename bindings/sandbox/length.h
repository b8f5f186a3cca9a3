/* length.h - the length operator of plans. Lua's own looks at how a table lies in memory:
 * with holes that depends on the seed of its hashes, which is new in every process. Here
 * the length depends on the keys alone. */
#ifndef WEFT_LENGTH_H
#define WEFT_LENGTH_H

#include <lua.h>
#include <stdbool.h>
#include <stddef.h>

/* The n with t[n] and without t[n + 1] that is found by doubling and halving; what `#`
 * says of a list. Without metamethods; never raises, given a free slot. */
lua_Integer table_length(lua_State *L, int t);
/* The same, or -1 if the table has other keys than 1 to n. */
lua_Integer list_length(lua_State *L, int t);
/* Replaces the function __pow of the metatable of texts and `rawlen` of the globals by
 * those that know lengths. The state is one of a plan from then on. */
void length_open(lua_State *L, int globals, int text_metatable);
bool length_is_open(lua_State *L);

/* ---- length_code.c ---- */
/* The code of lua_dump with this length operator, and its length. Pushes a value that
 * keeps it: no text, since long ones make each instruction of a plan cost more. Raises
 * for functions that do not have room for it. */
const char *length_code(lua_State *L, const char *code, size_t *n);
/* The same for the function on top, which was just loaded. Does nothing in the state of a
 * script, which has Lua's own. */
void length_function(lua_State *L);

/* How the constant begins that stands left of `^` where the program says `#`. What
 * follows names the operand for messages, as " (local 'x')". */
#define LENGTH_MARK "\0#"
enum { LENGTH_MARK_BYTES = 2 };

#endif
