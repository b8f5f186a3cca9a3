/* plan_act.c - plan:run and plan:verify, the methods that compute. */
#include "plan_object.h"
#include "reasons.h"
#include "bindings/script/script.h"

#define RUN_TYPE "weft.run"

/* ---- plan:run(steps, threads) ---- */

static int close_run(lua_State *L) {
  weft_run **r = luaL_checkudata(L, 1, RUN_TYPE);
  weft_run_close(*r);
  *r = NULL;
  return 0;
}

/* Pushes a userdata that closes the run when it is collected, also after an error. */
static weft_run **push_run(lua_State *L) {
  weft_run **r = lua_newuserdatauv(L, sizeof *r, 1);
  *r = NULL;
  set_gc(L, RUN_TYPE, close_run);
  /* Keeps the plan alive as long as its run. */
  lua_pushvalue(L, 1);
  lua_setiuservalue(L, -2, 1);
  return r;
}

static void add_step(lua_State *L, const weft_step *s) {
  lua_createtable(L, 0, 7);
  set_integer(L, "step", s->step);
  set_integer(L, "tokens", s->tokens);
  set_number(L, "loss", s->loss);
  set_number(L, "grad_norm", s->grad_norm);
  if (s->loss_scale > 0) {
    set_number(L, "loss_scale", s->loss_scale);
    set_boolean(L, "skipped", s->skipped);
  }
  set_number(L, "lr", s->lr);
  set_number(L, "ms", s->ms);
  set_number(L, "tokens_per_s", s->ms > 0 ? (double)s->tokens / s->ms * 1000 : 0);
  lua_rawseti(L, -2, s->step + 1);
}

int plan_run(lua_State *L) {
  plan_object_compiled(L);
  weft_plan *p = plan_object_self(L);
  weft_error e = NO_ERROR;
  int64_t steps = luaL_optinteger(L, 2, 0);
  bool of_plan = lua_isnoneornil(L, 2);
  weft_run_options o = {.size = sizeof o,
                        .threads = (int)luaL_optinteger(L, 3, 0),
                        .stop = (const volatile int *)script_stop(L)};
  weft_run **run = push_run(L);
  weft_status st = weft_run_open(p, &o, run, &e);
  if (st == WEFT_OK) st = weft_run_init(*run, &e);
  if (st == WEFT_OK && of_plan) st = weft_run_steps(*run, &steps, &e);
  lua_newtable(L);
  for (int64_t i = 0; st == WEFT_OK && i < steps; i++) {
    weft_step s;
    st = weft_run_step(*run, i, &s, &e);
    if (st == WEFT_OK) add_step(L, &s);
  }
  weft_run_close(*run);
  *run = NULL;
  return st == WEFT_OK ? 1 : reasons_raise(L, st, NULL, &e);
}

/* ---- plan:verify(ranks, steps, tolerance) ---- */

/* plan:verify: a difference is returned; a plan that cannot run raises an error. */
int plan_verify(lua_State *L) {
  weft_plan *p = plan_object_self(L);
  weft_verify_result r;
  weft_error e = NO_ERROR;
  weft_verify_options o = {.size = sizeof o,
                           .ranks = (int)luaL_optinteger(L, 2, 0),
                           .steps = (int)luaL_optinteger(L, 3, 0),
                           .tolerance = luaL_optnumber(L, 4, 0),
                           .stop = (const volatile int *)script_stop(L)};
  weft_status st = weft_verify(p, &o, &r, &e);
  if (st != WEFT_OK && !(st == WEFT_EPLAN && r.steps > 0))
    return reasons_raise(L, st, NULL, &e);
  lua_newtable(L);
  set_boolean(L, "ok", st == WEFT_OK);
  if (st != WEFT_OK) set_text(L, "first", e.text);
  set_integer(L, "ranks", r.ranks);
  set_integer(L, "steps", r.steps);
  set_integer(L, "tensors", r.tensors);
  set_number(L, "loss", r.loss);
  set_number(L, "grad_norm", r.grad_norm);
  set_number(L, "grad", r.grad);
  set_number(L, "param", r.param);
  set_number(L, "tolerance", r.tolerance);
  set_text(L, "worst", r.worst);
  set_text(L, "not_covered", r.not_covered);
  set_text(L, "rounding", r.rounding);
  return 1;
}
