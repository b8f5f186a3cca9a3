/* main.c - the program `weft`: finds the verb, reads its options, runs it. */
#include "cli.h"
#include "vm/base/budget.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static StopFlag interrupted;

/* The first Ctrl-C asks the verb to end; the second one ends the process. */
static void on_interrupt(int sig) {
  if (interrupted) {
    signal(SIGINT, SIG_DFL);
    raise(SIGINT);
  }
  interrupted = 1;
}

static void listen_again(void) {
  struct sigaction act = {.sa_handler = on_interrupt, .sa_flags = SA_RESTART};
  interrupted = 0;
  sigaction(SIGINT, &act, NULL);
}

static const char plan_options[] =
    "  --set PATH=VALUE   change a field, for example --set mesh.tp=4\n"
    "  -D NAME=VALUE      the plan reads it as weft.vars.NAME\n"
    "  --data DIR         data and models may lie below DIR, too; may be repeated\n"
    "  --memory GIB       most that graph, schedule and programs may take; default: half\n"
    "                     of the machine's\n";

static const Verb verbs[] = {
    {"run", "PLAN.lua", "train",
     "Trains. Without a launcher all ranks are threads of this process; under mpirun or\n"
     "srun every process is one rank. A line is printed every train.log_every steps.\n"
     "\n"
     "  --steps N          take N steps instead of train.steps; the learning rate is as\n"
     "                     in the plan\n"
     "  --threads N        threads of each rank; default: the machine's share\n"
     "  --comm NAME        local or mpi; default: mpi under a launcher, else local\n"
     "  --log FILE         write lines of JSON: what runs, then every step; a file that\n"
     "                     holds something is refused\n"
     "  --append           with --log: add to the file\n"
     "  --quiet            print no steps\n"
     "  --json             print one object at the end\n",
     OPT_JSON | OPT_PLAN | OPT_STEPS | OPT_THREADS | OPT_COMM | OPT_LOG | OPT_QUIET,
     verb_run},
    {"check", "PLAN.lua", "find everything that is wrong with a plan, without running it",
     "Evaluates the plan, checks every field, builds the model, compiles the programs "
     "of\n"
     "all ranks and proves that they cannot deadlock. Nothing is run.\n"
     "\n"
     "  --quiet            print nothing if the plan is right\n"
     "  --json             print one object\n",
     OPT_JSON | OPT_PLAN | OPT_QUIET, verb_check},
    {"show", "PLAN.lua [TOPIC]", "print what a plan means",
     "Prints one view of a compiled plan; without a topic, mesh, memory and schedule.\n"
     "\n"
     "  mesh               the ranks as a grid, with the borders of machines\n"
     "  stages             what each pipeline stage runs, and its share of the work\n"
     "  schedule           the timeline of the pipeline, with its figures\n"
     "  memory             bytes of each pipeline rank by class\n"
     "  comm [N]           operations and bytes on every axis, of rank N or the most\n"
     "  rank [N]           one screen about a rank (0)\n"
     "  graph              the graph of one rank: local shapes, placements, collectives\n"
     "  program [N]        what rank N (0) does, instruction by instruction\n"
     "\n"
     "  --rank N           the same as a number after the topic\n"
     "  --offsets          program: with the place of every operand in the arena\n"
     "  --logical          graph: as the model wrote it, with global shapes\n"
     "  --csv              schedule: one row per pipeline rank, as PyTorch reads it\n"
     "  --comms            with --csv: the transfers, too\n"
     "  --svg FILE         schedule: draw it as a picture, too\n"
     "  --width N          schedule: columns of the drawing; default: the terminal's\n"
     "  --json             print one object\n",
     OPT_JSON | OPT_PLAN | OPT_SHOW | OPT_CSV | OPT_DRAW, verb_show},
    {"verify", "PLAN.lua", "run a small version on one rank and on all, and compare",
     "Makes the plan small enough for this machine, runs it on virtual ranks and on one\n"
     "rank, and compares loss, gradients and parameters. Prints what was made smaller "
     "and\n"
     "is therefore not covered. Exit code 1 if they differ.\n"
     "\n"
     "  --steps N          steps to compare (3)\n"
     "  --ranks N          at most so many virtual ranks (32)\n"
     "  --tolerance X      largest relative difference (1e-5 in f32, 2e-2 in bf16,\n"
     "                     5e-3 in f16)\n"
     "  --json             print one object\n",
     OPT_JSON | OPT_PLAN | OPT_STEPS | OPT_RANKS | OPT_TOLERANCE, verb_verify},
    {"sim", "PLAN.lua", "predict time and memory on a cluster", NULL, 0, NULL},
    {"sweep", "SCRIPT.lua [args]", "run a script that judges many plans",
     "weft lua with files for the rows of the script's first weft.sweep, see\n"
     "docs/sweeps.md. Ctrl-C ends the sweep; the script goes on with what is done.\n"
     "Options may follow the script; what follows -- is the script's.\n"
     "\n"
     "  --csv FILE         the best rows as CSV, written at the end\n"
     "  --jsonl FILE       every point as a line of JSON, written as it is done\n"
     "  --resume FILE      go on with such a file, which is begun if it is not there\n"
     "  --data DIR         data and models of plans may lie below DIR, too\n",
     OPT_SCRIPT | OPT_SWEEP, verb_sweep},
    {"repl", "[PLAN.lua]", "explore meshes and plans",
     "On a terminal: a prompt for Lua, with the functions of weft, and the globals "
     "`plan`\n"
     "and `mesh` of the plan (docs/repl.md). Otherwise the standard input is run as a\n"
     "script; the first error ends it with exit code 1.\n"
     "\n",
     OPT_PLAN, verb_repl},
    {"lua", "SCRIPT.lua [args]", "run a script with all of Lua and weft",
     "Runs a Lua file (-: the standard input) in which require \"weft\" gives meshes "
     "and\n"
     "plans as objects (docs/scripting.md). The arguments are in `arg` and `...`.\n"
     "\n"
     "  --data DIR         before the script: data and models of plans may lie there, "
     "too\n",
     OPT_SCRIPT, verb_lua},
    {"import", "DIR", "read weights of other formats", NULL, 0, NULL},
    {"ckpt", "DIR", "inspect and convert checkpoints", NULL, 0, NULL},
    {"doctor", "", "say what this machine can run",
     "Prints the CPU and which kernels it gets, the libraries that were found and their\n"
     "versions, the rate of matrix products in f32 and bf16 (about a second), and what "
     "is\n"
     "missing with the Debian package to install.\n"
     "\n"
     "  --json             print one object\n",
     OPT_JSON, verb_doctor},
};

