/* repl.c - weft repl: the prompt on a terminal; otherwise standard input is a script. */
#include "repl.h"

#include <lauxlib.h>
#include <locale.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- completion ---- */

/* Lines of an incomplete chunk are part of the context. */
static void complete(void *ud, const char *line, int cursor, EditMatches *m) {
  Repl *r = ud;
  size_t before = r->chunk.n;
  text_add(&r->chunk, line);
  repl_complete(r->L, r->chunk.s ? r->chunk.s : "", (int)before + cursor, m);
  r->chunk.n = before;
  if (r->chunk.s) r->chunk.s[before] = 0;
  m->from -= (int)before;
  if (m->from < 0) m->n = 0;
}

/* A Ctrl-C that came before was for what has ended meanwhile. One at the end of the line,
 * when the terminal sends signals again, is for the code of the line. */
static void line_begins(void *ud) {
  const Repl *r = ud;
  r->cli->listen();
}

/* ---- the loop ---- */

static void greet(const Repl *r) {
  printf("weft %s (%s)   ,help or ? for help, Ctrl-D to leave\n", weft_version(),
         LUA_VERSION);
}

static const char *prompt(const Repl *r) {
  bool more = r->chunk.n > 0;
  if (!r->colour) return more ? ">> " : "> ";
  return more ? "\1\033[1m\1>>\1\033[0m\1 " : "\1\033[1m\1>\1\033[0m\1 ";
}

/* ,commands, ?topics, and words such as exit, which are not Lua. */
static bool run_special(Repl *r, const char *line) {
  lua_pushstring(r->L, line);
  if (!repl_prompt(r, "commands", "line", 1, 1)) return true;
  bool special = lua_toboolean(r->L, -1);
  lua_pop(r->L, 1);
  return special;
}

static void run_line(Repl *r, const char *line) {
  if (!r->chunk.n && (!line[strspn(line, " \t")] || run_special(r, line))) return;
  text_add(&r->chunk, line);
  if (r->chunk.oom) luaL_error(r->L, "not enough memory");
  EvalResult result = repl_eval(r, r->chunk.s, r->chunk.n);
  if (result == EVAL_INCOMPLETE) {
    text_add(&r->chunk, "\n");
    return;
  }
  input_remember(r->input, r->chunk.s);
  r->chunk.n = 0;
}

/* Runs under lua_pcall, so that running out of memory ends the prompt and not the
 * process. */
static int loop(lua_State *L) {
  Repl *r = lua_touserdata(L, 1);
  const char *line;
  EditResult got;
  while (!r->quit && (got = input_read(r->input, prompt(r), &line)) != EDIT_END) {
    if (got == EDIT_CLEARED)
      r->chunk.n = 0;
    else
      run_line(r, line);
    r->cli->listen();
  }
  return 0;
}

/* ---- begin and end ---- */

/* Loads the plan of the command line. */
static weft_status load_plan(Repl *r) {
  if (!r->cli->narg) return WEFT_OK;
  if (!repl_prompt(r, "commands", "load", 0, 1)) return WEFT_EPLAN;
  weft_status st = (weft_status)lua_tointeger(r->L, -1);
  lua_pop(r->L, 1);
  return st;
}

static int set_globals(lua_State *L) {
  Repl *r = lua_touserdata(L, 1);
  lua_getglobal(L, "require");
  lua_pushliteral(L, "weft");
  lua_call(L, 1, 1);
  lua_setglobal(L, "weft");
  lua_pushcfunction(L, repl_help);
  lua_setglobal(L, "help");
  repl_provide(L, r);
  return 0;
}

/* Calls fn(Repl) under lua_pcall; it can only fail by running out of memory. */
static weft_status protect(Repl *r, lua_CFunction fn) {
  lua_pushcfunction(r->L, fn);
  lua_pushlightuserdata(r->L, r);
  if (lua_pcall(r->L, 1, 0, 0) == LUA_OK) return WEFT_OK;
  report_error("%s", lua_tostring(r->L, -1));
  return WEFT_ENOMEM;
}

static weft_status run_prompt(Repl *r) {
  greet(r);
  load_plan(r);
  weft_status st = protect(r, loop);
  input_close(r->input);
  return st;
}

static weft_status run(Repl *r) {
  bool terminal = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
  if (terminal) {
    /* The editor counts characters; the rest of the program counts bytes. */
    if (!setlocale(LC_CTYPE, "") || MB_CUR_MAX == 1) setlocale(LC_CTYPE, "C.UTF-8");
    r->colour = colour_wanted(stdout) && colour_wanted(stderr);
    r->edit = (EditHost){.ud = r, .complete = complete, .line_begins = line_begins};
    r->input = input_open(r->arena, &r->edit, r->cli->stop);
  }
  TRY(protect(r, set_globals));
  if (terminal) return run_prompt(r);
  TRY(load_plan(r));
  return run_script(r->L, r->cli, "-");
}

int verb_repl(Cli *cli, Arena *arena) {
  for (int i = 0; i < cli->nset; i++) {
    const char *equals = strchr(cli->set[i], '=');
    if (equals && equals > cli->set[i]) continue;
    report_error("--set %s: write --set PATH=VALUE, for example --set mesh.tp=4",
                 cli->set[i]);
    return weft_exit_code(WEFT_EUSAGE);
  }
  Repl r = {.cli = cli, .arena = arena, .host = script_host_of(cli)};
  r.L = script_new(&r.host);
  if (!r.L) {
    report_error("out of memory");
    return weft_exit_code(WEFT_ENOMEM);
  }
  weft_status st = run(&r);
  lua_close(r.L);
  text_free(&r.chunk);
  return weft_exit_code(st);
}
