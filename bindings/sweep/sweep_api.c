/* sweep_api.c - what stdlib/sweep needs besides points: fields of plans, files, JSON, the
 * script's functions and its host. */
#include <sys/stat.h>

#include "bindings/plan_table/json_value.h"
#include "bindings/schema/schema.h"
#include "bindings/object/plan_object.h"
#include "bindings/object/reasons.h"
#include "bindings/script/library.h"
#include "sweep.h"
#include "vm/base/build_id.h"
#include "vm/base/json.h"
#include "vm/io/io.h"

#define SHIELD_TYPE "weft.shield"

/* ---- fields ---- */

/* fields(scope): key -> the scope of its own fields, "" if it has none. */
static int fields(lua_State *L) {
  const char *scope = luaL_checkstring(L, 1);
  lua_newtable(L);
  for (const Field *f = schema; f->scope; f++)
    if (strcmp(f->scope, scope) == 0)
      set_text(L, f->key, f->type == FIELD_TABLE ? f->names : "");
  return 1;
}

/* path(text): the path in one spelling: `tp_plan["q"]` and `plan.tp_plan.q` are the same
 * field; nil if it is none. */
static int path(lua_State *L) {
  const char *text = luaL_checkstring(L, 1), *s = "";
  const char *rest = strncmp(text, "plan.", 5) == 0 ? text + 5 : text;
  bool bad;
  Arena *a = script_push_arena(L);
  if (setjmp(*arena_guard(a))) return luaL_error(L, "not enough memory");
  while (path_next(L, &rest, &bad)) {
    s = path_join(a, s, L, lua_gettop(L));
    lua_pop(L, 1);
  }
  lua_pushstring(L, bad ? NULL : s);
  return 1;
}

/* Replaces the table on top by a copy: what a script does to a point it does to that
 * point only. `memo`: table -> its copy. */
static void copy_table(lua_State *L, int memo) {
  int from = lua_gettop(L), to = from + 1;
  luaL_checkstack(L, 10, "a value is nested too deeply");
  lua_pushvalue(L, from);
  if (lua_rawget(L, memo) == LUA_TTABLE) {
    lua_replace(L, from);
    return;
  }
  lua_pop(L, 1);
  lua_newtable(L);
  lua_pushvalue(L, from);
  lua_pushvalue(L, to);
  lua_rawset(L, memo);
  for (lua_pushnil(L); lua_next(L, from); lua_pop(L, 1)) {
    lua_pushvalue(L, -2);
    lua_pushvalue(L, -2);
    if (lua_istable(L, -1)) copy_table(L, memo);
    lua_rawset(L, to);
  }
  if (lua_getmetatable(L, from)) lua_setmetatable(L, to);
  if (mark_push(L, from)) mark_set(L, to);
  lua_replace(L, from);
}

/* copy(value) */
static int copy(lua_State *L) {
  lua_settop(L, 1);
  if (!lua_istable(L, 1)) return 1;
  lua_newtable(L);
  lua_insert(L, 1);
  copy_table(L, 1);
  return 1;
}

static int is_plan(lua_State *L) {
  lua_pushboolean(L, lua_type(L, 1) == LUA_TUSERDATA && plan_object_test(L, 1));
  return 1;
}

/* ---- files ---- */

/* wrong(path, text): the error that says that of a file. */
static int wrong(lua_State *L) {
  weft_error e = NO_ERROR;
  weft_status st =
      err_file(&e, WEFT_EFILE, luaL_checkstring(L, 1), 0, "%s", luaL_checkstring(L, 2));
  return reasons_check(L, st, &e);
}

/* read(path): nil if it is not there. */
static int read_file(lua_State *L) {
  const char *name = luaL_checkstring(L, 1);
  struct stat is;
  weft_error e = NO_ERROR;
  char *text;
  size_t n;
  if (stat(name, &is) != 0) return 0;
  if (!S_ISREG(is.st_mode)) {
    lua_pushliteral(L, "is not a file that can be taken up");
    return wrong(L);
  }
  reasons_check(L, file_read(NULL, name, FILE_OWN_MAX, &text, &n, &e), &e);
  Text *owned = script_push_text(L);
  *owned = (Text){.s = text, .n = n, .cap = n + 1};
  lua_pushlstring(L, text, n);
  return 1;
}