static void print_help(FILE *f) {
  fputs("weft - parallel training plans in Lua\n\nusage: weft VERB [options]\n\n", f);
  for (int i = 0; i < LEN(verbs); i++)
    fprintf(f, "  %-8s %s%s\n", verbs[i].name, verbs[i].summary,
            verbs[i].run ? "" : " (not built yet)");
  fputs("\nweft VERB --help says more; weft --version prints the version.\n"
        "Without a verb, weft on a terminal is weft repl.\n",
        f);
}

static void print_verb_help(const Verb *v) {
  printf("usage: weft %s %s\n\n%s", v->name, v->args, v->help);
  if (v->options & OPT_PLAN) fputs(plan_options, stdout);
  fputs("\nExit codes: 0 ok; 1 the plan or the run is wrong; 2 usage or file; 3 a limit "
        "was "
        "hit;\n4 internal; 130 interrupted.\n",
        stdout);
}

static const Verb *find_verb(const char *name) {
  for (int i = 0; i < LEN(verbs); i++)
    if (strcmp(name, verbs[i].name) == 0) return &verbs[i];
  return NULL;
}

static int unknown_verb(const char *name) {
  const char *names[LEN(verbs)];
  for (int i = 0; i < LEN(verbs); i++)
    names[i] = verbs[i].name;
  const char *near = str_nearest(name, names, LEN(names));
  if (near)
    complain("there is no verb \"%s\" (did you mean \"%s\"?)", name, near);
  else
    complain("there is no verb \"%s\"; see weft --help", name);
  return weft_exit_code(WEFT_EUSAGE);
}

