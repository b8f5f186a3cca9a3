/* cli.h - shared by the verbs of the program `weft`: options, begin and end of a job,
 * output. */
#ifndef WEFT_CLI_H
#define WEFT_CLI_H

#include <stdio.h>

#include "bindings/object/format.h"
#include "bindings/api/job.h"
#include "bindings/runner/runner.h"
#include "vm/base/json.h"
#include "vm/draw/timeline_draw.h"

/* Which options a verb takes. */
enum {
  OPT_JSON = 1,
  OPT_PLAN = 2 /* --set, -D, --data, --memory */,
  OPT_STEPS = 4,
  OPT_THREADS = 8,
  OPT_COMM = 16,
  OPT_LOG = 32,
  OPT_SHOW = 64 /* --rank, --logical, --offsets */,
  OPT_CSV = 128,
  OPT_TOLERANCE = 256,
  OPT_RANKS = 512,
  OPT_QUIET = 1024,
  OPT_DRAW = 2048 /* --svg, --width */,
  OPT_SCRIPT = 4096 /* what follows the file belongs to the script */,
  OPT_DEVICE = 1 << 20,
  OPT_TOKENIZE = 1 << 19 /* --out, --eot, --format */,
  OPT_SWEEP = 8192 /* --csv FILE, --jsonl, --resume */,
  OPT_EXPORT = 1 << 14 /* --dtype, --shard-size */,
  OPT_FROM = 1 << 16,
  OPT_SAMPLE = 1 << 15 /* from --ckpt to --greedy */,
  OPT_TRACE = 1 << 17 /* --trace, --procs */,
  OPT_LAUNCH = 1 << 18 /* --slurm, --mpirun, --torchrun */,
  OPT_OUTPUT = 1 << 21 /* -o */,
  OPT_IMPORT = 1 << 22 /* --model, --world, --set */
};

enum { CLI_LIST = 256, CLI_ARGS = 256 };

typedef struct Cli {
  const struct Verb *verb;
  bool json, csv, comms, quiet, help, append;
  const char *set[CLI_LIST], *define[CLI_LIST], *data[CLI_LIST + 1];
  int nset, ndefine, ndata;
  const char *arg[CLI_ARGS]; /* what is not an option */
  int narg;
  char **script_argv; /* with OPT_SCRIPT: what follows the file */
  int script_argc;
  int64_t procs;
  int64_t steps, threads, rank, ranks, width;      /* -1: not given */
  double tolerance, memory;                        /* memory: GiB, 0: not given */
  const char *ckpt, *weights, *tokens, *tokenizer; /* of what is sampled */
  const char *prompt[CLI_LIST], *until[CLI_LIST];
  int nprompt, nuntil;
  int64_t max_tokens, top_k, seed; /* -1: not given */
  double temperature, top_p;       /* 0: not given */
  bool greedy;
  bool slurm, mpirun, torchrun;
  const char *trace, *output;
  const char *model; /* of settings that name none: a preset or a folder */
  int64_t world;     /* of settings that name none; 0: not given */
  const char *comm, *device, *log, *tensorboard, *svg;
  const char *csv_file, *jsonl;   /* of the rows of a sweep */
  const char *from;               /* a plan that has written checkpoints */
  const char *resume;             /* rows, or a checkpoint */
  const char *out, *eot, *format; /* of tokenize */
  const char *export, *dtype, *shard_size;
  bool offsets;          /* places in the arena, in programs */
  bool logical;          /* the graph as the model wrote it */
  bool cut_short;        /* Ctrl-C has ended a sweep, whose rows were kept */
  StopFlag *stop;        /* set by SIGINT; the second one ends the process */
  void (*heed)(int sig); /* as Ctrl-C; *stop is the signal's number */
  void (*listen)(void);  /* clears it: the next SIGINT is the first again */
} Cli;

typedef struct Verb {
  const char *name, *args, *summary; /* more is in stdlib/help.lua */
  unsigned options;
  int (*run)(Cli *cli, Arena *arena); /* returns the exit code */
} Verb;

