/* repl_print.h - values as the prompt shows them. */
#ifndef WEFT_REPL_PRINT_H
#define WEFT_REPL_PRINT_H

#include <lua.h>

#include "vm/base/base.h"

typedef struct PrintOptions {
  int depth; /* tables inside tables that are opened */
  int items; /* of one table that are shown */
  int lines; /* of an object's own text that are shown */
  int width; /* columns of the screen */
  bool colour;
} PrintOptions;

/* Adds the value at idx, without a newline at the end, to `out`. Keys are sorted; tables
 * that fit in the width stand on one line; a text that is not inside a table is as it is.
 * __tostring is the only metamethod that is called, in protected mode. Raises only when
 * memory runs out; `out` must belong to somebody who outlives that. */
void repl_print(lua_State *L, int idx, const PrintOptions *o, Text *out);
/* A text as Lua writes it, in quotes. */
void repl_quote(const char *s, size_t n, Text *out);
/* True for what may stand after a dot: a name that is not a word of the language. */
bool repl_is_name(const char *s, size_t n);
/* The words of the language, ends with NULL. */
extern const char *const repl_keywords[];

#endif
