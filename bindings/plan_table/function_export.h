/* function_export.h - stand-ins for functions of a plan outside of its sandbox. */
#ifndef WEFT_EXPORT_H
#define WEFT_EXPORT_H

#include "loaded_plan.h"

/* The first member of a plan's object, which owns its functions in other states. */
typedef struct ExportOwner {
  /* The plan that is loaded into the object at this address; NULL: it is closed or in
   * use. */
  const LangPlan *(*plan)(const struct ExportOwner *object);
} ExportOwner;

/* Gives every function in the plan's fields a number. False: out of memory. */
bool export_number_functions(LangState *s);
/* Pushes onto `to` the stand-in of the function at idx of a plan's state: a function that
 * raises an error when called. `owner`: index of the plan's object. */
void export_function(lua_State *from, int idx, lua_State *to, int owner);
/* Whether the value at idx is a stand-in. Never raises. */
bool export_is(lua_State *L, int idx);
/* Its place in the source, such as "plan.lua:12", and a hash of its code. */
const char *export_place(lua_State *L, int idx, uint64_t *hash);
/* Pushes the original function onto the state of its plan, which is returned; NULL if
 * that is not possible, with the reason in *why, which ends in "... is". Never raises. */
lua_State *export_push_original(lua_State *L, int idx, const char **why);

#endif
