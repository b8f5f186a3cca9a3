/* options.c - parses options after the verb, by the rows of options.def. They may stand
 * anywhere, each once unless it is a list; `--` ends them. */
#include "cli.h"

#include <ctype.h>
#include <float.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

typedef enum {
  VALUE_NONE,
  VALUE_INT,
  VALUE_NUMBER,
  VALUE_WORD,
  VALUE_CHOICE,
  VALUE_OUTPUT,
  VALUE_LIST
} Value;

typedef struct Option {
  const char *name, *shorter;
  unsigned on; /* bits of the verbs that have it */
  Value value;
  size_t at, count;    /* offset in Cli; count: offset of the length of a list */
  int64_t least, most; /* range of an integer */
} Option;

#define AT(m) offsetof(Cli, m)
static const Option option[] = {
#define FLAG(member, name, shorter, on)                                                  \
  {name, shorter, on, VALUE_NONE, AT(member), 0, 0, 0},
#define INTEGER(member, name, shorter, on, least, most)                                  \
  {name, shorter, on, VALUE_INT, AT(member), 0, least, most},
#define NUMBER(member, name, shorter, on)                                                \
  {name, shorter, on, VALUE_NUMBER, AT(member), 0, 0, 0},
#define WORD(member, name, shorter, on)                                                  \
  {name, shorter, on, VALUE_WORD, AT(member), 0, 0, 0},
#define OUTPUT(member, name, shorter, on)                                                \
  {name, shorter, on, VALUE_OUTPUT, AT(member), 0, 0, 0},
#define CHOICE(member, name, shorter, on, choices)                                       \
  {name, shorter, on, VALUE_CHOICE, AT(member), 0, 0, 0},
#define LIST(member, name, shorter, on, n)                                               \
  {name, shorter, on, VALUE_LIST, AT(member), AT(n), 0, 0},
#include "options.def"
};

static bool has_option(const Cli *cli, const Option *o) { return o->on & cli->verb->bit; }

/* The option of this verb that `arg` names, and its value if it is in the same word. */
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

/* What others call an option that the verb has; NULL: nothing. */
static const char *called_here(const Cli *cli, const char *arg) {
  static const struct {
    const char *there, *here;
  } known[] = {{"--define", "-D"},    {"--sbatch", "--slurm"},
               {"--srun", "--slurm"}, {"--mpiexec", "--mpirun"},
               {"--out", "--output"}, {"--outfile", "--output"}};
  size_t n = strcspn(arg, "=");
  const char *ignored;
  for (int i = 0; i < LEN(known); i++)
    if (strlen(known[i].there) == n && strncmp(known[i].there, arg, n) == 0 &&
        find(cli, known[i].here, &ignored))
      return known[i].here;
  return NULL;
}

