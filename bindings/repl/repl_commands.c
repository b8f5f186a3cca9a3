/* repl_commands.c - the ,commands. */
#include "repl.h"

/* ---- one function for each ---- */

static bool complaint(Repl *r, const char *text) {
  repl_paint(r, "\033[31m", "error: ", &r->out);
  text_printf(&r->out, "%s\n", text);
  repl_flush(r, stderr);
  return false;
}

static bool plan(Repl *r, const char *arg) {
  if (!*arg) {
    printf("%s\n", r->plan ? r->plan : "no plan: ,plan FILE loads one");
    return true;
  }
  const char *before = r->plan;
  int nset = r->cli->nset;
  /* What was set belongs to the other plan. */
  if (!str_eq(before, arg)) r->cli->nset = 0;
  r->plan = arena_str(r->arena, arg);
  weft_status st = repl_load_plan(r);
  /* A wrong plan can be mended and loaded again; a file that is not there is a slip, and
   * ,set and ,reload stay with the plan that is loaded. */
  if (st == WEFT_EFILE && before) {
    r->plan = before;
    r->cli->nset = nset;
  }
  return st == WEFT_OK;
}

static bool reload(Repl *r, const char *arg) {
  if (!r->plan) return complaint(r, "there is no plan to load again: ,plan FILE");
  return repl_load_plan(r) == WEFT_OK;
}

static void print_sets(const Repl *r) {
  for (int i = 0; i < r->cli->nset; i++)
    printf("%s\n", r->cli->set[i]);
  if (!r->cli->nset) puts("every field is as in the plan");
}

/* "mesh.tp = 4" as --set takes it, without the blanks; NULL if it is none. */
static const char *assignment(Arena *a, const char *arg, size_t *path) {
  const char *equals = strchr(arg, '='), *value = equals;
  if (!equals) return NULL;
  while (equals > arg && equals[-1] == ' ')
    equals--;
  value += 1 + strspn(value + 1, " ");
  *path = (size_t)(equals - arg);
  return *path ? arena_printf(a, "%.*s=%s", (int)*path, arg, value) : NULL;
}

/* The value of a path that is set again takes the place of the old one, so that the list
 * stays short; a change that the plan does not take is undone. */
static bool set(Repl *r, const char *arg) {
  Cli *cli = r->cli;
  size_t path = 0;
  if (!*arg) {
    print_sets(r);
    return true;
  }
  const char *text = assignment(r->arena, arg, &path);
  if (!text) return complaint(r, ",set takes path=value: mesh.tp=4");
  if (!r->plan) return complaint(r, "there is no plan to change: ,plan FILE");
  int i = 0;
  while (i < cli->nset && strncmp(cli->set[i], text, path + 1) != 0)
    i++;
  if (i == CLI_LIST) return complaint(r, "too many fields are set");
  bool again = i < cli->nset;
  const char *old = again ? cli->set[i] : NULL;
  cli->set[i] = text;
  if (!again) cli->nset++;
  if (repl_load_plan(r) == WEFT_OK) return true;
  if (again)
    cli->set[i] = old;
  else
    cli->nset--;
  return false;
}

static bool timing(Repl *r, const char *arg) {
  if (!*arg) {
    r->timing = !r->timing;
    printf("the time of each line is %s\n", r->timing ? "printed" : "not printed");
    return true;
  }
  bool always = r->timing;
  r->timing = true;
  EvalResult done = repl_eval(r, arg, strlen(arg));
  r->timing = always;
  if (done == EVAL_INCOMPLETE) return complaint(r, "the line is not complete");
  return done == EVAL_DONE;
}

static bool help(Repl *r, const char *arg) {
  const char *near = NULL;
  bool known = true;
  if (*arg)
    known = help_topic(r->L, r->arena, arg, &r->out, &near);
  else
    help_overview(&r->out);
  if (known) {
    repl_flush(r, stdout);
    return true;
  }
  return complaint(r, near ? arena_printf(r->arena,
                                          "nothing is known about '%s' (did you mean "
                                          "'%s'?)",
                                          arg, near)
                           : arena_printf(r->arena, "nothing is known about '%s'", arg));
}

static bool quit(Repl *r, const char *arg) {
  r->quit = true;
  return true;
}

/* ---- all of them ---- */

const Command commands[] = {
    {"plan", "FILE", "loads a plan: globals `plan` and `mesh`", COMMAND_FILE, plan},
    {"reload", "", "loads the plan again, after its file was changed", COMMAND_NOTHING,
     reload},
    {"set", "path=value", "changes a field of the plan, for example ,set mesh.tp=4",
     COMMAND_SET, set},
    {"time", "[code]", "times a line of Lua; alone: every line, or none", COMMAND_CODE,
     timing},
    {"help", "[topic]", "this list, or what ?topic says", COMMAND_TOPIC, help},
    {"quit", "", "leaves, as Ctrl-D does", COMMAND_NOTHING, quit},
    {NULL, NULL, NULL, COMMAND_NOTHING, NULL}};

const Command *command_find(const char *name, size_t n) {
  for (const Command *c = commands; c->name; c++)
    if (strlen(c->name) == n && memcmp(c->name, name, n) == 0) return c;
  return NULL;
}

static bool unknown_command(Repl *r, const char *name) {
  const char *names[16];
  int n = 0;
  for (const Command *c = commands; c->name && n < LEN(names); c++)
    names[n++] = c->name;
  const char *near = str_nearest(name, names, n);
  if (near)
    return complaint(
        r, arena_printf(r->arena, "no command ',%s' (did you mean ',%s'?)", name, near));
  return complaint(r, arena_printf(r->arena, "no command ',%s'; ,help lists them", name));
}

bool command_run(Repl *r, const char *line) {
  const char *name = line + 1, *arg = name + strcspn(name, " \t");
  const Command *c = command_find(name, (size_t)(arg - name));
  if (!c) return unknown_command(r, arena_strn(r->arena, name, (size_t)(arg - name)));
  arg += strspn(arg, " \t");
  size_t n = strlen(arg);
  while (n && strchr(" \t", arg[n - 1]))
    n--;
  if (n && !*c->form)
    return complaint(r, arena_printf(r->arena, ",%s takes nothing", c->name));
  return c->run(r, arena_strn(r->arena, arg, n));
}
