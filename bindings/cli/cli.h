/* cli.h - what the verbs of the program `weft` share: options, the begin and end of a
 * job, and how results and messages are printed. */
#ifndef WEFT_CLI_H
#define WEFT_CLI_H

#include <stdio.h>

#include "bindings/job.h"
#include "vm/base/json.h"

/* Which options a verb takes. */
enum {
  OPT_JSON = 1,
  OPT_PLAN = 2 /* --set, -D */,
  OPT_STEPS = 4,
  OPT_THREADS = 8,
  OPT_COMM = 16,
  OPT_LOG = 32,
  OPT_RANK = 64,
  OPT_CSV = 128,
  OPT_TOLERANCE = 256,
  OPT_RANKS = 512,
  OPT_QUIET = 1024,
  OPT_SCRIPT = 2048 /* what follows the file belongs to the script */
};

enum { CLI_LIST = 256, CLI_ARGS = 8 };

typedef struct Cli {
  const struct Verb *verb;
  bool json, csv, quiet, help;
  const char *set[CLI_LIST], *define[CLI_LIST];
  int nset, ndefine;
  const char *arg[CLI_ARGS]; /* what is not an option */
  int narg;
  char **script_argv; /* with OPT_SCRIPT: what follows the file */
  int script_argc;
  int64_t steps, threads, rank, ranks; /* -1: not given */
  double tolerance;
  const char *comm, *log;
  StopFlag *stop; /* set by SIGINT */
} Cli;

typedef struct Verb {
  const char *name, *args, *summary, *help;
  unsigned options;
  int (*run)(Cli *cli, Arena *arena); /* NULL: not built yet; returns the exit code */
} Verb;

int verb_check(Cli *cli, Arena *arena);
int verb_lua(Cli *cli, Arena *arena);
int verb_run(Cli *cli, Arena *arena);
/* The rank that a launcher has given this process, else 0. */
int launched_rank(void);
int verb_show(Cli *cli, Arena *arena);
int verb_verify(Cli *cli, Arena *arena);

/* ---- options.c ---- */
/* Reads argv after the verb. WEFT_EUSAGE with a message. */
weft_status options_parse(Cli *cli, int argc, char **argv, weft_error *e);

/* ---- job.c ---- */
/* False for the processes of a run beside rank 0. */
bool speaks(const Cli *cli);
/* job_load with the options of the command line. */
weft_status job_start(Job *j, const Cli *cli, Arena *arena, const char *path);
/* Prints what was wrong (or, with --json, the whole object without a result unless `st`
 * is WEFT_OK and `result` writes one), frees the job and gives the exit code. */
int job_end(Job *j, const Cli *cli, weft_status st, void (*result)(Json *out, void *ud),
            void *ud);

/* ---- output.c ---- */
bool colour_wanted(FILE *f);
/* An error that has no place in a plan, on stderr: "weft: ...". */
void complain(const char *fmt, ...) PRINTF(1, 2);
const char *format_bytes(double n, char buf[32]); /* "1.5 MiB" */
const char *format_count(double n, char buf[32]); /* "1.05 M" */
/* "pp=2 dp=2 tp=2"; axes of size 1 are left out. */
const char *format_mesh(const Mesh *m, char buf[96]);
/* Writes all of `t` and frees it. */
void print_text(FILE *f, Text *t);

#endif
