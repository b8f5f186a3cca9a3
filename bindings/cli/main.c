/* main.c - the program `weft`: finds the verb, reads its options, runs it. */
#include "cli.h"
#include "bindings/script/library.h"
#include "vm/base/budget.h"
#include "vm/io/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static StopFlag interrupted, pressed; /* pressed: Ctrl-C has come */

/* The first Ctrl-C, or signal that a verb handles, asks the verb to end; the second
 * Ctrl-C ends the process. Other signals are sent by schedulers, several of them for one
 * end: a warning, then the end of the time, or of a grace period. They ask again for what
 * is being done; who does not want to wait has SIGKILL. */
static void on_interrupt(int sig) {
  if (sig == SIGINT && pressed) {
    signal(sig, SIG_DFL);
    raise(sig);
  }
  if (sig == SIGINT) pressed = 1;
  if (!interrupted) interrupted = sig;
}

/* A signal that whoever started the program wants ignored stays so, as under nohup. */
static void handle(int sig, void (*handler)(int sig)) {
  struct sigaction act = {.sa_handler = handler, .sa_flags = SA_RESTART}, was;
  if (sigaction(sig, NULL, &was) == 0 && was.sa_handler != SIG_IGN)
    sigaction(sig, &act, NULL);
}

static void heed(int sig) { handle(sig, on_interrupt); }

static void unheed(int sig) { handle(sig, SIG_DFL); }

static void listen_again(void) {
  interrupted = pressed = 0;
  heed(SIGINT);
}

/* A file or connection that is opened while 0, 1 or 2 is closed would get that number,
 * and with it what is printed. */
static bool open_streams(void) {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
    if (fcntl(fd, F_GETFD) < 0 && errno == EBADF && open("/dev/null", O_RDWR) != fd)
      return false;
  return true;
}

/* Where a file or a pipe takes no more, the write fails, and weft says so or goes on. A
 * closed pipe ends other verbs than run silently: the reader wants no more. Under MPI a
 * closed connection is handled by that library. */
static void ignore_ends_of_files(const Cli *cli) {
  bool goes_on = cli->verb->run == verb_run || is_launched();
  signal(SIGXFSZ, SIG_IGN);
  signal(SIGPIPE, goes_on ? SIG_IGN : SIG_DFL);
}

