/* options.c - options after the verb. They may stand anywhere, each once unless it is a
 * list;
 * `--` ends them. */
#include "cli.h"

#include <float.h>
#include <stddef.h>
#include <stdlib.h>

typedef enum { TAKES_NOTHING, TAKES_INT, TAKES_NUMBER, TAKES_TEXT, TAKES_LIST } Takes;

typedef struct Option {
  const char *name, *shorter;
  unsigned bit; /* 0: every verb has it */
  Takes takes;
  size_t at, count;    /* in Cli; count: of a list */
  int64_t least, most; /* of an integer */
} Option;

#define AT(m) offsetof(Cli, m)
static const Option option[] = {
    {"--help", "-h", 0, TAKES_NOTHING, AT(help), 0, 0, 0},
    {"--json", NULL, OPT_JSON, TAKES_NOTHING, AT(json), 0, 0, 0},
    {"--csv", NULL, OPT_CSV, TAKES_NOTHING, AT(csv), 0, 0, 0},
    {"--csv", NULL, OPT_SWEEP, TAKES_TEXT, AT(csv_file), 0, 0, 0},
    {"--jsonl", NULL, OPT_SWEEP, TAKES_TEXT, AT(jsonl), 0, 0, 0},
    {"--resume", NULL, OPT_SWEEP | OPT_LOG, TAKES_TEXT, AT(resume), 0, 0, 0},
    {"--comms", NULL, OPT_CSV, TAKES_NOTHING, AT(comms), 0, 0, 0},
    {"--quiet", "-q", OPT_QUIET, TAKES_NOTHING, AT(quiet), 0, 0, 0},
    {"--set", NULL, OPT_PLAN | OPT_IMPORT, TAKES_LIST, AT(set), AT(nset), 0, 0},
    {"-D", NULL, OPT_PLAN, TAKES_LIST, AT(define), AT(ndefine), 0, 0},
    {"--data", NULL, OPT_PLAN | OPT_SCRIPT, TAKES_LIST, AT(data), AT(ndata), 0, 0},
    {"--memory", NULL, OPT_PLAN, TAKES_NUMBER, AT(memory), 0, 0, 0},
    {"--steps", NULL, OPT_STEPS, TAKES_INT, AT(steps), 0, 1, 1000000000000},
    {"--threads", NULL, OPT_THREADS, TAKES_INT, AT(threads), 0, 1, 1024},
    {"--procs", NULL, OPT_TRACE, TAKES_INT, AT(procs), 0, 1, 1024},
    {"--trace", NULL, OPT_TRACE, TAKES_TEXT, AT(trace), 0, 0, 0},
    {"--slurm", NULL, OPT_LAUNCH, TAKES_NOTHING, AT(slurm), 0, 0, 0},
    {"--mpirun", NULL, OPT_LAUNCH, TAKES_NOTHING, AT(mpirun), 0, 0, 0},
    {"--torchrun", NULL, OPT_LAUNCH, TAKES_NOTHING, AT(torchrun), 0, 0, 0},
    {"--output", "-o", OPT_OUTPUT, TAKES_TEXT, AT(output), 0, 0, 0},
    {"--model", NULL, OPT_IMPORT, TAKES_TEXT, AT(model), 0, 0, 0},
    {"--world", NULL, OPT_IMPORT, TAKES_INT, AT(world), 0, 1, 10000000},
    {"--comm", NULL, OPT_COMM, TAKES_TEXT, AT(comm), 0, 0, 0},
    {"--device", NULL, OPT_DEVICE, TAKES_TEXT, AT(device), 0, 0, 0},
    {"--svg", NULL, OPT_DRAW, TAKES_TEXT, AT(svg), 0, 0, 0},
    {"--width", NULL, OPT_DRAW, TAKES_INT, AT(width), 0, 20, 1000000},
    {"--log", NULL, OPT_LOG, TAKES_TEXT, AT(log), 0, 0, 0},
    {"--tensorboard", NULL, OPT_LOG, TAKES_TEXT, AT(tensorboard), 0, 0, 0},
    {"--out", "-o", OPT_TOKENIZE, TAKES_TEXT, AT(out), 0, 0, 0},
    {"--eot", NULL, OPT_TOKENIZE, TAKES_TEXT, AT(eot), 0, 0, 0},
    {"--format", NULL, OPT_TOKENIZE, TAKES_TEXT, AT(format), 0, 0, 0},
    {"--append", NULL, OPT_LOG, TAKES_NOTHING, AT(append), 0, 0, 0},
    {"--export", NULL, OPT_LOG, TAKES_TEXT, AT(export), 0, 0, 0},
    {"--dtype", NULL, OPT_EXPORT, TAKES_TEXT, AT(dtype), 0, 0, 0},
    {"--shard-size", NULL, OPT_EXPORT, TAKES_TEXT, AT(shard_size), 0, 0, 0},
    {"--ckpt", NULL, OPT_SAMPLE, TAKES_TEXT, AT(ckpt), 0, 0, 0},
    {"--weights", NULL, OPT_SAMPLE, TAKES_TEXT, AT(weights), 0, 0, 0},
    {"--prompt", NULL, OPT_SAMPLE, TAKES_LIST, AT(prompt), AT(nprompt), 0, 0},
    {"--stop", NULL, OPT_SAMPLE, TAKES_LIST, AT(until), AT(nuntil), 0, 0},
    {"--tokenizer", NULL, OPT_SAMPLE, TAKES_TEXT, AT(tokenizer), 0, 0, 0},
    {"--tokens", NULL, OPT_SAMPLE, TAKES_TEXT, AT(tokens), 0, 0, 0},
    {"--max-tokens", NULL, OPT_SAMPLE, TAKES_INT, AT(max_tokens), 0, 1, 1000000000},
    {"--temperature", NULL, OPT_SAMPLE, TAKES_NUMBER, AT(temperature), 0, 0, 0},
    {"--top-k", NULL, OPT_SAMPLE, TAKES_INT, AT(top_k), 0, 1, INT32_MAX},
    {"--top-p", NULL, OPT_SAMPLE, TAKES_NUMBER, AT(top_p), 0, 0, 0},
    {"--seed", NULL, OPT_SAMPLE, TAKES_INT, AT(seed), 0, 0, INT64_MAX},
    {"--greedy", NULL, OPT_SAMPLE, TAKES_NOTHING, AT(greedy), 0, 0, 0},
    {"--offsets", NULL, OPT_SHOW, TAKES_NOTHING, AT(offsets), 0, 0, 0},
    {"--logical", NULL, OPT_SHOW, TAKES_NOTHING, AT(logical), 0, 0, 0},
    {"--from", NULL, OPT_FROM, TAKES_TEXT, AT(from), 0, 0, 0},
    {"--rank", NULL, OPT_SHOW, TAKES_INT, AT(rank), 0, 0, INT32_MAX},
    {"--ranks", NULL, OPT_RANKS, TAKES_INT, AT(ranks), 0, 1, 1024},
    {"--tolerance", NULL, OPT_TOLERANCE, TAKES_NUMBER, AT(tolerance), 0, 0, 0},
};
_Static_assert(LEN(option) <= 64, "options are counted in a mask");

