/* key_row.h - a field of the plan in a key of plan_key.c: its value in Plan, as it was
 * written, or both. */
#ifndef WEFT_KEY_ROW_H
#define WEFT_KEY_ROW_H

#include "key_value.h"

/* A field in a key, by its value in Plan, as it is written, or both. Of what is written:
 * the field that its table is in, NULL for the plan, and its first other name. */
typedef struct KeyRow {
  const Field *f, *in, *alias;
  bool placed, written;
} KeyRow;

KeyRow key_row(const Field *f, const KeyJob *j);
/* Whether a field belongs in this key: those that influence it; for the key of fields
 * without a row, those that influence nothing else. */
bool key_has_row(const Field *f, const KeyJob *j);
/* Replaces the table at t by that of the field's scope. */
void key_enter_scope(lua_State *L, int t, const char **scope, const KeyRow *r);
/* Pushes the value of a field in the table at t, under its name or one from `alias` on.
 */
void key_push_written(lua_State *L, int t, const Field *f, const Field *alias);
/* Whether a function is on top, alone or with options. */
bool key_is_function(lua_State *L);
/* Appends the row; `scope` is that whose table is at t, NULL before the first one. */
void key_add_row(lua_State *L, int t, const char **scope, const KeyRow *r, KeyJob *j);

#endif
