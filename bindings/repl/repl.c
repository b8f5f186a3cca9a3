/* repl.c - weft repl: the prompt on a terminal; without one, the standard input is a
 * script. */
#include "repl.h"

#include <lauxlib.h>
#include <locale.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- completion ---- */

/* What was typed before of this chunk belongs to the context. */
static void complete(void *ud, const char *line, int cursor, EditMatches *m) {
  Repl *r = ud;
  arena_free(r->matches);
  r->matches = arena_new(NULL);
  if (!r->matches) return;
  Completions c = {.arena = r->matches};
  size_t before = r->chunk.n;
  text_add(&r->chunk, line);
  repl_complete(r->L, r->chunk.s ? r->chunk.s : "", (int)before + cursor, &c);
  r->chunk.n = before;
  if (r->chunk.s) r->chunk.s[before] = 0;
  m->from = c.from - (int)before;
  m->n = m->from >= 0 ? c.match.n : 0;
  m->text = (const char *const *)c.match.at;
  m->suffix = c.suffix;
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

static bool is_global(lua_State *L, const char *name) {
  lua_rawgeti(L, LUA_REGISTRYINDEX, LUA_RIDX_GLOBALS);
  lua_pushlstring(L, name, strcspn(name, "("));
  bool found = lua_rawget(L, -2) != LUA_TNIL;
  lua_pop(L, 2);
  return found;
}

/* What people type to leave or for help, which means nothing in Lua unless they gave the
 * name to something. */
static const char *plain_word(lua_State *L, const char *line) {
  static const char *const words[][2] = {{"exit", ",quit"},
                                         {"exit()", ",quit"},
                                         {"quit", ",quit"},
                                         {"quit()", ",quit"},
                                         {"help", ",help"}};
  size_t n = strlen(line);
  while (n && strchr(" \t;", line[n - 1]))
    n--;
  for (int i = 0; i < LEN(words); i++)
    if (strlen(words[i][0]) == n && strncmp(line, words[i][0], n) == 0)
      return strcmp(words[i][0], "help") != 0 && is_global(L, words[i][0]) ? line
                                                                           : words[i][1];
  return line;
}

/* ?topic, and what begins with a comma, are no Lua. */
static bool run_special(Repl *r, const char *line) {
  line = plain_word(r->L, line + strspn(line, " \t"));
  if (*line != ',' && *line != '?') return false;
  input_remember(r->input, line);
  if (*line == ',')
    command_run(r, line);
  else
    command_run(r, arena_printf(r->arena, ",help %s", line + 1));
  return true;
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

/* Under lua_pcall, so that running out of memory ends the prompt and not the process. */
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

static weft_status run_prompt(Repl *r) {
  r->colour = colour_wanted(stdout) && colour_wanted(stderr);
  /* The editor counts characters; the rest of the program counts bytes. */
  if (!setlocale(LC_CTYPE, "") || MB_CUR_MAX == 1) setlocale(LC_CTYPE, "C.UTF-8");
  r->edit = (EditHost){.ud = r, .complete = complete};
  r->input = input_open(r->arena, &r->edit, r->cli->stop);
  greet(r);
  if (r->plan) repl_load_plan(r);
  lua_pushcfunction(r->L, loop);
  lua_pushlightuserdata(r->L, r);
  bool good = lua_pcall(r->L, 1, 0, 0) == LUA_OK;
  if (!good) complain("%s", lua_tostring(r->L, -1));
  input_close(r->input);
  return good ? WEFT_OK : WEFT_ENOMEM;
}

/* ---- begin and end ---- */

static int set_globals(lua_State *L) {
  Repl *r = lua_touserdata(L, 1);
  lua_getglobal(L, "require");
  lua_pushliteral(L, "weft");
  lua_call(L, 1, 1);
  lua_setglobal(L, "weft");
  lua_pushlightuserdata(L, r);
  lua_pushcclosure(L, help_function, 1);
  lua_setglobal(L, "help");
  return 0;
}

static weft_status run(Repl *r) {
  lua_pushcfunction(r->L, set_globals);
  lua_pushlightuserdata(r->L, r);
  if (lua_pcall(r->L, 1, 0, 0) != LUA_OK) {
    complain("%s", lua_tostring(r->L, -1));
    return WEFT_ENOMEM;
  }
  if (isatty(STDIN_FILENO) && isatty(STDOUT_FILENO)) return run_prompt(r);
  if (r->plan) TRY(repl_load_plan(r));
  return run_script(r->L, r->cli, "-");
}

int verb_repl(Cli *cli, Arena *arena) {
  for (int i = 0; i < cli->nset; i++) {
    const char *equals = strchr(cli->set[i], '=');
    if (equals && equals > cli->set[i]) continue;
    complain("--set %s: write --set PATH=VALUE, for example --set mesh.tp=4",
             cli->set[i]);
    return weft_exit_code(WEFT_EUSAGE);
  }
  Repl r = {.cli = cli, .arena = arena, .host = script_host_of(cli)};
  r.plan = cli->narg ? cli->arg[0] : NULL;
  r.L = script_new(&r.host);
  if (!r.L) {
    complain("out of memory");
    return weft_exit_code(WEFT_ENOMEM);
  }
  weft_status st = run(&r);
  lua_close(r.L);
  arena_free(r.matches);
  text_free(&r.chunk);
  text_free(&r.out);
  return weft_exit_code(st);
}
