/* lib.h - library functions of Lua whose work depends on their arguments, rewritten so
 * that every step is counted and they can be interrupted. Results do not depend on time,
 * addresses or the locale. Plans and scripts have them. */
#ifndef WEFT_LIB_H
#define WEFT_LIB_H

#include <lauxlib.h>
#include <lua.h>

#include "vm/base/base.h"

/* Counts steps: for plans against their limit; for scripts it only polls for
 * interruption. */
typedef struct Meter {
  void (*charge)(lua_State *L, int64_t steps); /* raises at the limit */
  size_t longest;                              /* the longest result of string.rep */
} Meter;

/* Adds find, match, gmatch, gsub and rep, or concat, insert, move, remove, sort and
 * unpack, to the table on top. `m` must live as long as the state. */
void lib_string(lua_State *L, const Meter *m);
void lib_table(lua_State *L, const Meter *m);
/* Adds create, resume and wrap; only in the state of a plan. */
void lib_coroutine(lua_State *L);

/* Counts steps. Upvalue 1 of these functions is their Meter. */
void lib_charge(lua_State *L, int64_t steps);

/* ---- pattern.c ---- */

enum { MAX_CAPTURES = 32 };
typedef struct Capture {
  const char *at;
  ptrdiff_t n; /* length, or one of the special values below */
} Capture;
enum { CAPTURE_OPEN = -1, CAPTURE_POSITION = -2 };

/* A subject string, a pattern, and the captures so far. */
typedef struct Matcher {
  lua_State *L;
  const char *text, *text_end, *pattern, *pattern_end;
  int64_t steps; /* not counted yet */
  int depth, ncapture;
  Capture capture[MAX_CAPTURES];
} Matcher;

/* The end of the match that begins at `s`, or NULL. Raises for malformed patterns. */
const char *pattern_match(Matcher *m, const char *s);

#endif
