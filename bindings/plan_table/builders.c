/* builders.c - the functions of the table `weft` that describe a plan. A builder marks
 * the table it is given with its kind and the line of the call. It raises no error for a
 * wrong value, so that all errors of a plan are reported together. It is written in C
 * because a Lua function would lose its caller's line in the tail call `return weft.plan
 * { ... }`. */
#include "vm/plan/plan.h"
#include "bindings/sandbox/lua_fields.h"
#include "bindings/sandbox/stdlib.h"
#include "plan_table.h"

/* ---- builders ---- */

/* How a builder treats an argument that is not a table. */
typedef enum { ARG_TABLE, ARG_TEXT, ARG_NUMBER, ARG_PAIR, ARG_ANY } ArgForm;
typedef struct Builder {
  const char *name;
  ArgForm form;
  const char *key; /* ARG_NUMBER: the field that a number is for */
} Builder;

static const Builder builder[] = {
    /* weft.plan must be the first */
    {"plan", ARG_TABLE, NULL},       {"model", ARG_ANY, NULL},
    {"hf", ARG_TEXT, NULL},          {"cluster", ARG_TEXT, NULL},
    {"at_most", ARG_NUMBER, "high"}, {"at_least", ARG_NUMBER, "low"},
    {"between", ARG_PAIR, NULL},     {"schedule_csv", ARG_TEXT, NULL},
#define LR(ID, name) {#name, LR_##ID == LR_CONSTANT ? ARG_NUMBER : ARG_TABLE, "max"},
#include "vm/plan/lr.def"
#define OPTIMIZER(ID, name, states, flops, changes, formula) {#name, ARG_TABLE, NULL},
#define MATRICES(ID, name, rest, states, flops, changes)     {#name, ARG_TABLE, NULL},
#define FACTORED(ID, name, flops)                            {#name, ARG_TABLE, NULL},
#include "vm/plan/optimizers.def"
#define SOURCE(ID, name) {#name, ARG_TEXT, NULL},
#include "vm/plan/sources.def"
};

static bool takes(const Builder *b, int type) {
  switch (b->form) {
  case ARG_TABLE:
  case ARG_PAIR: return false;
  case ARG_TEXT: return type == LUA_TSTRING;
  case ARG_NUMBER: return type == LUA_TNUMBER;
  case ARG_ANY: return type == LUA_TSTRING || type == LUA_TFUNCTION;
  }
  return false;
}

static const char *wanted(const Builder *b) {
  static const char *const want[] = {[ARG_TABLE] = "a table",
                                     [ARG_TEXT] = "a string or a table",
                                     [ARG_NUMBER] = "a number",
                                     [ARG_PAIR] = "two numbers",
                                     [ARG_ANY] = "a table"};
  return want[b->form];
}

/* Makes of arguments x, y the table { low = x, high = y }. */
static void take_pair(lua_State *L) {
  lua_createtable(L, 0, 2);
  lua_insert(L, 1);
  lua_setfield(L, 1, "high");
  lua_setfield(L, 1, "low");
}

/* Leaves the marked table; a string, number or function becomes a table first, if the
 * builder takes one. */
static int build_with(lua_State *L, const Builder *b) {
  bool pair = b->form == ARG_PAIR && lua_gettop(L) == 2 &&
              lua_type(L, 1) == LUA_TNUMBER && lua_type(L, 2) == LUA_TNUMBER;
  if (pair) take_pair(L);
  int type = lua_type(L, 1), args = lua_gettop(L);
  const char *got = type == LUA_TNONE ? "nothing" : luaL_typename(L, 1);
  bool optional = str_eq(b->name, "synthetic") && type <= LUA_TNIL;
  lua_settop(L, 1);
  if (type != LUA_TTABLE) {
    lua_newtable(L);
    if (takes(b, type)) {
      lua_pushvalue(L, 1);
      if (b->key)
        lua_setfield(L, 2, b->key);
      else
        lua_rawseti(L, 2, 1);
    }
  }
  mark_new(L, b->name);
  int m = lua_gettop(L);
  if (type != LUA_TTABLE && !takes(b, type) && !optional)
    mark_note_bad(L, m,
                  lua_pushfstring(L, "weft.%s takes %s, got %s", b->name, wanted(b), got),
                  b->form == ARG_TABLE
                      ? lua_pushfstring(L, "write weft.%s { NAME = VALUE }", b->name)
                      : NULL);
  else if (args > 1)
    mark_note_bad(
        L, m, lua_pushfstring(L, "weft.%s takes one argument, got %d", b->name, args),
        b->form == ARG_ANY || b->form == ARG_TEXT
            ? lua_pushfstring(L, "write weft.%s { \"NAME\", KEY = VALUE }", b->name)
            : NULL);
  lua_settop(L, type == LUA_TTABLE ? 1 : 2);
  return 1;
}

