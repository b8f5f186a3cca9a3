/* show.c - weft show: mesh, stages, schedule, memory, communication and programs of a
 * plan. */
#include "bindings/cli/cli.h"

#include <ctype.h>
#include <stdlib.h>

#include "bindings/api/api.h"
#include "bindings/schedule/schedule_csv.h"
#include "vm/graph/graph_json.h"

typedef struct Topic Topic;
typedef struct Shown {
  struct weft_plan plan; /* only its job is set */
  Job *job;
  const Topic *topic; /* NULL: the overview */
  int rank;           /* -1: not given */
  bool offsets;
  Text graph; /* what job_compile has dumped, for json_graph */
  ScheduleView view;
} Shown;

/* ---- graph ---- */

/* The graph of one rank, cut out of what job_compile has dumped, after the line that
 * names the pass. */
static void text_graph(Shown *w, Text *out) {
  Text *dumped = &w->job->dumped;
  const char *nl = dumped->s ? strchr(dumped->s, '\n') : NULL;
  if (nl) text_add(out, nl + 1);
  text_free(dumped);
}

static void text_logical(Shown *w, Text *out) { graph_dump(w->job->graph, out); }

/* The same graph as JSON, which was dumped as that. */
static void json_graph(Shown *w, Json *out) {
  json_raw(out, "ops", w->graph.s, w->graph.n);
}

static void json_logical(Shown *w, Json *out) { graph_json(w->job->graph, "ops", out); }

/* ---- schedule ---- */

static void text_schedule(Shown *w, Text *out) { schedule_text(&w->view, out); }

static void text_csv(Shown *w, Text *out) {
  schedule_csv_write(&w->job->schedule, false, out);
}

static void text_comms(Shown *w, Text *out) {
  schedule_csv_write(&w->job->schedule, true, out);
}

static void json_schedule(Shown *w, Json *out) { schedule_json(&w->view, out); }

/* ---- program ---- */

static void text_program(Shown *w, Text *out) {
  program_print(w->job->compiled, (int)MAX(w->rank, 0), w->offsets, out);
}

/* A program is a JSON object of its own. */
static void json_program(Shown *w, Json *out) {
  Text program = {0};
  program_json(w->job->compiled, (int)MAX(w->rank, 0), &program);
  while (program.n && isspace((unsigned char)program.s[program.n - 1])) program.n--;
  json_raw(out, "program", program.s, program.n);
  text_free(&program);
}

/* ---- the verb ---- */

typedef enum { NEED_MESH, NEED_GRAPH, NEED_SCHEDULE, NEED_COMPILED } Need;

/* A topic without functions here is a field or method of plan objects. */
struct Topic {
  const char *name;
  Need need;
  void (*text)(Shown *w, Text *out);
  void (*json)(Shown *w, Json *out);
  bool rank; /* --rank is allowed */
};

static const Topic topics[] = {
    {"mesh", NEED_MESH, NULL, NULL, false},
    {"graph", NEED_COMPILED, text_graph, json_graph, false},
    {"schedule", NEED_SCHEDULE, text_schedule, json_schedule, false},
    {"memory", NEED_COMPILED, NULL, NULL, false},
    {"stages", NEED_COMPILED, NULL, NULL, false},
    {"comm", NEED_COMPILED, NULL, NULL, true},
    {"rank", NEED_COMPILED, NULL, NULL, true},
    {"program", NEED_COMPILED, text_program, json_program, true},
};
#define TOPICS "mesh, graph, schedule, memory, stages, comm, rank, program"

/* Variants of topics: the schedule as --csv, with --comms; the graph with --logical. */
static const Topic csv[] = {
    {"schedule", NEED_SCHEDULE, text_csv, json_schedule, false},
    {"schedule", NEED_SCHEDULE, text_comms, json_schedule, false}};
static const Topic logical = {"graph", NEED_GRAPH, text_logical, json_logical, false};

/* Without a topic these are shown, in this order; JSON has its keys in alphabetical
 * order. */
static const int overview[] = {0, 3, 2}, overview_json[] = {3, 0, 2};

static const Topic *find_topic(const char *name) {
  for (int i = 0; i < LEN(topics); i++)
    if (strcmp(topics[i].name, name) == 0) return &topics[i];
  return NULL;
}

/* Of two words that are no topics, the one that is not named like a plan is wrong. */
static weft_status unknown_topic(const char *a, const char *b, weft_error *e) {
  const char *names[LEN(topics)], *end = strrchr(b, '.');
  const char *wrong = end && strcmp(end, ".lua") == 0 ? a : b;
  for (int i = 0; i < LEN(topics); i++) names[i] = topics[i].name;
  const char *near = str_nearest(wrong, names, LEN(topics));
  if (near)
    return err_set(e, WEFT_EUSAGE, "\"%s\" is none of " TOPICS ": did you mean %s?",
                   wrong, near);
  return err_set(e, WEFT_EUSAGE, "\"%s\" is none of " TOPICS, wrong);
}