static weft_status unknown(const Cli *cli, const char *arg, weft_error *e) {
  const char *names[LEN(option)];
  int n = 0;
  for (int i = 0; i < LEN(option); i++)
    if (has_option(cli, &option[i])) names[n++] = option[i].name;
  const char *near = called_here(cli, arg);
  if (!near) near = str_nearest(arg, names, n);
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
  if (o->value == VALUE_INT) {
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
  switch (o->value) {
  case VALUE_NONE: *(bool *)at = true; return WEFT_OK;
  case VALUE_WORD:
  case VALUE_CHOICE:
  case VALUE_OUTPUT: *(const char **)at = value; return WEFT_OK;
  case VALUE_LIST: {
    int *n = (int *)((char *)cli + o->count);
    if (*n == CLI_LIST)
      return err_set(e, WEFT_EUSAGE, "%s is given more than %d times", o->name, CLI_LIST);
    ((const char **)at)[(*n)++] = value;
    return WEFT_OK;
  }
  case VALUE_INT:
  case VALUE_NUMBER: return store_number(cli, o, value, e);
  }
  return WEFT_OK;
}

bool is_assignment(const char *word) {
  bool named = isalpha((unsigned char)word[0]) || word[0] == '_';
  return named && word[strcspn(word, "=/")] == '=';
}

/* Behind the plan of a verb that loads one, key=value is a field of it, as with --set. */
static bool sets_field(const Cli *cli, const char *arg) {
  bool one_plan = cli->verb->takes == TAKES_ONE || cli->verb->bit == ON_SHOW;
  return one_plan && cli->verb->bit & PLAN_VERBS && cli->narg && is_assignment(arg);
}

static weft_status take_argument(Cli *cli, const char *arg, weft_error *e) {
  if (sets_field(cli, arg) && cli->nset < CLI_LIST) {
    cli->set[cli->nset++] = arg;
    return WEFT_OK;
  }
  if (cli->narg == CLI_ARGS)
    return err_set(e, WEFT_EUSAGE, "too many arguments: %s", arg);
  cli->arg[cli->narg++] = arg;
  return WEFT_OK;
}

/* The word after an option is its value, unless it is itself an option of the verb: then
 * the value is missing. `--log=--json` means a file of that name. */
static weft_status next_word(const Cli *cli, const Option *o, const char *word,
                             weft_error *e) {
  const char *ignored;
  if (!word) return err_set(e, WEFT_EUSAGE, "%s needs a value", o->name);
  if (word[0] != '-' || !word[1] || !find(cli, word, &ignored)) return WEFT_OK;
  return err_set(e, WEFT_EUSAGE,
                 "%s needs a value, and %s is an option; %s=%s if it is the value",
                 o->name, word, o->name, word);
}

/* Parses the option at argv[i]; returns the index of the last word that belongs to it, -1
 * after an error. */
static int take_option(Cli *cli, int i, int argc, char **argv, bool *seen,
                       weft_error *e) {
  const char *arg = argv[i], *value;
  const Option *o = find(cli, arg, &value);
  if (!o) return unknown(cli, arg, e), -1;
  if (o->value == VALUE_NONE && value)
    return err_set(e, WEFT_EUSAGE, "%s takes no value", o->name), -1;
  if (o->value != VALUE_NONE && o->value != VALUE_LIST && seen[o - option])
    return err_set(e, WEFT_EUSAGE, "%s is given twice", o->name), -1;
  seen[o - option] = true;
  if (o->value != VALUE_NONE && !value) {
    value = ++i < argc ? argv[i] : NULL;
    if (next_word(cli, o, value, e) != WEFT_OK) return -1;
  }
  if (o->value != VALUE_NONE && !*value)
    return err_set(e, WEFT_EUSAGE, "the value of %s is empty", o->name), -1;
  return store(cli, o, value, e) == WEFT_OK ? i : -1;
}

/* A file, or with `folders` a folder, and no terminal. */
static bool same_file(const char *a, const char *b, bool folders) {
  struct stat x, y;
  if (stat(a, &x) != 0 || stat(b, &y) != 0) return false;
  bool keeps = S_ISREG(x.st_mode) || (folders && S_ISDIR(x.st_mode));
  return keeps && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* What is given for an option of this verb that may name a file; NULL: nothing. */
static const char *name_of(const Cli *cli, const Option *o) {
  bool names = o->value == VALUE_WORD || o->value == VALUE_OUTPUT;
  return names && has_option(cli, o) ? *(const char *const *)((const char *)cli + o->at)
                                     : NULL;
}

/* Some of the files that options name are replaced, others are added to: one that the
 * verb reads, such as the plan, would be lost, and one of two that it writes. What two
 * options write into a folder has names of its own. */
static weft_status keep_files(const Cli *cli, const Option *o, weft_error *e) {
  const char *name = name_of(cli, o);
  for (int k = 0; k < cli->narg; k++)
    if (same_file(name, cli->arg[k], true))
      return err_file(e, WEFT_EUSAGE, name, 0,
                      "is read, so %s would write over it: give it another name",
                      o->name);
  for (int i = 0; i < LEN(option); i++) {
    const char *other = &option[i] == o ? NULL : name_of(cli, &option[i]);
    if (!other) continue;
    bool made = option[i].value == VALUE_OUTPUT && strcmp(name, other) == 0 &&
                access(name, F_OK) != 0;
    if (made || same_file(name, other, false))
      return err_file(
          e, WEFT_EUSAGE, name, 0,
          "is the file of %s, so %s would write over it: give it another name",
          option[i].name, o->name);
  }
  return WEFT_OK;
}

/* After the script, `weft lua` takes every word as an argument of the script. `weft
 * sweep` has options that may come after the script, so an unknown one is an error and
 * not passed on; after `--` every word is an argument of the script. */
weft_status options_parse(Cli *cli, int argc, char **argv, weft_error *e) {
  bool options = true, script = false;
  const char *ignored;
  bool seen[LEN(option)] = {0};
  TakesArguments takes = cli->verb->takes;
  for (int i = 0; i < LEN(option); i++)
    if (option[i].value == VALUE_INT) *(int64_t *)((char *)cli + option[i].at) = -1;
  cli->script_argv = argv;
  /* Usage errors are printed as JSON even if --json comes later. */
  for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++)
    if (strcmp(argv[i], "--json") == 0) cli->json = find(cli, argv[i], &ignored) != NULL;
  for (int i = 0; i < argc; i++) {
    char *arg = argv[i];
    if (options && strcmp(arg, "--") == 0) {
      options = false;
    } else if (options && arg[0] == '-' && arg[1]) {
      i = take_option(cli, i, argc, argv, seen, e);
      if (i < 0) return e->code;
    } else if (script) {
      cli->script_argv[cli->script_argc++] =
          arg; /* safe: written no later than where it was read */
    } else {
      TRY(take_argument(cli, arg, e));
      script = takes == TAKES_SCRIPT || takes == TAKES_SCRIPT_THEN_OPTIONS;
      if (takes == TAKES_SCRIPT) options = false;
    }
  }
  for (int i = 0; i < LEN(option); i++)
    if (option[i].value == VALUE_OUTPUT && name_of(cli, &option[i]))
      TRY(keep_files(cli, &option[i], e));
  return WEFT_OK;
}

weft_status options_belong(const Belongs *o, int n, weft_error *e) {
  for (int i = 0; i < n; i++)
    if (o[i].given)
      return err_set(e, WEFT_EUSAGE, "%s belongs to %s", o[i].option, o[i].to);
  return WEFT_OK;
}