static int usage_error(Cli *cli, Arena *arena, const weft_error *e) {
  if (!speaks(cli)) return weft_exit_code(e->code);
  if (!cli->json) {
    complain("%s", e->text);
    return weft_exit_code(e->code);
  }
  Job j = {.arena = arena, .d = {.arena = arena}, .e = *e};
  return job_end(&j, cli, e->code, NULL, NULL);
}

static int run_verb(Cli *cli, int argc, char **argv) {
  weft_error e;
  err_clear(&e);
  Budget budget;
  budget_init(&budget, NULL, 0);
  weft_alloc counted = budget_alloc(&budget);
  Arena *arena = arena_new(&counted);
  if (!arena || setjmp(*arena_guard(arena))) {
    if (budget.over) budget_error(&budget, &e);
    complain("%s", budget.over ? e.text : "out of memory");
    return weft_exit_code(WEFT_ENOMEM);
  }
  weft_status st = options_parse(cli, argc, argv, &e);
  if (st == WEFT_OK && cli->memory > 0)
    budget.limit = (uint64_t)MIN(cli->memory * (1 << 30), 0x1p63);
  int code = 0;
  if (st == WEFT_OK && cli->help) {
    print_verb_help(cli->verb);
  } else {
    if (st == WEFT_OK && cli->narg == 0 && cli->verb->args[0] &&
        cli->verb->args[0] != '[')
      st = err_set(&e, WEFT_EUSAGE, "%s needs a %s: weft %s %s", cli->verb->name,
                   cli->verb->options & OPT_SCRIPT ? "script" : "plan", cli->verb->name,
                   cli->verb->args);
    if (st == WEFT_OK && cli->narg > 0 && !cli->verb->args[0])
      st = err_set(&e, WEFT_EUSAGE, "%s takes no arguments, got %s", cli->verb->name,
                   cli->arg[0]);
    if (st == WEFT_OK && cli->narg > 1 && cli->verb->run != verb_show)
      st = err_set(&e, WEFT_EUSAGE, "%s takes one plan, got %s and %s", cli->verb->name,
                   cli->arg[0], cli->arg[1]);
    code = st == WEFT_OK ? cli->verb->run(cli, arena) : usage_error(cli, arena, &e);
  }
  arena_free(arena);
  return code;
}

/* OpenMP's threads spin for long before they sleep; on a machine that others use, too,
 * each parallel region then costs a time slice. The library reads its setting when it is
 * loaded, before main, so the program starts itself once more. If that is not possible it
 * goes on: results are the same. */
static void start_with_short_waits(char **argv) {
  if (getenv("OMP_WAIT_POLICY") || getenv("GOMP_SPINCOUNT")) return;
  if (setenv("GOMP_SPINCOUNT", "20000", 1) == 0) execv("/proc/self/exe", argv);
}

/* Output that could not be written (a full disk, a closed pipe) is not success. */
static int flushed(int code) {
  if (fflush(stdout) == 0 && !ferror(stdout)) return code;
  complain("cannot write to the standard output");
  return code ? code : weft_exit_code(WEFT_EFILE);
}

int main(int argc, char **argv) {
  bool prompt = argc < 2 && isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
  if (argc < 2 && !prompt) {
    print_help(stderr);
    return weft_exit_code(WEFT_EUSAGE);
  }
  const char *name = prompt ? "repl" : argv[1];
  if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 ||
      strcmp(name, "help") == 0) {
    print_help(stdout);
    return flushed(0);
  }
  if (strcmp(name, "--version") == 0) {
    printf("weft %s\n", weft_version());
    return flushed(0);
  }
  Cli cli = {.verb = find_verb(name), .stop = &interrupted, .listen = listen_again};
  if (!cli.verb) return unknown_verb(name);
  if (!cli.verb->run) {
    complain("%s is not built yet", name);
    return weft_exit_code(WEFT_EUSAGE);
  }
  /* The others start no threads, and in milliseconds. */
  if (cli.verb->run != verb_check && cli.verb->run != verb_show)
    start_with_short_waits(argv);
  listen_again();
  /* Who closes a pipe wants no more: the program ends without a word. Among processes of
   * MPI a closed connection is that library's business. */
  signal(SIGPIPE, is_launched() ? SIG_IGN : SIG_DFL);
  return flushed(run_verb(&cli, MAX(argc - 2, 0), argv + 2));
}
