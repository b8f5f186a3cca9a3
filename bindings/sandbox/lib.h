/* lib.h - functions of Lua's libraries whose work depends on their arguments, rewritten
 * so that every step is counted and can be interrupted. Results do not depend on time,
 * addresses or the locale. Plans and scripts have them. */
#ifndef WEFT_LIB_H
#define WEFT_LIB_H

#include <lauxlib.h>
#include <lua.h>

#include "vm/base/base.h"

/* What counts their steps: of a plan against its limit; for scripts it only looks whether
 * they were interrupted. */
typedef struct Meter {
  void (*charge)(lua_State *L, int64_t steps); /* raises when it is enough */
  size_t longest;                              /* text that string.rep may make */
} Meter;

/* Put find, match, gmatch, gsub and rep, or concat, insert, move, remove, sort and
 * unpack, into the table on top. `m` lives as long as the state. */
void lib_string(lua_State *L, const Meter *m);
void lib_table(lua_State *L, const Meter *m);
/* Puts create, resume and wrap there; in the state of a plan only. */
void lib_coroutine(lua_State *L);

/* Upvalue 1 of these functions is their meter. */
void lib_charge(lua_State *L, int64_t steps);

/* ---- pattern.c ---- */

enum { MAX_CAPTURES = 32 };
typedef struct Capture {
  const char *at;
  ptrdiff_t n; /* bytes, or one of those below */
} Capture;
enum { CAPTURE_OPEN = -1, CAPTURE_POSITION = -2 };

/* A text, a pattern, and what has matched. */
typedef struct Matcher {
  lua_State *L;
  const char *text, *text_end, *pattern, *pattern_end;
  int64_t steps; /* since the last charge */
  int depth, ncapture;
  Capture capture[MAX_CAPTURES];
} Matcher;

/* Where the match of the pattern that begins at `s` ends, or NULL. Raises for malformed
 * patterns. */
const char *pattern_match(Matcher *m, const char *s);

#endif