static bool has_option(const Cli *cli, const Option *o) {
  return !o->bit || o->bit & cli->verb->options;
}

/* The option of this verb that `arg` names, and where its value starts if it is in the
 * same word. */
static const Option *find(const Cli *cli, const char *arg, const char **value) {
  for (int i = 0; i < LEN(option); i++) {
    const Option *o = &option[i];
    if (!has_option(cli, o)) continue;
    size_t n = strlen(o->name);
    *value = NULL;
    if (strcmp(arg, o->name) == 0 || (o->shorter && strcmp(arg, o->shorter) == 0))
      return o;
    if (strncmp(arg, o->name, n) == 0 && (arg[n] == '=' || strcmp(o->name, "-D") == 0)) {
      *value = arg + n + (arg[n] == '=');
      return o;
    }
  }
  return NULL;
}

static weft_status unknown(const Cli *cli, const char *arg, weft_error *e) {
  const char *names[LEN(option)];
  int n = 0;
  for (int i = 0; i < LEN(option); i++)
    if (has_option(cli, &option[i])) names[n++] = option[i].name;
  const char *near = str_nearest(arg, names, n);
  if (near)
    return err_set(e, WEFT_EUSAGE, "%s has no option %s (did you mean %s?)",
                   cli->verb->name, arg, near);
  return err_set(e, WEFT_EUSAGE, "%s has no option %s; see weft %s --help",
                 cli->verb->name, arg, cli->verb->name);
}

static weft_status store_number(Cli *cli, const Option *o, const char *value,
                                weft_error *e) {
  char *end;
  char *at = (char *)cli + o->at;
  if (o->takes == TAKES_INT) {
    long long v = strtoll(value, &end, 10);
    if (*value && !*end && v >= o->least && v <= o->most) {
      *(int64_t *)at = v;
      return WEFT_OK;
    }
    return err_set(e, WEFT_EUSAGE, "%s takes an integer from %lld to %lld, got \"%s\"",
                   o->name, (long long)o->least, (long long)o->most, value);
  }
  *(double *)at = strtod(value, &end);
  if (*value && !*end && *(double *)at > 0 && *(double *)at <= DBL_MAX) return WEFT_OK;
  return err_set(e, WEFT_EUSAGE, "%s takes a positive number, got \"%s\"", o->name,
                 value);
}

