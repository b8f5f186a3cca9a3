/* fields_optimizer.c - betas, epsilons and learning rates. */
#include "schema.h"

#include <math.h>

void field_betas(Check *c, int idx, const char *path) {
  double v[2] = {0, 0};
  int n = field_list_length(c, idx, path, "a list of two numbers");
  if (n < 0) return;
  if (n != 2) {
    diag_error(c->d, "range", path, "expected two numbers, got %d", n);
    return;
  }
  for (int i = 0; i < 2; i++) {
    lua_rawgeti(c->L, idx, i + 1);
    v[i] = lua_tonumber(c->L, -1);
    const char *sub = field_item_path(c, path, i + 1);
    if (lua_type(c->L, -1) != LUA_TNUMBER || !(v[i] >= 0 && v[i] < 1))
      check_type(c, sub, "a number from 0 to below 1", -1);
    else if ((float)v[i] == 1)
      diag_error(c->d, "range", sub, "%.15g is 1 in f32, in which averages are computed",
                 v[i])
          ->suggestion = "at most 0.99999997";
    lua_pop(c->L, 1);
  }
  c->plan->opt.beta1 = v[0];
  c->plan->opt.beta2 = v[1];
}

void field_epsilons(Check *c, int idx, const char *path) {
  Optimizer *o = &c->plan->opt;
  double *to[] = {&o->epsilon, &o->least_rms};
  static const double least[] = {1e-30, 0}; /* the first divides */
  static const char *const want[] = {"a number from 1e-30 to 1", "a number from 0 to 1"};
  int n = field_list_length(c, idx, path, "a list of two numbers");
  if (n < 0) return;
  if (n != LEN(to)) {
    diag_error(c->d, "range", path, "expected two numbers, got %d", n);
    return;
  }
  for (int i = 0; i < n; i++) {
    lua_rawgeti(c->L, idx, i + 1);
    double v = lua_tonumber(c->L, -1);
    if (lua_type(c->L, -1) != LUA_TNUMBER || !(v >= least[i] && v <= 1))
      check_type(c, field_item_path(c, path, i + 1), want[i], -1);
    *to[i] = v;
    lua_pop(c->L, 1);
  }
}

/* The coefficients that the list at idx has. */
static void coefficients(Check *c, int idx, const char *path, double to[3]) {
  int n = field_list_length(c, idx, path, "a list of three numbers");
  if (n < 0) return;
  if (n != 3) {
    diag_error(c->d, "range", path, "expected three numbers, got %d", n);
    return;
  }
  for (int i = 0; i < n; i++) {
    lua_rawgeti(c->L, idx, i + 1);
    double v = lua_tonumber(c->L, -1);
    if (lua_type(c->L, -1) != LUA_TNUMBER || !(fabs(v) <= 1e3))
      check_type(c, field_item_path(c, path, i + 1), "a number from -1000 to 1000", -1);
    to[i] = v;
    lua_pop(c->L, 1);
  }
}

static bool first_is_list(Check *c, int idx) {
  if (lua_type(c->L, idx) != LUA_TTABLE) return false;
  bool is = lua_rawgeti(c->L, idx, 1) == LUA_TTABLE;
  lua_pop(c->L, 1);
  return is;
}

void field_coefficients(Check *c, int idx, const char *path) {
  Optimizer *o = &c->plan->opt;
  if (!first_is_list(c, idx)) {
    coefficients(c, idx, path, o->ns[0]);
    return;
  }
  int n = field_list_length(c, idx, path, "a list of rows of three numbers");
  if (n < 0) return;
  if (n > NS_ROWS) {
    diag_error(c->d, "range", path, "expected at most %d rows, got %d", NS_ROWS, n);
    return;
  }
  for (int i = 0; i < n; i++) {
    lua_rawgeti(c->L, idx, i + 1);
    coefficients(c, lua_gettop(c->L), field_item_path(c, path, i + 1), o->ns[i]);
    lua_pop(c->L, 1);
  }
  o->ns_rows = n;
}

/* ---- learning rate ---- */

#define LR(ID, name) ", weft." #name
static const char expected[] = "a number"
#include "vm/plan/lr.def"
    ;

/* Only one of the ways to say the same; none is an error if it is `needed`. */
static void one_of(Check *c, int idx, const char *path, const char *const *keys, int n,
                   bool needed) {
  const char *first = NULL;
  for (int i = 0; i < n; i++) {
    bool given = field_push(c->L, idx, keys[i]) != LUA_TNIL;
    lua_pop(c->L, 1);
    if (given && first)
      diag_error(c->d, "option", arena_printf(c->arena, "%s.%s", path, keys[i]),
                 "says the same as %s in another way: give one of them", first);
    if (given && !first) first = keys[i];
  }
  if (!first && needed)
    diag_error(c->d, "missing-field", arena_printf(c->arena, "%s.%s", path, keys[0]),
               "is missing, or %s", keys[1]);
}

static void check_ways(Check *c, int idx, const char *path, LrKind kind) {
  static const char *const warmup[] = {"warmup", "warmup_ratio", "warmup_tokens"};
  static const char *const low[] = {"min", "min_ratio"};
  static const char *const decay[] = {"decay", "decay_ratio"};
  one_of(c, idx, path, warmup, LEN(warmup), false);
  one_of(c, idx, path, low, LEN(low), false);
  one_of(c, idx, path, decay, LEN(decay), kind == LR_WSD);
}

void field_lr(Check *c, int idx, const char *path) {
  lua_State *L = c->L;
  LrSchedule *lr = &c->plan->opt.lr;
  if (lua_type(L, idx) == LUA_TNUMBER) {
    double v = lua_tonumber(L, idx);
    if (v >= 0 && v <= 1e3)
      *lr = (LrSchedule){.kind = LR_CONSTANT, .max = v};
    else
      check_type(c, path, "a number from 0 to 1000", idx);
    return;
  }
  const char *kind = mark_kind(L, idx);
  static const char *const kinds[] = {
#define LR(ID, name) #name,
#include "vm/plan/lr.def"
  };
  for (int i = 0; kind && i < LEN(kinds); i++) {
    if (strcmp(kind, kinds[i]) != 0) continue;
    *lr = (LrSchedule){.kind = (LrKind)i};
    if (!check_mark(c, idx, path)) return;
    check_scope(c, idx, kind, path, 1);
    check_ways(c, idx, path, lr->kind);
    if (lr->min > lr->max && lr->max > 0)
      diag_error(c->d, "range", arena_printf(c->arena, "%s.min", path),
                 "%g is above max = %g", lr->min, lr->max);
    return;
  }
  Diag *g = check_type(c, path, expected, idx);
  if (lua_istable(L, idx) && !kind) g->suggestion = "write weft.cosine before the table";
}
