/* import.c - weft import: takes settings of another system, gives a plan and says what
 * became of each setting. The translation is stdlib/import/import.lua. */
#include <lauxlib.h>
#include <sys/stat.h>

#include "bindings/cli/cli.h"
#include "bindings/import/settings.h"
#include "bindings/plan_table/json_value.h"
#include "bindings/script/library.h"
#include "vm/base/terminal.h"
#include "vm/io/file.h"

typedef struct Import {
  const Cli *cli;
  weft_status st; /* of what is written; an error that Lua raises is WEFT_EFILE */
  weft_error e;
} Import;

/* shown(text, lines): as a terminal may have it; for comments, too. */
static int shown(lua_State *L) {
  size_t n;
  const char *s = luaL_checklstring(L, 1, &n);
  Text *t = script_push_text(L);
  text_add_shown(t, s, n, ONE_LINE, true);
  script_end_text(L);
  return 1;
}

static void put_list(lua_State *L, const char *name, const char *const *list, int n) {
  lua_createtable(L, n, 0);
  for (int i = 0; i < n; i++) {
    lua_pushstring(L, list[i]);
    lua_rawseti(L, -2, i + 1);
  }
  lua_setfield(L, -2, name);
}

static void push_arguments(lua_State *L, const Cli *cli) {
  lua_newtable(L);
  lua_pushstring(L, cli->arg[0]);
  lua_setfield(L, -2, "file");
  struct stat st;
  lua_pushboolean(L, stat(cli->arg[0], &st) == 0 && S_ISDIR(st.st_mode));
  lua_setfield(L, -2, "folder");
  put_list(L, "words", cli->arg + 1, cli->narg - 1);
  put_list(L, "set", cli->set, cli->nset);
  lua_pushstring(L, cli->model);
  lua_setfield(L, -2, "model");
  if (cli->world > 0) lua_pushinteger(L, cli->world), lua_setfield(L, -2, "world");
}

static void print_string(FILE *f, lua_State *L) {
  size_t n;
  const char *s = lua_tolstring(L, -1, &n);
  fwrite(s, 1, n, f);
}

/* A plan that is there already is not replaced. */
static void write_plan(lua_State *L, Import *im) {
  FilePart part;
  lua_getfield(L, -1, "plan");
  part.data = lua_tolstring(L, -1, &part.bytes);
  if (im->cli->output)
    im->st = file_write_as(NULL, im->cli->output, &part, 1, 0666, true, &im->e);
  else if (!im->cli->json)
    print_string(stdout, L);
  lua_pop(L, 1);
}

/* The result of import.lua is on top: { ok =, text = report, plan =, lists ... }. */
static void give(lua_State *L, Import *im) {
  const Cli *cli = im->cli;
  lua_getfield(L, -1, "ok");
  bool ok = lua_toboolean(L, -1);
  lua_pop(L, 1);
  if (ok)
    write_plan(L, im);
  else
    im->st = WEFT_EPLAN;
  if (cli->json) {
    Text *t = script_push_text(L);
    Json out = {.out = t, .pretty = true};
    lua_getfield(L, -2, "json");
    json_value(L, NULL, &out);
    text_add(t, "\n");
    fwrite(t->s, 1, t->n, stdout);
    lua_pop(L, 1);
  } else if (!cli->quiet || !ok) {
    lua_getfield(L, -1, "text");
    print_string(cli->output ? stdout : stderr, L);
    lua_pop(L, 1);
  }
}

static int translate(lua_State *L) {
  Import *im = lua_touserdata(L, 1);
  settings_provide(L);
  lua_pushcfunction(L, shown);
  library_provide(L, "shown");
  library_push(L, "import/import");
  push_arguments(L, im->cli);
  lua_call(L, 1, 1);
  give(L, im);
  return 0;
}

int verb_import(Cli *cli, Arena *arena) {
  Import im = {.cli = cli};
  err_clear(&im.e);
  ScriptHost host = script_host_of(cli);
  lua_State *L = script_new(&host);
  if (!L) {
    report_error("out of memory");
    return weft_exit_code(WEFT_ENOMEM);
  }
  lua_pushcfunction(L, translate);
  lua_pushlightuserdata(L, &im);
  int code = lua_pcall(L, 1, 0, 0);
  if (code != LUA_OK) {
    im.st = code == LUA_ERRMEM ? WEFT_ENOMEM : WEFT_EFILE;
    report_error("%s", luaL_optstring(L, -1, "failed for a reason that is not known"));
  } else if (im.e.text[0]) {
    report_error("%s%s%s", im.e.file, *im.e.file ? ": " : "", im.e.text);
  }
  lua_close(L);
  return weft_exit_code(im.st);
}