/* write(path, text): a whole file, or the old one is left. */
static int write_file(lua_State *L) {
  FilePart part;
  weft_error e = NO_ERROR;
  part.data = luaL_checklstring(L, 2, &part.bytes);
  return reasons_check(L, file_write(NULL, luaL_checkstring(L, 1), &part, 1, &e), &e);
}

/* build(): the version and the build of weft: figures of two may differ. */
static int build(lua_State *L) {
  char id[64];
  build_id(id, sizeof id);
  lua_pushfstring(L, "%s, build %s", weft_version(), id);
  return 1;
}

/* writable(file): raises an error if write would refuse the file. */
static int writable(lua_State *L) {
  weft_error e = NO_ERROR;
  return reasons_check(L, file_check(luaL_checkstring(L, 1), false, &e), &e);
}

/* filled(file): whether it is a file, and no device, in which something is. */
static int filled(lua_State *L) {
  struct stat is;
  bool file = stat(luaL_checkstring(L, 1), &is) == 0 && S_ISREG(is.st_mode);
  lua_pushboolean(L, file && is.st_size > 0);
  return 1;
}

/* json(table): one line, keys sorted. */
static int json(lua_State *L) {
  Text *t = script_push_text(L);
  Json j = {.out = t};
  lua_pushvalue(L, 1);
  json_value(L, NULL, &j);
  script_end_text(L);
  return 1;
}

/* parse(line): nil if it is no object. */
static int parse(lua_State *L) {
  size_t n;
  const char *s = luaL_checklstring(L, 1, &n);
  json_t **doc = json_box(L);
  *doc = json_loadb(s, n, 0, NULL);
  if (!json_is_object(*doc)) return 0;
  json_push(L, *doc);
  return 1;
}

/* ---- the host ---- */

/* files(): the names that the command line gives, `used` after the first call; nil
 * without any. */
static int files(lua_State *L) {
  static const char used_key = 'u';
  const ScriptHost *h = script_host(L);
  if (!h || (!h->csv && !h->jsonl && !h->resume)) return 0;
  lua_createtable(L, 0, 4);
  set_text(L, "csv", h->csv);
  set_text(L, "jsonl", h->jsonl);
  set_text(L, "resume", h->resume);
  if (lua_rawgetp(L, LUA_REGISTRYINDEX, &used_key) != LUA_TNIL)
    lua_setfield(L, -2, "used");
  else
    lua_pop(L, 1);
  lua_pushboolean(L, 1);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &used_key);
  return 1;
}

/* wanted(): does the host want the result of this sweep, the first? give(table): there it
 * is. */
static int wanted(lua_State *L) {
  const ScriptHost *h = script_host(L);
  lua_pushboolean(L, h && h->json && h->json->n == 0);
  return 1;
}

static int give(lua_State *L) {
  const ScriptHost *h = script_host(L);
  size_t n;
  json(L);
  const char *s = lua_tolstring(L, -1, &n);
  if (h && h->json) text_addn(h->json, s, n);
  return 0;
}

/* progress(): is it shown? progress(line) shows one, progress(nil) ends it. */
static int progress(lua_State *L) {
  const ScriptHost *h = script_host(L);
  bool shown = h && h->progress;
  if (shown && lua_gettop(L)) h->progress(h->ud, lua_tostring(L, 1));
  lua_pushboolean(L, shown);
  return 1;
}

static int seconds(lua_State *L) {
  lua_pushnumber(L, now_s());
  return 1;
}

/* ---- the script's functions ---- */

/* While a sweep runs, Ctrl-C ends it and not the code around it: Lua code is interrupted
 * in the script's functions only. */
typedef struct Shield {
  lua_Hook hook;
  int mask, count;
} Shield;

static int end_shield(lua_State *L) {
  const Shield *s = luaL_checkudata(L, 1, SHIELD_TYPE);
  lua_sethook(L, s->hook, s->mask, s->count);
  return 0;
}

static int end_call(lua_State *L) {
  lua_sethook(L, NULL, 0, 0);
  return 0;
}

/* Until the function that runs returns, Lua code may be interrupted. */
static void open_shield(lua_State *L, const Shield *s) {
  lua_newuserdatauv(L, 0, 0);
  if (luaL_newmetatable(L, SHIELD_TYPE "d")) {
    lua_pushcfunction(L, end_call);
    lua_setfield(L, -2, "__close");
  }
  lua_setmetatable(L, -2);
  lua_toclose(L, -1);
  lua_sethook(L, s->hook, s->mask, s->count);
}

