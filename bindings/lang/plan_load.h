/* plan_load.h - from a plan file to what the compiler takes.
 *
 * lang_load evaluates the file in a private Lua state (source text only, no access to
 * files or the network, limits on instructions and memory), checks every field and fills
 * a Plan. The Lua state stays in LangPlan; lang_free only closes it. */
#ifndef WEFT_PLAN_LOAD_H
#define WEFT_PLAN_LOAD_H

#include "bindings/plan_table/loaded_plan.h"

/* WEFT_EPLAN: the plan is wrong, `d` has the errors with files and lines, and *out is
 * NULL. WEFT_EFILE, WEFT_EUSAGE (a malformed --set, a -D that the plan does not know),
 * WEFT_ELIMIT, WEFT_ENOMEM: `e` has the error. */
weft_status lang_load(const LangOptions *o, const char *path, LangPlan **out, Diags *d,
                      weft_error *e);
/* The same for a table in a Lua state, which is copied together with its functions; `v`
 * is not used after the call. */
weft_status lang_load_value(const LangOptions *o, const LangValue *v, LangPlan **out,
                            Diags *d, weft_error *e);
void lang_free(LangPlan *lp); /* NULL is allowed */
/* Checks the plan's table and fills lp->plan. */
weft_status lang_check_plan(LangPlan *lp, Diags *d, weft_error *e);

/* ---- plan_value.c ---- */
/* Copies the table into the plan's state and checks it. */
weft_status value_take(LangPlan *lp, const LangValue *v, Diags *d, weft_error *e);
/* A copy of `v` with its strings; members that are not set are taken from the plan that
 * it copies. */
LangValue value_origin(Arena *a, const LangValue *v);
/* Pushes a copy of the fields as they were written onto `to`, in which it may raise. It
 * is plain data; functions in it belong to the plan's object, at index `owner`, and can
 * run only in the state of a plan. */
void lang_push_spec(const LangPlan *lp, lua_State *to, int owner);

#endif