static weft_status store(Cli *cli, const Option *o, const char *value, weft_error *e) {
  char *at = (char *)cli + o->at;
  switch (o->takes) {
  case TAKES_NOTHING: *(bool *)at = true; return WEFT_OK;
  case TAKES_TEXT: *(const char **)at = value; return WEFT_OK;
  case TAKES_LIST: {
    int *n = (int *)((char *)cli + o->count);
    if (*n == CLI_LIST)
      return err_set(e, WEFT_EUSAGE, "%s is given more than %d times", o->name, CLI_LIST);
    ((const char **)at)[(*n)++] = value;
    return WEFT_OK;
  }
  case TAKES_INT:
  case TAKES_NUMBER: return store_number(cli, o, value, e);
  }
  return WEFT_OK;
}

static weft_status take_argument(Cli *cli, const char *arg, weft_error *e) {
  if (cli->narg == CLI_ARGS)
    return err_set(e, WEFT_EUSAGE, "too many arguments: %s", arg);
  cli->arg[cli->narg++] = arg;
  return WEFT_OK;
}

/* The word behind an option is its value, unless that is missing and the next option
 * stands there. `--log=--json` is a file of that name. */
static weft_status next_word(const Cli *cli, const Option *o, const char *word,
                             weft_error *e) {
  const char *ignored;
  if (!word) return err_set(e, WEFT_EUSAGE, "%s needs a value", o->name);
  if (word[0] != '-' || !word[1] || !find(cli, word, &ignored)) return WEFT_OK;
  return err_set(e, WEFT_EUSAGE,
                 "%s needs a value, and %s is an option; %s=%s if it is the value",
                 o->name, word, o->name, word);
}

/* Reads the option at argv[i]; returns the index of the last word that it takes, -1 after
 * an error. */
static int take_option(Cli *cli, int i, int argc, char **argv, uint64_t *seen,
                       weft_error *e) {
  const char *arg = argv[i], *value;
  const Option *o = find(cli, arg, &value);
  if (!o) return unknown(cli, arg, e), -1;
  uint64_t bit = 1ull << (o - option);
  if (o->takes == TAKES_NOTHING && value)
    return err_set(e, WEFT_EUSAGE, "%s takes no value", o->name), -1;
  if (o->takes != TAKES_NOTHING && o->takes != TAKES_LIST && *seen & bit)
    return err_set(e, WEFT_EUSAGE, "%s is given twice", o->name), -1;
  *seen |= bit;
  if (o->takes != TAKES_NOTHING && !value) {
    value = ++i < argc ? argv[i] : NULL;
    if (next_word(cli, o, value, e) != WEFT_OK) return -1;
  }
  if (o->takes != TAKES_NOTHING && !*value)
    return err_set(e, WEFT_EUSAGE, "the value of %s is empty", o->name), -1;
  return store(cli, o, value, e) == WEFT_OK ? i : -1;
}

/* `weft lua` leaves all that follows the script to it. `weft sweep` has options of its
 * own, which may follow, too: what is not one of them is an error and not lost in the
 * script; after `--` everything is the script's. */
weft_status options_parse(Cli *cli, int argc, char **argv, weft_error *e) {
  bool options = true, script = false;
  uint64_t seen = 0;
  unsigned has = cli->verb->options;
  cli->max_tokens = cli->top_k = cli->seed = -1;
  cli->steps = cli->threads = cli->rank = cli->ranks = cli->width = -1;
  cli->script_argv = argv;
  /* A usage error is reported as JSON too, whatever stands before --json. */
  for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++)
    if (strcmp(argv[i], "--json") == 0) cli->json = (has & OPT_JSON) != 0;
  for (int i = 0; i < argc; i++) {
    char *arg = argv[i];
    if (options && strcmp(arg, "--") == 0) {
      options = false;
    } else if (options && arg[0] == '-' && arg[1]) {
      i = take_option(cli, i, argc, argv, &seen, e);
      if (i < 0) return e->code;
    } else if (script) {
      cli->script_argv[cli->script_argc++] = arg; /* no later than where it stood */
    } else {
      TRY(take_argument(cli, arg, e));
      script = has & OPT_SCRIPT;
      if (script && !(has & OPT_SWEEP)) options = false;
    }
  }
  return WEFT_OK;
}