/* shield:call(function, argument): its first result. */
static int call(lua_State *L) {
  const Shield *s = luaL_checkudata(L, 1, SHIELD_TYPE);
  lua_settop(L, 3);
  open_shield(L, s);
  lua_pushvalue(L, 2);
  lua_pushvalue(L, 3);
  lua_call(L, 1, 1);
  return 1;
}

/* shield:try(points, function, argument): true and two results, or false if that was
 * interrupted: whatever came of it is no judgement. A plan that was wrong, for which the
 * function raised the reasons, gives nil and these. */
static int try(lua_State *L) {
  const Shield *s = luaL_checkudata(L, 1, SHIELD_TYPE);
  const StopFlag *stop = script_stop(L);
  lua_settop(L, 4);
  lua_sethook(L, s->hook, s->mask, s->count);
  lua_pushvalue(L, 3);
  lua_pushvalue(L, 4);
  int status = lua_pcall(L, 1, 2, 0);
  lua_sethook(L, NULL, 0, 0);
  bool cut = stop && *stop, wrong = status != LUA_OK && reasons_of_plan(L, -1);
  if (cut) {
    sweep_cut(L, sweep_at(L, 2));
  } else if (wrong) {
    lua_pushnil(L);
    lua_insert(L, -2);
  } else if (status != LUA_OK) {
    return lua_error(L);
  }
  lua_pushboolean(L, !cut);
  if (cut) return 1;
  lua_insert(L, -3);
  return 3;
}

static int shield(lua_State *L) {
  static const luaL_Reg methods[] = {
      {"__close", end_shield}, {"call", call}, {"try", try}, {NULL, NULL}};
  Shield *s = lua_newuserdatauv(L, sizeof *s, 0);
  *s = (Shield){lua_gethook(L), lua_gethookmask(L), lua_gethookcount(L)};
  if (luaL_newmetatable(L, SHIELD_TYPE)) {
    luaL_setfuncs(L, methods, 0);
    lua_pushvalue(L, -1);
    lua_setfield(L, -2, "__index");
  }
  lua_setmetatable(L, -2);
  lua_sethook(L, NULL, 0, 0);
  return 1;
}

/* ---- weft.sweep, weft.grid ---- */

void sweep_open(lua_State *L) {
  static const luaL_Reg plan[] = {
      {"fields", fields}, {"path", path}, {"copy", copy}, {NULL, NULL}};
  static const luaL_Reg core[] = {{"points", sweep_points},
                                  {"is_plan", is_plan},
                                  {"wrong", wrong},
                                  {"read", read_file},
                                  {"write", write_file},
                                  {"writable", writable},
                                  {"filled", filled},
                                  {"json", json},
                                  {"parse", parse},
                                  {"files", files},
                                  {"progress", progress},
                                  {"wanted", wanted},
                                  {"give", give},
                                  {"clock", seconds},
                                  {"shield", shield},
                                  {"build", build},
                                  {NULL, NULL}};
  luaL_newlib(L, plan);
  library_provide(L, "sweep/plan");
  luaL_newlib(L, core);
  library_provide(L, "sweep/core");
  lua_pushcfunction(L, plan_asks);
  library_provide(L, "plan_asks");
  lua_pushcfunction(L, plan_object_draft);
  library_provide(L, "plan_draft");
}

/* Calls a function of the library with the first argument. */
static int call_library(lua_State *L, const char *name) {
  lua_settop(L, 1);
  script_in_c_locale(L);
  library_push(L, name);
  lua_pushvalue(L, 1);
  lua_call(L, 1, 1);
  return 1;
}

int sweep_make(lua_State *L) {
  const ScriptHost *h = script_host(L);
  if (h && h->swept) *h->swept = true;
  return call_library(L, "sweep/sweep");
}

int sweep_best(lua_State *L) { return call_library(L, "best/best"); }

int sweep_grid_make(lua_State *L) {
  lua_settop(L, 1);
  library_push(L, "sweep/grid");
  lua_getfield(L, -1, "make");
  lua_insert(L, 1);
  lua_settop(L, 2);
  lua_call(L, 1, 1);
  return 1;
}
