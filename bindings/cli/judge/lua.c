/* lua.c - weft lua: runs a script with all of Lua, in which require "weft" works without
 * a file. weft sweep is the same with output files for rows. */
#include "bindings/cli/cli.h"

#include "bindings/runner/runner.h"
#include "vm/base/terminal.h"
#include "vm/base/terminal_row.h"

#include <unistd.h>

weft_status run_script(lua_State *L, const Cli *cli, const char *path) {
  weft_error e = NO_ERROR;
  weft_status st = script_run(L, path, cli->script_argc, cli->script_argv, &e);
  if (st == WEFT_OK) return cli->cut_short ? WEFT_EINTR : WEFT_OK;
  /* The error has a shortened text: prints the whole one. */
  fflush(stdout);
  if (lua_gettop(L))
    report_error("%s", lua_tostring(L, -1));
  else
    report_error("%s%s%s", e.file, *e.file ? " " : "", e.text);
  return st;
}

/* Called when Ctrl-C has cut a sweep short: the script continues with the finished rows.
 */
static void kept(void *ud) {
  Cli *cli = ud;
  cli->cut_short = true;
  cli->listen();
}

static void show_progress(void *ud, const char *line) {
  terminal_overwrite(stderr, SHOWN(line));
}

ScriptHost script_host_of(Cli *cli) {
  return (ScriptHost){.stop = cli->stop,
                      .kept = kept,
                      .progress = colour_wanted(stderr) ? show_progress : NULL,
                      .ud = cli,
                      .csv = cli->csv_file,
                      .jsonl = cli->jsonl,
                      .resume = cli->resume,
                      .data = cli->data};
}

static int run_alone(Cli *cli, bool *swept) {
  ScriptHost host = script_host_of(cli);
  host.swept = swept;
  lua_State *L = script_new(&host);
  if (!L) {
    report_error("out of memory");
    return weft_exit_code(WEFT_ENOMEM);
  }
  weft_status st = run_script(L, cli, cli->arg[0]);
  lua_close(L);
  return weft_exit_code(st);
}

int verb_lua(Cli *cli, Arena *arena) { return run_alone(cli, NULL); }

/* A plan is a Lua script as well, but one that sweeps nothing. */
#define NO_SWEEP                                                                         \
  "%s made no sweep: it is a script that calls weft.sweep { plan =, over = }"

/* Runs the script with the standard error as its standard output. */
static weft_status run_aside(const Cli *cli, ScriptHost *host, weft_error *e) {
  int out = dup(STDOUT_FILENO);
  lua_State *L = script_new(host);
  if (!L || out < 0) return err_set(e, WEFT_ENOMEM, "out of memory");
  dup2(STDERR_FILENO, STDOUT_FILENO);
  weft_status st = script_run(L, cli->arg[0], cli->script_argc, cli->script_argv, e);
  lua_close(L);
  fflush(stdout);
  dup2(out, STDOUT_FILENO);
  close(out);
  return st == WEFT_OK && cli->cut_short ? WEFT_EINTR : st;
}

static void put_result(Json *out, void *ud) {
  const Text *result = ud;
  json_raw(out, "sweep", result->s, result->n);
}

/* Rows that were judged before Ctrl-C are a result. */
static int sweep_json(Cli *cli, Arena *arena) {
  Job j = {.arena = arena, .d = {.arena = arena}};
  Text result = {0};
  ScriptHost host = script_host_of(cli);
  host.json = &result;
  weft_status st = run_aside(cli, &host, &j.e);
  if (st == WEFT_OK && !result.n) st = err_set(&j.e, WEFT_EPLAN, NO_SWEEP, cli->arg[0]);
  bool kept = st == WEFT_EINTR && result.n;
  int code = job_end(&j, cli, kept ? WEFT_OK : st, put_result, &result);
  text_free(&result);
  return kept ? weft_exit_code(st) : code;
}

int verb_sweep(Cli *cli, Arena *arena) {
  heed_ends(cli);
  if (cli->json) return sweep_json(cli, arena);
  bool swept = false;
  int code = run_alone(cli, &swept);
  if (code != 0 || swept) return code;
  report_error(NO_SWEEP, cli->arg[0]);
  return weft_exit_code(WEFT_EPLAN);
}