/* Upvalue: the index in `builder`. */
static int build(lua_State *L) {
  return build_with(L, &builder[lua_tointeger(L, lua_upvalueindex(1))]);
}

int builders_plan(lua_State *L) { return build_with(L, &builder[0]); }

static void copy_fields(lua_State *L, int from, int to) {
  for (lua_pushnil(L); state_next(L, from); lua_pop(L, 1)) {
    lua_pushvalue(L, -2);
    lua_pushvalue(L, -2);
    lua_rawset(L, to);
  }
}

/* weft.tp_plan "llama": a copy of the library's table, which a plan may change. Its keys
 * are defaults, which need not match any parameter. */
static int tp_plan(lua_State *L) {
  lua_settop(L, 1);
  lua_newtable(L);
  size_t n = 0;
  const char *name = lua_type(L, 1) == LUA_TSTRING ? lua_tolstring(L, 1, &n) : NULL;
  if (name && strlen(name) < n) name = NULL;
  if (name && stdlib_push(L, lua_pushfstring(L, "tp_plans/%s", name)) &&
      lua_istable(L, -1)) {
    copy_fields(L, lua_gettop(L), 2);
    lua_settop(L, 2);
    mark_new(L, "tp_plan");
    lua_newtable(L);
    for (lua_pushnil(L); state_next(L, 2);) {
      lua_pop(L, 1);
      lua_pushvalue(L, -1);
      lua_pushboolean(L, 1);
      lua_rawset(L, 4);
    }
    lua_setfield(L, 3, "default");
    lua_settop(L, 2);
    return 1;
  }
  lua_settop(L, 2);
  mark_new(L, "tp_plan");
  if (!name) {
    mark_note_bad(L, 3, "weft.tp_plan takes the name of an architecture", NULL);
  } else {
    const char *names[64];
    int found = 0;
    for (const StdlibFile *f = stdlib_files; f->name && found < LEN(names); f++)
      if (strncmp(f->name, "tp_plans/", 9) == 0) names[found++] = f->name + 9;
    mark_note_bad(L, 3, lua_pushfstring(L, "there is no tp_plan \"%s\"", name),
                  name_suggest(name, names, found));
  }
  lua_settop(L, 2);
  return 1;
}

/* For every key of the table at `from`: sets from[key] and default[key] of the result's
 * mark. */
static void merge_marks(lua_State *L, int from, int origins, int defaults) {
  for (lua_pushnil(L); state_next(L, from);) {
    lua_pop(L, 1);
    lua_pushvalue(L, -1);
    lua_pushvalue(L, -1);
    mark_origin(L, from);
    lua_rawset(L, origins);
    lua_pushvalue(L, -1);
    lua_pushvalue(L, -1);
    lua_pushboolean(L, mark_is_default(L, from));
    lua_rawset(L, defaults);
  }
}

/* weft.extend(base, over): a copy of base with the fields of over added or replaced. */
static int extend(lua_State *L) {
  int args = lua_gettop(L);
  lua_settop(L, 2);
  const char *kind = mark_kind(L, 1), *hint, *bad = mark_bad(L, 1, &hint);
  lua_newtable(L);
  mark_new(L, kind ? kind : "extend");
  lua_newtable(L);
  lua_newtable(L);
  bool ok = args == 2 && lua_istable(L, 1) && lua_istable(L, 2);
  for (int i = 1; ok && i <= 2; i++) {
    copy_fields(L, i, 3);
    merge_marks(L, i, 5, 6);
    /* Fields that come by it are not copied, so the plan is told of it. */
    if (lua_getmetatable(L, i)) lua_setmetatable(L, 3);
  }
  lua_setfield(L, 4, "default");
  lua_setfield(L, 4, "from");
  if (!ok)
    mark_note_bad(L, 4, "weft.extend takes two tables", NULL);
  else if (bad)
    mark_note_bad(L, 4, bad, hint);
  lua_settop(L, 3);
  return 1;
}

/* ---- the table ---- */

