/* function_export.h - stand-ins for functions of a plan outside of its sandbox. */
#ifndef WEFT_EXPORT_H
#define WEFT_EXPORT_H

#include "loaded_plan.h"

/* The object of a plan that functions outside belong to begins with this. */
typedef struct ExportOwner {
  /* What was loaded into the object at this address; NULL: it is closed or in use. */
  const LangPlan *(*plan)(const struct ExportOwner *object);
} ExportOwner;

/* Gives every function in the plan's fields a number. False: no memory. */
bool export_number_functions(LangState *s);
/* Pushes onto `to` what stands for the function at idx of a plan's state: a function that
 * raises when it is called. `owner` is the index of the plan's object. */
void export_function(lua_State *from, int idx, lua_State *to, int owner);
/* Whether the value at idx is one of those. Never raises. */
bool export_is(lua_State *L, int idx);
/* Its place, such as "plan.lua:12", and a hash of its code. */
const char *export_place(lua_State *L, int idx, uint64_t *hash);
/* Pushes the function that it stands for onto the state of its plan, which is returned;
 * NULL if that is not possible: *why ends "... is". Never raises. */
lua_State *export_push_original(lua_State *L, int idx, const char **why);

#endif