struct lua_State;
int verb_ckpt(Cli *cli, Arena *arena);
int verb_check(Cli *cli, Arena *arena);
int verb_doctor(Cli *cli, Arena *arena);
int verb_import(Cli *cli, Arena *arena);
int verb_launch(Cli *cli, Arena *arena);
int verb_lua(Cli *cli, Arena *arena);
int verb_sweep(Cli *cli, Arena *arena);
int verb_repl(Cli *cli, Arena *arena);
int verb_run(Cli *cli, Arena *arena);
/* The rank that a launcher has given this process, else 0. */
int launched_rank(void);
int launched_ranks(void); /* of all processes, else 1 */
bool is_launched(void);   /* by mpirun or the like */

/* ---- procs.c ---- */
/* weft run --procs: the exit code of all. */
int run_procs(Cli *cli, Arena *arena);
/* ---- procs_per_gpu.c ---- */
/* Sets --procs where the ranks of the plan are to have a GPU each. */
weft_status procs_for_gpus(Cli *cli, Arena *arena, weft_error *e);

/* ---- rendezvous_env.c ---- */
struct LaunchInfo;
struct Rendezvous;
/* Where processes find each other, from the environment; WEFT_EUSAGE says what is not
 * set. */
weft_status rendezvous_of_env(const struct LaunchInfo *info, const StopFlag *stop,
                              struct Rendezvous *out, weft_error *e);
int verb_show(Cli *cli, Arena *arena);
int verb_tokenize(Cli *cli, Arena *arena);
int verb_verify(Cli *cli, Arena *arena);
int verb_sample(Cli *cli, Arena *arena);

/* ---- options.c ---- */
/* Reads argv after the verb. WEFT_EUSAGE with a message. */
weft_status options_parse(Cli *cli, int argc, char **argv, weft_error *e);

/* ---- verb_frame.c ---- */
/* False for the processes of a run beside rank 0. */
bool is_rank0(const Cli *cli);
/* job_load with the options of the command line. */
weft_status job_start(Job *j, const Cli *cli, Arena *arena, const char *path);
/* Prints what was wrong (or, with --json, the whole object without a result unless `st`
 * is WEFT_OK and `result` writes one), frees the job and gives the exit code. */
int job_end(Job *j, const Cli *cli, weft_status st, void (*result)(Json *out, void *ud),
            void *ud);

/* ---- lua.c ---- */
/* Runs a script and says on stderr what went wrong. */
weft_status run_script(struct lua_State *L, const Cli *cli, const char *path);
/* What scripts and the prompt offer to their state. */
ScriptHost script_host_of(Cli *cli);

/* ---- show_report.c ---- */
/* What the field or method `what` of the plan's object says, with one number if `arg` is
 * not negative: as text, and as JSON under the same key if `out` is given. */
weft_status show_report(struct weft_plan *plan, const char *what, int64_t arg, Text *text,
                        Json *out, weft_error *e);

/* ---- show_schedule.c ---- */
typedef struct ScheduleView {
  Job *job;
  Timeline timeline;
  bool runs;            /* no action waits for ever: there is a timeline */
  RankTraffic *traffic; /* NULL if the plan does not compile, which is not needed */
  const char *unknown;  /* then: why it does not */
  int width;
  bool colour;
} ScheduleView;
/* After job_mesh. A table that cannot run is WEFT_EPLAN; schedule_text shows what is in
 * it nevertheless. */
weft_status schedule_view(ScheduleView *v, Job *j, const Cli *cli);
void schedule_text(const ScheduleView *v, Text *out);
void schedule_json(const ScheduleView *v, Json *out);
weft_status schedule_picture(const ScheduleView *v, const char *path, weft_error *e);

/* ---- show_placed.c ---- */
/* Whether the compiler placed anything; what, between the actions of each rank. */
bool placed_any(const Compiled *c);
void placed_text(const Compiled *c, Arena *a, Text *out);
void placed_json(const Compiled *c, Arena *a, Json *out);

/* ---- output.c ---- */
bool colour_wanted(FILE *f);
/* Columns of a terminal, else 80. */
int columns_of(FILE *f);
/* An error that has no place in a plan, on stderr: "weft: ...". */
void report_error(const char *fmt, ...) PRINTF(1, 2);
/* Writes all of `t` and frees it. */
void print_text(FILE *f, Text *t);

#endif
