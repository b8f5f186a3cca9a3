/* lua.c - weft lua: a script with all of Lua, in which require "weft" needs no file. weft
 * sweep is the same with files for the rows of a sweep. */
#include "cli.h"

#include <unistd.h>

#include "bindings/script.h"

typedef struct Running {
  Cli *cli;
  bool cut_short;
} Running;

/* What was done before Ctrl-C stands; the script goes on with it. */
static void kept(void *ud) {
  Running *r = ud;
  r->cut_short = true;
  *r->cli->stop = 0;
}

/* At most ten times a second, and only for a person. */
static void show_progress(void *ud, const char *line) {
  fprintf(stderr, "\r%s\033[K", line ? line : "");
  fflush(stderr);
}

static int run_script(Cli *cli) {
  Running running = {.cli = cli};
  ScriptHost host = {.stop = cli->stop, .kept = kept, .ud = &running, .csv = cli->csv_file,
                     .jsonl = cli->jsonl, .resume = cli->resume};
  if (colour_wanted(stderr)) host.progress = show_progress;
  weft_error e;
  err_clear(&e);
  lua_State *L = script_new(&host);
  if (!L) {
    complain("out of memory");
    return weft_exit_code(WEFT_ENOMEM);
  }
  weft_status st = script_run(L, cli->arg[0], cli->script_argc, cli->script_argv, &e);
  if (st != WEFT_OK) {
    /* The whole text: that of the error is cut. */
    fflush(stdout);
    if (lua_gettop(L))
      complain("%s", lua_tostring(L, -1));
    else
      complain("%s%s%s", e.file, *e.file ? " " : "", e.text);
  }
  lua_close(L);
  if (st == WEFT_OK && running.cut_short) st = WEFT_EINTR;
  return weft_exit_code(st);
}

int verb_lua(Cli *cli, Arena *arena) {
  return run_script(cli);
}

int verb_sweep(Cli *cli, Arena *arena) {
  return run_script(cli);
}
