/* sweep_int.h - what the files of weft.sweep share that touch the script. */
#ifndef WEFT_SWEEP_INT_H
#define WEFT_SWEEP_INT_H

#include "sweep.h"

/* The stack of weft.sweep: the options, then these. */
enum { OPTIONS = 1, OBJECT, AXES, SCORE, WHERE, PLAN };

/* ---- sweep_options.c ---- */
/* Fills AXES to PLAN; raises. */
void sweep_options(lua_State *L, Sweep *s);

/* ---- sweep_given.c ---- */
/* A plan for a judge, in the arena: of the file, object or table at idx, or a copy. */
weft_status sweep_load_plan(lua_State *L, int idx, const LangPlan *copy, Arena *a,
                            LangPlan **lp, Diags *d, weft_error *e);
void sweep_push_point(lua_State *L, const Sweep *s, int64_t point);
/* Judges the next point with plan = function(point), on this thread: the function belongs
 * to the script. */
void sweep_given_next(lua_State *L, Sweep *s);

#endif