/* Plan, topic and rank may be given in any order. */
static weft_status read_args(Cli *cli, const char **plan, const Topic **topic,
                             weft_error *e) {
  *plan = NULL;
  *topic = NULL;
  for (int i = 0; i < cli->narg; i++) {
    const char *arg = cli->arg[i];
    const Topic *t = find_topic(arg);
    bool number = *topic && (*topic)->rank && cli->rank < 0 && strlen(arg) < 10 &&
                  strspn(arg, "0123456789") == strlen(arg);
    if (t && !*topic) {
      *topic = t;
    } else if (number) {
      cli->rank = atoll(arg);
    } else if (!*plan) {
      *plan = arg;
    } else {
      return unknown_topic(*plan, arg, e);
    }
  }
  if (*topic && cli->logical && strcmp((*topic)->name, "graph") == 0) *topic = &logical;
  if (*plan) return WEFT_OK;
  return err_set(e, WEFT_EUSAGE, "show needs a plan: weft show %s", cli->verb->args);
}

static weft_status build(Shown *w, const Cli *cli) {
  Job *j = w->job;
  Need need = w->topic ? w->topic->need : NEED_COMPILED;
  TRY(job_mesh(j, 0));
  if (need == NEED_GRAPH) return job_graph(j);
  if (need == NEED_SCHEDULE) return schedule_view(&w->view, j, cli);
  bool graph = w->topic && w->topic->text == text_graph;
  if (graph) j->dump = cli->json ? "R" : "r";
  weft_status st = need == NEED_COMPILED ? job_compile(j) : WEFT_OK;
  if (graph && cli->json) w->graph = j->dumped, j->dumped = (Text){0};
  TRY(st);
  return w->topic ? WEFT_OK : schedule_view(&w->view, j, cli);
}

static weft_status check_options(const Job *j, const Cli *cli, const Topic *t,
                                 weft_error *e) {
  if (cli->rank >= 0 && !(t && t->rank))
    return err_set(e, WEFT_EUSAGE, "--rank belongs to show PLAN program, rank or comm");
  if (cli->offsets && !(t && t->text == text_program))
    return err_set(e, WEFT_EUSAGE, "--offsets belongs to show PLAN program");
  if (cli->logical && t != &logical)
    return err_set(e, WEFT_EUSAGE, "--logical belongs to show PLAN graph");
  bool schedule = t && strcmp(t->name, "schedule") == 0;
  if (!schedule && (cli->csv || cli->svg || cli->width >= 0))
    return err_set(e, WEFT_EUSAGE, "%s belongs to show PLAN schedule",
                   cli->csv   ? "--csv"
                   : cli->svg ? "--svg"
                              : "--width");
  if (cli->comms && !cli->csv) return err_set(e, WEFT_EUSAGE, "--comms belongs to --csv");
  if (cli->csv && cli->json)
    return err_set(e, WEFT_EUSAGE, "--csv and --json are two forms; give one of them");
  return cli->rank < 0 ? WEFT_OK : mesh_check_rank(&j->mesh, cli->rank, e);
}

/* ---- printing ---- */

/* The rank argument of a method of the plan object; rank() always has one. */
static int64_t asked(const Shown *s, const Topic *t) {
  if (!t->rank) return -1;
  return s->rank < 0 && strcmp(t->name, "rank") == 0 ? 0 : s->rank;
}

static weft_status topic_text(Shown *s, const Topic *t, Text *out) {
  if (!t->text) return show_report(&s->plan, t->name, asked(s, t), out, NULL, &s->job->e);
  t->text(s, out);
  return WEFT_OK;
}

/* What fails is in the job's error, which job_end finds. */
static void topic_json(Shown *s, const Topic *t, Json *out) {
  if (t->json)
    t->json(s, out);
  else
    show_report(&s->plan, t->name, asked(s, t), NULL, out, &s->job->e);
}

static void json_result(Json *out, void *ud) {
  Shown *s = ud;
  if (s->topic) topic_json(s, s->topic, out);
  for (int i = 0; !s->topic && i < LEN(overview_json); i++)
    topic_json(s, &topics[overview_json[i]], out);
}

static weft_status print_result(Shown *s) {
  Text out = {0};
  weft_status st = WEFT_OK;
  if (s->topic) st = topic_text(s, s->topic, &out);
  for (int i = 0; !s->topic && i < LEN(overview) && st == WEFT_OK; i++) {
    if (i) text_add(&out, "\n");
    st = topic_text(s, &topics[overview[i]], &out);
  }
  print_text(stdout, &out);
  return st;
}

int verb_show(Cli *cli, Arena *arena) {
  Shown shown = {.plan.job = {.arena = arena, .d = {.arena = arena}}};
  Job *j = shown.job = &shown.plan.job;
  const char *plan;
  weft_error e = NO_ERROR;
  weft_status st = read_args(cli, &plan, &shown.topic, &e);
  if (st != WEFT_OK) {
    j->e = e;
    return job_end(j, cli, st, NULL, NULL);
  }
  shown.rank = (int)MIN(cli->rank, INT32_MAX);
  shown.offsets = cli->offsets;
  st = job_start(j, cli, arena, plan);
  if (st == WEFT_OK) st = build(&shown, cli);
  if (st == WEFT_OK) st = check_options(j, cli, shown.topic, &j->e);
  if (st == WEFT_OK && cli->svg) st = schedule_picture(&shown.view, cli->svg, &j->e);
  if (cli->csv && st == WEFT_OK) shown.topic = &csv[cli->comms];
  /* A schedule that cannot run is shown nevertheless. */
  bool table = st == WEFT_EPLAN && shown.topic && j->schedule.list && !cli->csv;
  if (st == WEFT_OK && !cli->json)
    st = print_result(&shown);
  else if (table && !cli->json)
    print_result(&shown);
  int code = job_end(j, cli, st, json_result, &shown);
  text_free(&shown.graph);
  return code;
}
