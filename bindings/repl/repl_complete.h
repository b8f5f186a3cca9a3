/* repl_complete.h - what the tab key offers. */
#ifndef WEFT_REPL_COMPLETE_H
#define WEFT_REPL_COMPLETE_H

#include <lua.h>

#include "edit.h"
#include "repl_scan.h"

enum { COMPLETIONS_MOST = 2000 };

typedef struct Completions {
  Arena *arena;
  int from; /* each match replaces the text from here to the cursor */
  VEC(const char *) match;
  const char *suffix; /* of the match that was added last */
} Completions;

/* Names, fields, values and file names that may stand at `cursor` of `text`, a chunk of
 * Lua, a ,command or a ?topic. Sorted. Reads tables, and the fields that weft's own
 * objects have, but calls no metamethod of anybody else. Nothing is raised: without
 * memory there are no matches. `c` has its arena. */
void repl_complete(lua_State *L, const char *text, int cursor, Completions *c);

/* The name of one of weft's objects after "weft.", or NULL. That the metatable is the one
 * in the registry tells it from what somebody else named so. */
const char *repl_object_name(lua_State *L, int idx);
/* Pushes the method that objects of this kind have by this name; false, with nothing
 * pushed, if there is none. */
bool repl_push_method(lua_State *L, const char *object, const char *name);

/* ---- repl_names.c: names that are not in Lua's tables ---- */

/* Adds `name` if it begins with the text from c->from on. */
void complete_add(Completions *c, const char *name, const char *prefix, size_t n,
                  const char *suffix);
void complete_fields(Completions *c, const char *scope, const char *prefix, size_t n,
                     const char *suffix);
/* Paths of a plan below "mesh." and so on; moves c->from behind the last dot. */
void complete_path(Completions *c, int from, const char *prefix, size_t n,
                   const char *suffix);
/* The values that a field takes: names of schema.def, schedules. */
void complete_values(Completions *c, const Field *f, const char *prefix, size_t n);
void complete_styles(Completions *c, const char *prefix, size_t n);
/* Names of files; moves c->from behind the last slash. `only`: an ending, or NULL. */
void complete_files(Completions *c, int from, const char *prefix, size_t n,
                    const char *only);

#endif
