/* convert.c - runs a verb that is written in Lua: the command line as a table, then what
 * came of it to the outputs; see convert.h. */
#include "convert.h"

#include <lauxlib.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bindings/import/settings.h"
#include "bindings/object/reasons.h"
#include "bindings/plan_table/json_value.h"
#include "bindings/sandbox/lua_fields.h"
#include "bindings/schema/schema.h"
#include "bindings/script/library.h"
#include "vm/base/terminal.h"
#include "vm/io/file.h"

typedef struct Convert {
  Cli *cli;
  const char *name;
  void (*provide)(lua_State *L);
  weft_status st; /* of what is written; an error that Lua raises is WEFT_EFILE */
  weft_error e;
  Job job;   /* has the diagnostics of --json */
  bool told; /* --json has printed its object */
} Convert;

/* ---- diagnostics ---- */

static const char *text_at(lua_State *L, Arena *a, const char *key) {
  lua_getfield(L, -1, key);
  const char *s = lua_tostring(L, -1);
  s = s ? arena_str(a, s) : NULL;
  lua_pop(L, 1);
  return s;
}

/* The list on top, as those of a plan. */
static void take_diags(lua_State *L, Diags *d) {
  Arena *a = d->arena;
  for (int i = 1; lua_rawgeti(L, -1, i) == LUA_TTABLE; i++, lua_pop(L, 1)) {
    const char *severity = text_at(L, a, "severity"), *code = text_at(L, a, "code");
    const char *path = text_at(L, a, "path"), *message = text_at(L, a, "message");
    bool warns = severity && str_eq(severity, "warning");
    Diag *g = (warns ? diag_warn : diag_error)(d, code ? code : "plan", path ? path : "",
                                               "%s", message ? message : "");
    g->suggestion = text_at(L, a, "suggestion");
    g->file = text_at(L, a, "file");
    lua_getfield(L, -1, "line");
    g->line = (int)lua_tointeger(L, -1);
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
}

/* ---- the command line ---- */

/* shown(text): as a terminal may have it, in one line; for comments, too. */
static int shown(lua_State *L) {
  size_t n;
  const char *s = luaL_checklstring(L, 1, &n);
  Text *t = script_push_text(L);
  text_add_shown(t, s, n, ONE_LINE, true);
  script_end_text(L);
  return 1;
}

static void push_arguments(lua_State *L, const Cli *cli) {
  struct stat st;
  lua_newtable(L);
  set_text(L, "file", cli->arg[0]);
  set_boolean(L, "folder", stat(cli->arg[0], &st) == 0 && S_ISDIR(st.st_mode));
  set_texts(L, "words", cli->arg + 1, cli->narg - 1);
  set_texts(L, "set", cli->set, cli->nset);
  set_texts(L, "define", cli->define, cli->ndefine);
  set_texts(L, "data", cli->data, cli->ndata);
  set_text(L, "model", cli->model);
  set_text(L, "gpu", cli->gpu);
  set_text(L, "to", cli->to);
  set_text(L, "output", cli->output);
  set_text(L, "html", cli->html);
  if (cli->world > 0) set_integer(L, "world", cli->world);
}

/* ---- what came of it; its table is on top ---- */

static void print_field(FILE *f, lua_State *L, const char *name) {
  size_t n;
  lua_getfield(L, -1, name);
  const char *s = lua_tolstring(L, -1, &n);
  if (s) fwrite(s, 1, n, f);
  lua_pop(L, 1);
}

static void print_json(lua_State *L, Convert *c) {
  if (lua_getfield(L, -1, "json") == LUA_TNIL) {
    if (lua_getfield(L, -2, "errors") == LUA_TTABLE) take_diags(L, &c->job.d);
    lua_pop(L, 2);
    return;
  }
  lua_pop(L, 1);
  c->told = true;
  Text *t = script_push_text(L);
  Json out = {.out = t, .pretty = true};
  lua_getfield(L, -2, "json");
  json_value(L, NULL, &out);
  text_add(t, "\n");
  fwrite(t->s, 1, t->n, stdout);
  lua_pop(L, 1);
}

/* What is there already is not replaced, which is said before anything is done. */
static weft_status output_is_free(const Cli *cli, weft_error *e) {
  if (!cli->output || cli->verb->bit == ON_INIT)
    return WEFT_OK; /* init does nothing else */
  bool folder = cli->verb->bit == ON_EXPORT;
  return folder ? folder_free(cli->output, e) : file_check(cli->output, true, e);
}

/* A file that is there already is not replaced. */
static weft_status write_document(lua_State *L, const char *path, weft_error *e) {
  FilePart part;
  part.data = lua_tolstring(L, -1, &part.bytes);
  return file_write_as(NULL, path, &part, 1, 0666, true, e);
}

/* The folder is new: all that is in it was written here. */
static bool owns_all(const char *name) { return true; }

/* The list of files on top, into an open folder, where they must not be. */
static weft_status write_each(lua_State *L, const Dir *in, weft_error *e) {
  weft_status st = WEFT_OK;
  int list = lua_gettop(L);
  for (int i = 1; st == WEFT_OK && lua_rawgeti(L, list, i) == LUA_TTABLE; i++) {
    FilePart part;
    lua_getfield(L, -1, "name");
    lua_getfield(L, -2, "text");
    part.data = lua_tolstring(L, -1, &part.bytes);
    st = file_write_as(in, lua_tostring(L, -2), &part, 1, 0666, true, e);
    lua_settop(L, list);
  }
  lua_settop(L, list);
  return st;
}

/* A list of files, as a folder of its own. */
static weft_status write_files(lua_State *L, const char *folder, weft_error *e) {
  FolderOut out;
  TRY(folder_free(folder, e));
  TRY(folder_create(NULL, folder, owns_all, &out, e));
  weft_status st = write_each(L, &out.dir, e);
  if (st == WEFT_OK) return folder_finish(&out, e);
  folder_drop(&out);
  return st;
}

static bool found_visible(void *ud, const char *name) {
  *(bool *)ud = *name != '.';
  return *name == '.';
}

/* The files into the folder itself, which may be the current one, or a new repository. */
static weft_status write_into(lua_State *L, const char *folder, weft_error *e) {
  Dir d;
  bool full = false;
  TRY(dir_open(folder, 0, &d, e));
  weft_status st = dir_each(&d, found_visible, &full, e);
  if (st == WEFT_OK && full)
    st = err_file(e, WEFT_EFILE, folder, 0,
                  "exists and is not empty; give another name, or remove it first");
  if (st == WEFT_OK) st = write_each(L, &d, e);
  dir_close(&d);
  return st;
}

/* The folders above the last name of a path. */
static weft_status make_above(const char *path, weft_error *e) {
  size_t n = strlen(path);
  while (n > 1 && path[n - 1] == '/') n--;
  while (n > 0 && path[n - 1] != '/') n--;
  char *above = strndup(path, n);
  Dir d;
  weft_status st = above ? WEFT_OK : err_set(e, WEFT_ENOMEM, "out of memory");
  if (st == WEFT_OK && n > 0) st = dir_open(above, 0777, &d, e);
  if (st == WEFT_OK && n > 0) dir_close(&d);
  free(above);
  return st;
}

/* Of weft init: in a folder that is there, or in a new one. */
static weft_status write_first(lua_State *L, const char *folder, weft_error *e) {
  struct stat st;
  if (stat(folder, &st) == 0 && S_ISDIR(st.st_mode)) return write_into(L, folder, e);
  TRY(make_above(folder, e));
  return write_files(L, folder, e);
}

/* A page is written whatever it says; one that cannot be is what the exit code tells. */
static void write_page(lua_State *L, Convert *c) {
  FilePart part;
  lua_getfield(L, -1, "page");
  part.data = lua_tolstring(L, -1, &part.bytes);
  weft_status st = file_write(NULL, c->cli->html, &part, 1, &c->e);
  if (st != WEFT_OK) c->st = st;
  lua_pop(L, 1);
}

static void give(lua_State *L, Convert *c) {
  const Cli *cli = c->cli;
  int result = lua_gettop(L);
  lua_getfield(L, -1, "ok");
  bool ok = lua_toboolean(L, -1);
  bool files = lua_getfield(L, -2, "files") != LUA_TNIL;
  bool document = lua_getfield(L, -3, "document") != LUA_TNIL;
  if (!ok) {
    c->st = WEFT_EPLAN;
  } else if (cli->output && files) {
    lua_pushvalue(L, -2);
    bool first = cli->verb->bit == ON_INIT;
    c->st = (first ? write_first : write_files)(L, cli->output, &c->e);
  } else if (cli->output && document) {
    c->st = write_document(L, cli->output, &c->e);
  }
  lua_settop(L, result);
  if (lua_getfield(L, -1, "unwritten") == LUA_TSTRING) /* all else is told */
    c->st = err_set(&c->e, WEFT_EFILE, "%s", lua_tostring(L, -1));
  lua_settop(L, result);
  if (files && c->st != WEFT_OK) return; /* the text says that they are there */
  lua_getfield(L, -1, "interrupted");
  if (lua_toboolean(L, -1) && (c->st == WEFT_OK || !ok)) c->st = WEFT_EINTR;
  lua_settop(L, result);
  if (cli->html) write_page(L, c);
  if (cli->json) {
    print_json(L, c);
    return;
  }
  bool both = ok && document && !cli->output;
  if (both) print_field(stdout, L, "document");
  lua_getfield(L, -1, "aside");
  bool aside = lua_toboolean(L, -1);
  bool brief = lua_getfield(L, -2, "brief") != LUA_TNIL;
  lua_pop(L, 2);
  /* A terminal that shows both would have the same lines twice. */
  brief = brief && both && isatty(STDOUT_FILENO) && isatty(STDERR_FILENO);
  if (!cli->quiet || !ok)
    print_field(aside ? stderr : stdout, L, brief ? "brief" : "text");
}

/* A plan of a GPU that there is not would be written, or blamed, in its place. What weft
 * report sets may be a table of figures, which is judged with the plan. */
static void check_gpu(lua_State *L, const Cli *cli) {
  if (!cli->gpu || (*cli->gpu == '{' && (cli->verb->bit & ON_REPORT))) return;
  Arena *a = script_push_arena(L);
  if (setjmp(*arena_guard(a))) luaL_error(L, "not enough memory");
  Diags d = {.arena = a};
  if (!cluster_known(L, cli->gpu, "cluster.gpu", &d)) {
    const Diag *why = &d.list.at[0];
    bool names = strchr(why->suggestion, ' ') != NULL;
    lua_pushfstring(L, names ? "--gpu: %s (%s)" : "--gpu: %s (did you mean \"%s\"?)",
                    why->summary, why->suggestion);
    lua_error(L);
  }
  lua_pop(L, 1);
}

static int convert(lua_State *L) {
  Convert *c = lua_touserdata(L, 1);
  check_gpu(L, c->cli);
  settings_provide(L);
  lua_pushcfunction(L, shown);
  library_provide(L, "shown");
  if (c->provide) c->provide(L);
  library_push(L, c->name);
  push_arguments(L, c->cli);
  lua_call(L, 1, 1);
  give(L, c);
  return 0;
}

/* The error on top: that of a plan or a run has its own status. */
static weft_status status_of(lua_State *L, int code, const Cli *cli) {
  if (code == LUA_ERRMEM) return WEFT_ENOMEM;
  if (cli->stop && *cli->stop) return WEFT_EINTR;
  weft_status st = reasons_status(L, -1);
  return st != WEFT_EPLAN || reasons_of_plan(L, -1) ? st : WEFT_EFILE;
}

/* The error on top, for the frame of --json. */
static void keep_failure(lua_State *L, Convert *c) {
  if (reasons_of_plan(L, -1)) {
    take_diags(L, &c->job.d);
    return;
  }
  err_set(&c->e, c->st, "%s", luaL_tolstring(L, -1, NULL));
  lua_pop(L, 1);
}

/* The report of a wrong plan has lines of its own, as weft check prints them. */
static void print_failure(lua_State *L) {
  bool of_plan = reasons_of_plan(L, -1);
  size_t n;
  const char *s = luaL_tolstring(L, -1, &n);
  if (!of_plan) {
    report_error("%s", s);
    return;
  }
  Text t = {0};
  text_add_shown(&t, s, n, FREE_LINES, true);
  if (n && s[n - 1] != '\n') text_add(&t, "\n");
  print_text(stderr, &t);
}

static int end(Convert *c) {
  if (c->cli->json && c->st != WEFT_OK && !c->told) {
    c->job.e = c->e;
    return job_end(&c->job, c->cli, c->st, NULL, NULL);
  }
  if (c->e.text[0]) report_error("%s%s%s", c->e.file, *c->e.file ? ": " : "", c->e.text);
  return weft_exit_code(c->st);
}

int convert_run(Cli *cli, Arena *arena, const char *name, void (*provide)(lua_State *L)) {
  Convert c = {.cli = cli, .name = name, .provide = provide};
  c.job = (Job){.arena = arena, .d = {.arena = arena}, .e = NO_ERROR};
  err_clear(&c.e);
  ScriptHost host = script_host_of(cli);
  c.st = output_is_free(cli, &c.e);
  lua_State *L = c.st == WEFT_OK ? script_new(&host) : NULL;
  if (c.st == WEFT_OK && !L) c.st = err_set(&c.e, WEFT_ENOMEM, "out of memory");
  if (!L) return end(&c);
  lua_pushcfunction(L, convert);
  lua_pushlightuserdata(L, &c);
  int code = lua_pcall(L, 1, 0, 0);
  if (code != LUA_OK) {
    c.st = status_of(L, code, cli);
    if (cli->json && !c.told)
      keep_failure(L, &c);
    else
      print_failure(L);
  }
  lua_close(L);
  return end(&c);
}
