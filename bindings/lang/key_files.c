/* key_files.c - files as bytes to compare: those that a plan or the values of a grid
 * name, and whose contents its figures depend on. A key of the names alone stays the same
 * when a file changes. */
#include "plan_key.h"

#include <unistd.h>

#include "key_value.h"
#include "vm/io/file.h"

typedef struct FilesJob {
  LangPlan *lp;
  int values; /* registry reference, or LUA_NOREF */
  int seen;   /* index of a table: those that were walked */
  Text *out;
} FilesJob;

/* Appends the name and a hash of the text; a file that cannot be read is told apart from
 * all others. */
static void add_file(const FilesJob *j, const char *path) {
  char *text;
  size_t n;
  weft_error e = NO_ERROR;
  const LangOptions *o = &j->lp->opt;
  weft_status st = file_read(o->alloc, path, FILE_CODE_MAX, &text, &n, &e);
  uint64_t hash = st == WEFT_OK ? hash_bytes(0, text, n) : 0;
  if (st == WEFT_OK) mem_free(o->alloc, text, n + 1);
  text_printf(j->out, ";%s %016llx", path, (unsigned long long)hash);
}

/* A folder with a model is named by weft.hf, by a field such as loss.teacher, or by a
 * value of an axis: whatever string names one counts. */
static void add_folder(const FilesJob *j, const char *name) {
  Folders in = lang_folders(j->lp);
  Arena *a = j->lp->arena;
  const char *file = arena_printf(a, "%s/config.json", folders_find(&in, a, name));
  if (*name && access(file, F_OK) == 0) add_file(j, file);
}

static void add_csv(lua_State *L, int t, const FilesJob *j) {
  const char *kind = mark_kind(L, t), *dir = j->lp->state->dir;
  if (!str_eq(kind, "schedule_csv")) return;
  if (lua_rawgeti(L, t, 1) == LUA_TSTRING) {
    const char *file = lua_tostring(L, -1);
    bool below = *file != '/' && *dir;
    add_file(j, below ? arena_printf(j->lp->arena, "%s/%s", dir, file) : file);
  }
  lua_pop(L, 1);
}

static bool is_new(lua_State *L, int t, const FilesJob *j) {
  lua_pushvalue(L, t);
  bool seen = lua_rawget(L, j->seen) != LUA_TNIL;
  lua_pop(L, 1);
  if (seen) return false;
  lua_pushvalue(L, t);
  lua_pushboolean(L, true);
  lua_rawset(L, j->seen);
  return true;
}

/* Walks keys in their order: the same plan has the same key. A table that cannot be
 * sorted or is too deep has made plan_key_others fail before. */
static void add_table(lua_State *L, int t, int nest, const FilesJob *j) {
  luaL_checkstack(L, 12, "a value is nested too deeply");
  if (nest > KEY_DEEPEST || !is_new(L, t, j)) return;
  add_csv(L, t, j);
  if (!sorted_keys(L, t)) return;
  int keys = lua_gettop(L);
  for (int i = 1; lua_rawgeti(L, keys, i) != LUA_TNIL; i++, lua_settop(L, keys)) {
    int type = lua_rawget(L, t);
    if (type == LUA_TSTRING) add_folder(j, lua_tostring(L, -1));
    if (type == LUA_TTABLE) add_table(L, lua_gettop(L), nest + 1, j);
  }
  lua_settop(L, keys - 1);
}

static void files_job(lua_State *L, void *ud) {
  FilesJob *j = ud;
  luaL_checkstack(L, 12, NULL);
  lua_newtable(L);
  j->seen = lua_gettop(L);
  add_table(L, PLAN_INDEX, 0, j);
  if (j->values != LUA_NOREF &&
      lua_rawgeti(L, LUA_REGISTRYINDEX, j->values) == LUA_TTABLE)
    add_table(L, lua_gettop(L), 0, j);
  lua_settop(L, j->seen - 1);
}

weft_status plan_key_files(LangPlan *lp, int values, Text *out, weft_error *e) {
  FilesJob j = {.lp = lp, .values = values, .out = out};
  return state_protect(lp->state, files_job, &j, e);
}
