/* key_value.h - values of a plan as bytes to compare, and for people. */
#ifndef WEFT_KEY_VALUE_H
#define WEFT_KEY_VALUE_H

#include "bindings/schema/schema.h"

typedef struct KeyJob {
  const LangPlan *lp;
  Text *out;
  /* FOR_UNITS ...; 0: fields without a row in the schema, without addresses */
  unsigned what;
  int nest, inside;  /* depth of tables; of functions */
  const char *wrong; /* why there is no key */
  bool addressed;    /* a value is in it by its address */
} KeyJob;

/* Appends digits; numbers are most of a key and printf would take most of the time. */
void key_digits(Text *out, int64_t v);
/* Appends the value at idx. */
void key_value(lua_State *L, int idx, KeyJob *j);
/* Appends it for people, as `{ "norm", lr = 0.001 }`; functions by a hash of their key.
 */
void key_show(lua_State *L, int idx, KeyJob *j);
/* The same of the list items of the table on top, at t; of one name without braces. */
void key_show_list(lua_State *L, int t, KeyJob *j);

#endif