static const Verb verbs[] = {
#define VERB(ID, name, takes, needs, args, summary, groups)                              \
  {ON_##ID, #name, takes, needs, args, summary, verb_##name},
#include "verbs.def"
};

static void print_help(FILE *f) {
  fputs("weft - parallel training plans in Lua\n\nusage: weft VERB [options]\n\n", f);
  for (int i = 0; i < LEN(verbs); i++)
    fprintf(f, "  %-10s %s\n", verbs[i].name, verbs[i].summary);
  fputs("\nweft VERB --help says more; weft --version prints the version.\n"
        "Without a verb, weft on a terminal is weft repl.\n",
        f);
}

static int say_help(lua_State *L) {
  const Verb *v = lua_touserdata(L, 1);
  library_push(L, "help");
  lua_getfield(L, -1, v->name);
  lua_getfield(L, -2, v->bit & PLAN_VERBS ? "plan" : "none");
  lua_getfield(L, -3, "codes");
  printf("usage: weft %s%s%s\n\n%s%s\n%s", v->name, *v->args ? " " : "", v->args,
         lua_tostring(L, -3), luaL_optstring(L, -2, ""), lua_tostring(L, -1));
  return 0;
}

static int print_verb_help(const Verb *v) {
  lua_State *L = script_new(NULL);
  if (L) {
    lua_pushcfunction(L, say_help);
    lua_pushlightuserdata(L, (void *)v);
    if (lua_pcall(L, 1, 0, 0) == LUA_OK) return lua_close(L), 0;
    lua_close(L);
  }
  report_error("out of memory");
  return weft_exit_code(WEFT_ENOMEM);
}

static const Verb *find_verb(const char *name) {
  for (int i = 0; i < LEN(verbs); i++)
    if (strcmp(name, verbs[i].name) == 0) return &verbs[i];
  return NULL;
}

static int unknown_verb(const char *name) {
  const char *names[LEN(verbs)];
  for (int i = 0; i < LEN(verbs); i++) names[i] = verbs[i].name;
  const char *near = str_nearest(name, names, LEN(names));
  if (near)
    report_error("there is no verb \"%s\" (did you mean \"%s\"?)", name, near);
  else
    report_error("there is no verb \"%s\"; see weft --help", name);
  return weft_exit_code(WEFT_EUSAGE);
}

static weft_status count_arguments(const Cli *cli, weft_error *e) {
  const Verb *v = cli->verb;
  if (v->takes != TAKES_NONE && v->args[0] != '[' && cli->narg == 0)
    return err_set(e, WEFT_EUSAGE, "%s needs a %s: weft %s %s", v->name, v->needs,
                   v->name, v->args);
  if (v->takes == TAKES_NONE && cli->narg > 0)
    return err_set(e, WEFT_EUSAGE, "%s takes no arguments, got %s", v->name, cli->arg[0]);
  if (v->takes == TAKES_ONE && cli->narg > 1)
    return err_set(e, WEFT_EUSAGE, "%s takes one %s, got %s and %s", v->name, v->needs,
                   cli->arg[0], cli->arg[1]);
  return WEFT_OK;
}

static int run_verb(Cli *cli, int argc, char **argv) {
  weft_error e = NO_ERROR;
  Budget budget;
  budget_init(&budget, NULL, 0);
  weft_alloc counted = budget_alloc(&budget);
  Arena *arena = arena_new(&counted);
  if (!arena || setjmp(*arena_guard(arena))) {
    if (budget.over) budget_error(&budget, &e);
    report_error("%s", budget.over ? e.text : "out of memory");
    return weft_exit_code(WEFT_ENOMEM);
  }
  weft_status st = options_parse(cli, argc, argv, &e);
  if (st == WEFT_OK && cli->memory > 0)
    budget.limit = (uint64_t)MIN(cli->memory * (1 << 30), 0x1p63);
  int code = 0;
  if (st == WEFT_OK && cli->help) {
    code = print_verb_help(cli->verb);
  } else {
    if (st == WEFT_OK) st = count_arguments(cli, &e);
    code = st == WEFT_OK ? cli->verb->run(cli, arena) : verb_fails(cli, arena, &e);
  }
  arena_free(arena);
  return code;
}

/* Threads of OpenMP spin long before they sleep, which on a machine with other work costs
 * a time slice per parallel region. The library reads its setting when it is loaded,
 * before main, so the program executes itself again with another setting. If that fails
 * it continues: results are the same. */
static void start_with_short_waits(char **argv) {
  if (getenv("OMP_WAIT_POLICY") || getenv("GOMP_SPINCOUNT")) return;
  if (setenv("GOMP_SPINCOUNT", "20000", 1) == 0) execv("/proc/self/exe", argv);
}

/* If output could not be written (a full disk, a closed pipe), the exit code is not 0. */
static int flushed(int code) {
  if (fflush(stdout) == 0 && !ferror(stdout)) return code;
  report_error("cannot write to the standard output");
  return code ? code : weft_exit_code(WEFT_EFILE);
}

/* For scripts whose launcher, as torchrun, ends with 1 whatever the ranks end with: each
 * leaves its code in the folder WEFT_CODES, under its rank. */
static int leave_code(const Verb *v, int code) {
  const char *dir = getenv("WEFT_CODES");
  char path[PATH_MAX], text[16];
  weft_error e = NO_ERROR;
  if (!dir || !*dir || !(v->bit & RUN_VERBS)) return code;
  snprintf(path, sizeof path, "%s/%d", dir, launched_rank());
  snprintf(text, sizeof text, "%d\n", code);
  FilePart part = {text, strlen(text)};
  if (file_write(NULL, path, &part, 1, &e) != WEFT_OK)
    report_error("%s, a file for the exit code, %s", path, e.text);
  return code;
}

int main(int argc, char **argv) {
  if (!open_streams()) {
    report_error("a standard stream is closed, and /dev/null cannot be opened for it: %s",
                 strerror(errno));
    return weft_exit_code(WEFT_EFILE);
  }
  bool prompt = argc < 2 && isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
  if (argc < 2 && !prompt) {
    print_help(stderr);
    return weft_exit_code(WEFT_EUSAGE);
  }
  const char *name = prompt ? "repl" : argv[1];
  bool help = strcmp(name, "help") == 0;
  if (help && argc > 2) {
    const Verb *v = find_verb(argv[2]);
    return v ? flushed(print_verb_help(v)) : unknown_verb(argv[2]);
  }
  if (help || strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
    print_help(stdout);
    return flushed(0);
  }
  if (strcmp(name, "--version") == 0) {
    printf("weft %s\n", weft_version());
    return flushed(0);
  }
  Cli cli = {.verb = find_verb(name),
             .stop = &interrupted,
             .listen = listen_again,
             .heed = heed,
             .unheed = unheed};
  if (!cli.verb) return unknown_verb(name);
  /* Check and show start no threads and take milliseconds. */
  if (cli.verb->run != verb_check && cli.verb->run != verb_show)
    start_with_short_waits(argv);
  listen_again();
  ignore_ends_of_files(&cli);
  return leave_code(cli.verb, flushed(run_verb(&cli, MAX(argc - 2, 0), argv + 2)));
}
