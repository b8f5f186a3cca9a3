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

/* The verbs as bits, for the rows of options. */
enum {
#define VERB(ID, ...) INDEX_OF_##ID,
#include "verbs.def"
};
enum {
#define VERB(ID, ...) ON_##ID = 1 << INDEX_OF_##ID,
#include "verbs.def"
  EVERY_VERB = ~0
};

/* Groups of verbs, each with options in common. */
enum {
  LOADS_PLAN = 1,  /* the plan of the command line */
  LOADS_PLANS = 2, /* plans among its arguments, in Lua */
  RUNS_RANKS = 4,  /* on processes, which a launcher may have started */
  PRINTS_JSON = 8
};
/* The verbs of a group. */
enum {
#define VERB(ID, name, takes, needs, args, summary, groups)                              \
  | ((groups)&LOADS_PLAN ? ON_##ID : 0)
  PLAN_VERBS = 0
#include "verbs.def"
  ,
#define VERB(ID, name, takes, needs, args, summary, groups)                              \
  | ((groups)&LOADS_PLANS ? ON_##ID : 0)
  PLANS_VERBS = 0
#include "verbs.def"
  ,
#define VERB(ID, name, takes, needs, args, summary, groups)                              \
  | ((groups)&RUNS_RANKS ? ON_##ID : 0)
  RUN_VERBS = 0
#include "verbs.def"
  ,
#define VERB(ID, name, takes, needs, args, summary, groups)                              \
  | ((groups)&PRINTS_JSON ? ON_##ID : 0)
  JSON_VERBS = 0
#include "verbs.def"
};

enum { CLI_LIST = 256, CLI_ARGS = 256 };

typedef struct Cli {
  const struct Verb *verb;
#define FLAG(member, ...)    bool member;
#define INTEGER(member, ...) int64_t member;
#define NUMBER(member, ...)  double member;
#define WORD(member, ...)    const char *member;
#define OUTPUT(member, ...)  const char *member;
#define CHOICE(member, ...)  const char *member;
#define LIST(member, name, shorter, on, n)                                               \
  const char *member[CLI_LIST + 1];                                                      \
  int n;
#include "options.def"
  const char *arg[CLI_ARGS]; /* arguments that are not options */
  int narg;
  char **script_argv; /* arguments of the script */
  int script_argc;
  bool cut_short; /* Ctrl-C has ended a sweep; its finished rows were kept */
  StopFlag *stop; /* set by SIGINT; a second SIGINT ends the process */
  void (*heed)(
      int sig); /* handles this signal as the first Ctrl-C; *stop gets its number.
                 * One that was ignored when the program started stays so */
  void (*unheed)(int sig); /* lets the signal end the process again */
  void (*listen)(void);    /* resets *stop, so that the next SIGINT is the first again */
} Cli;

typedef enum {
  TAKES_NONE,
  TAKES_ONE,
  TAKES_MORE,
  TAKES_SCRIPT,             /* all that follows are arguments of the script */
  TAKES_SCRIPT_THEN_OPTIONS /* options of the verb may follow, up to --; other words are
                               arguments of the script */
} TakesArguments;

typedef struct Verb {
  unsigned bit; /* ON_RUN ... */
  const char *name;
  TakesArguments takes;
  const char *needs, *args, *summary; /* stdlib/help has the rest */
  int (*run)(Cli *cli, Arena *arena); /* returns the exit code */
} Verb;

#define VERB(ID, name, ...) int verb_##name(Cli *cli, Arena *arena);
#include "verbs.def"

struct lua_State;
/* The rank that a launcher has given this process, else 0. */
int launched_rank(void);
int launched_ranks(void); /* of all processes; 1 without a launcher */
bool is_launched(void);   /* as one of several, by mpirun or the like */
/* For --procs: WEFT_EUSAGE if it was, or if the variables of a launcher are wrong. */
weft_status launched_alone(weft_error *e);

/* ---- spawn_ranks.c ---- */
/* Runs the verb as several processes (weft run --procs); returns the exit code. */
int run_procs(Cli *cli, Arena *arena);
/* ---- spawn_per_gpu.c ---- */
/* Sets --procs if each rank of the plan is to have a GPU of its own. */
weft_status procs_for_gpus(Cli *cli, Arena *arena, weft_error *e);

/* ---- rendezvous_env.c ---- */
struct LaunchInfo;
struct Rendezvous;
/* The name or address under which other processes reach this one; NULL: not given. */
weft_status host_of_env(const char **out, weft_error *e);
/* The rendezvous address of the run from the environment; WEFT_EUSAGE names a variable
 * that is not set. */
weft_status rendezvous_of_env(const struct LaunchInfo *info, const StopFlag *stop,
                              struct Rendezvous *out, weft_error *e);

/* ---- options.c ---- */
/* Parses argv after the verb; WEFT_EUSAGE with a message. */
weft_status options_parse(Cli *cli, int argc, char **argv, weft_error *e);
/* Whether a word is key=value, with nothing of a path before the =. */
bool is_assignment(const char *word);
/* An option that means something only beside another one, or in one form of a verb. */
typedef struct Belongs {
  bool given;
  const char *option, *to;
} Belongs;
/* In the other cases: the first that is given is an error. */
weft_status options_belong(const Belongs *o, int n, weft_error *e);

/* ---- verb_frame.c ---- */
/* Whether this process reports: false for all processes of a run but rank 0. */
bool is_rank0(const Cli *cli);
/* Before another process ends with an error: its launcher ends all at the first that
 * does, and rank 0 may not have said why by then. */
void let_rank0_report(void);
/* job_load with the options of the command line. */
weft_status job_start(Job *j, const Cli *cli, Arena *arena, const char *path);
/* Prints the diagnostics of a job (with --json the whole object: its result is written by
 * `result` if `st` is WEFT_OK; an error that it leaves in the job's is that of the verb),
 * frees the job and returns the exit code. */
int job_end(Job *j, const Cli *cli, weft_status st, void (*result)(Json *out, void *ud),
            void *ud);
/* The same, with the part of a result that there is beside an error; NULL: there is none.
 */
int job_end_part(Job *j, const Cli *cli, weft_status st,
                 void (*result)(Json *out, void *ud), void *ud);

/* Before a verb writes what must not stay half written: SIGTERM and SIGHUP ask it to end,
 * as the first Ctrl-C does. */
void heed_ends(const Cli *cli);
/* The exit code of a verb: where a signal has ended it, that of the signal. */
int code_of_signal(const Cli *cli, weft_status st, int code);

/* Reports an error without a job, as the verb prints errors, and returns the exit code.
 */
int verb_fails(const Cli *cli, Arena *arena, const weft_error *e);

/* Prints a warning of what a verb does; --json has it among the diagnostics of the job.
 */
void verb_warns(const Cli *cli, Job *j, const char *fmt, ...) PRINTF(3, 4);
/* What run_warning has. */
void verb_warns_of_run(const Cli *cli, Job *j, const Run *r);

/* ---- lua.c ---- */
/* Runs a script; errors go to stderr. */
weft_status run_script(struct lua_State *L, const Cli *cli, const char *path);
/* The host that scripts and the prompt get. */
ScriptHost script_host_of(Cli *cli);

/* ---- show_schedule.c ---- */
typedef struct ScheduleView {
  Job *job;
  Schedule step; /* all rounds of it, and when its actions run */
  Timeline timeline;
  bool runs; /* the schedule has no deadlock, so there is a timeline */
  /* NULL if the plan does not compile, which the view does not need */
  RankTraffic *traffic;
  const char *unknown; /* then the reason */
  int width;
  bool colour;
} ScheduleView;
/* After job_mesh. A schedule that cannot run is WEFT_EPLAN; schedule_text still shows its
 * actions. */
weft_status schedule_view(ScheduleView *v, Job *j, const Cli *cli);
void schedule_text(const ScheduleView *v, Text *out);
void schedule_json(const ScheduleView *v, Json *out);
weft_status schedule_picture(const ScheduleView *v, const char *path, weft_error *e);

/* ---- show_placed.c ---- */
/* Whether the compiler placed collectives of parameters or gradients; and these, between
 * the actions of each rank. */
bool placed_any(const Compiled *c);
void placed_text(const Compiled *c, Arena *a, Text *out);
void placed_json(const Compiled *c, Arena *a, Json *out);

/* ---- output.c ---- */
bool colour_wanted(FILE *f);
/* Of a terminal; else 80. */
int columns_of(FILE *f);
/* Prints an error that is not about a plan to stderr: "weft: ...". */
void report_error(const char *fmt, ...) PRINTF(1, 2);
/* Writes all of `t` and frees it. */
void print_text(FILE *f, Text *t);

#endif
