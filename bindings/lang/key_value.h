/* key_value.h - values of a plan as bytes to compare, and for people. */
#ifndef WEFT_KEY_VALUE_H
#define WEFT_KEY_VALUE_H

#include "bindings/schema/schema.h"

/* Values are walked to this depth; what functions lead to below it is appended at the
 * end.
 */
enum { KEY_DEEPEST = 100 };

typedef struct KeyJob {
  const LangPlan *lp;
  Text *out;
  /* FOR_UNITS ...; 0: fields without a row in the schema, without addresses */
  unsigned what;
  bool
      whole; /* a value that is not seen whole is wrong, and -D counts where it is read */
  int nest;  /* depth */
  int inside; /* within how many functions, metatables and coroutines */
  /* Index of a table: object -> number, in the order in which they are met; true: a table
   * met outside of functions. And number -> object that is not walked yet. */
  int met;
  int objects, queued, done;
  int64_t again;     /* bytes of tables met again outside of functions */
  bool requires;     /* a function may call require */
  bool variables;    /* ... or may read what -D gives */
  const char *wrong; /* why there is no key */
  bool addressed;    /* a value is in it by its address */
} KeyJob;

/* Around all calls of a job, or of a part of it in which an object is the same wherever
 * it is met: key_begin pushes a table. */
void key_begin(lua_State *L, KeyJob *j);
void key_end(lua_State *L, KeyJob *j);
/* Appends digits; numbers are most of a key and printf would take most of the time. */
void key_digits(Text *out, int64_t v);
/* Appends the value at idx. */
void key_value(lua_State *L, int idx, KeyJob *j);
/* Appends what its functions depend on besides what they capture: one that calls require
 * may use any module of the plan; these, and variables, may hold what -D gives. */
void key_surroundings(lua_State *L, KeyJob *j);
/* Appends it for people, as `{ "norm", lr = 0.001 }`; functions by a hash of their key.
 */
void key_show(lua_State *L, int idx, KeyJob *j);
/* The same of the list items of the table on top, at t; of one name without braces. */
void key_show_list(lua_State *L, int t, KeyJob *j);

/* ---- inside of a key ---- */
/* key_value without the objects that are to follow; the items of a table. */
void key_inner(lua_State *L, int idx, KeyJob *j);
void key_table(lua_State *L, int t, KeyJob *j);

/* ---- key_function.c ---- */
/* Appends a function or a coroutine: the same bytes in every process for the same code
 * and captured values. */
void key_function(lua_State *L, int f, KeyJob *j);
/* Appends the objects that were too deep. */
void key_rest(lua_State *L, KeyJob *j);
/* Whether the object was met before: then its number is appended. */
bool key_met(lua_State *L, int idx, KeyJob *j);
/* Whether the object, which has just been met, is too deep: then it is for key_rest. */
bool key_later(lua_State *L, int idx, KeyJob *j);
/* Whether the table was met before outside of functions. */
bool key_again(lua_State *L, int t, KeyJob *j);

#endif
