/* length.h - the length operator of plans. For tables with holes, Lua's own operator
 * depends on the table's layout in memory and so on the seed of its hashes, which differs
 * between processes. Here the length depends on the keys alone. */
#ifndef WEFT_LENGTH_H
#define WEFT_LENGTH_H

#include <lua.h>
#include <stdbool.h>
#include <stddef.h>

/* The result of `#` for a table: an n with t[n] and without t[n + 1], found by doubling
 * and halving. Without metamethods; never raises; needs a free slot. */
lua_Integer table_length(lua_State *L, int t);
/* The same, or -1 if the table has keys other than 1 to n. */
lua_Integer list_length(lua_State *L, int t);
/* Replaces __pow of the metatable of strings and the global `rawlen`, which makes this
 * the state of a plan. */
void length_open(lua_State *L, int globals, int text_metatable);
bool length_is_open(lua_State *L);

/* ---- length_code.c ---- */
/* Converts code from lua_dump to this length operator; *n is its length. Pushes a value
 * that keeps the result alive: not a string, because long strings make each instruction
 * of a plan cost more. Raises for functions that are too large. */
const char *length_code(lua_State *L, const char *code, size_t *n);
/* Converts the function on top, which was just loaded. Does nothing in the state of a
 * script, which has Lua's own operator. */
void length_function(lua_State *L);

/* The prefix of the constant that is the left operand of `^`. The rest names the operand
 * of `#` for messages, as " (local 'x')". */
#define LENGTH_MARK "\0#"
enum { LENGTH_MARK_BYTES = 2 };

#endif