static const char any_optimizer[] = "one of:"
#define OPTIMIZER(ID, name, ...) " weft." #name
#define MATRICES(ID, name, ...)  " weft." #name
#define FACTORED(ID, name, ...)  " weft." #name
#include "vm/plan/optimizers.def"
    ;

/* What has no function: fields, and names of strategies and schedules. */
static const char *instead_of(const char *name) {
  static const struct {
    const char *names, *instead;
  } others[] = {
      {" mesh batch train checkpoint precision pp_plan cp moe expect nccl packed ",
       "%s = { ... }"},
      {" zero ddp fsdp2 megatron_fsdp ", "strategy = { \"%s\", ... }"},
      {" fsdp FSDP ", "strategy = { \"fsdp2\", ... }"},
      {" gpipe interleaved_1f1b zero_bubble looped_bfs zbv dualpipe_v ",
       "schedule = \"%s\""},
      {" strategy schedule recompute name ", "%s = \"...\""},
      {" optimizer optim Adam Muon Adafactor adagrad rmsprop ", any_optimizer},
      {" warmup lr_scheduler ",
       "weft.cosine { max = ..., warmup = STEPS }, weft.linear or weft.constant"},
      {" data dataset files json jsonl huggingface load_dataset ",
       "weft.text \"FILES\", or weft.tokens of what weft tokenize wrote"},
      {" random dummy fake mock ", "weft.synthetic {}"},
      {" blend mixture mix interleave concat ",
       "weft.tokens { files = { ... }, weights = { ... } }"},
      {" sft messages sharegpt alpaca ", "weft.chat { \"FILE.jsonl\" }"},
      {" lora LoRA peft adapter dora ", "adapter = { \"lora\", rank = 16 }"},
      {" llama mistral ministral gpt2 mixtral qwen2 qwen3 qwen3_moe deepseek_v3 ",
       "weft.model { \"%s\", ... }"},
      {" models ", "weft.model \"NAME\""}};
  const char *in = name ? name : "";
  for (int i = 0; i < LEN(others); i++)
    for (const char *p = others[i].names; *in && (p = strstr(p, in)); p++)
      if (p[-1] == ' ' && p[strlen(in)] == ' ') return others[i].instead;
  return NULL;
}

/* __index; upvalue: the functions. */
static int unknown_member(lua_State *L) {
  lua_settop(L, 2);
  lua_pushvalue(L, 2);
  if (lua_rawget(L, lua_upvalueindex(1)) != LUA_TNIL) return 1;
  const char *name = plain_tostring(L, 2), *names[32], *instead = instead_of(name);
  int n = 0;
  if (instead) {
    const char *text = luaL_gsub(L, instead, "%s", name);
    return luaL_error(L, "weft has no '%s' (write %s)", name, text);
  }
  for (lua_pushnil(L); state_next(L, lua_upvalueindex(1)) && n < LEN(names);
       lua_pop(L, 1))
    names[n++] = lua_tostring(L, -2);
  const char *near = name_suggest(name, names, n);
  if (near) return luaL_error(L, "weft has no '%s' (did you mean '%s'?)", name, near);
  return luaL_error(L, "weft has no '%s'", name);
}

static int assign_member(lua_State *L) {
  return luaL_error(L, "the table weft cannot be changed");
}

void builders_add(lua_State *L) {
  luaL_checkstack(L, 8, NULL);
  for (int i = 0; i < LEN(builder); i++) {
    lua_pushinteger(L, i);
    lua_pushcclosure(L, build, 1);
    lua_setfield(L, -2, builder[i].name);
  }
  lua_pushcfunction(L, tp_plan);
  lua_setfield(L, -2, "tp_plan");
  lua_pushcfunction(L, extend);
  lua_setfield(L, -2, "extend");
  set_text(L, "version", weft_version());
  known_library(L, "weft");
}

void builders_push(lua_State *L, const LangOptions *o) {
  lua_newtable(L);
  lua_newtable(L);
  builders_add(L);
  vars_add(L, o);
  /* The table that plans see is empty, so that __index and __newindex notice unknown
   * names and writes. */
  lua_createtable(L, 0, 3);
  lua_insert(L, -2);
  lua_pushcclosure(L, unknown_member, 1);
  lua_setfield(L, -2, "__index");
  lua_pushcfunction(L, assign_member);
  lua_setfield(L, -2, "__newindex");
  lua_pushliteral(L, "weft");
  lua_setfield(L, -2, "__metatable");
  lua_setmetatable(L, -2);
}
