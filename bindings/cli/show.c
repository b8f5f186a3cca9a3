/* show.c - weft show: the mesh, graph, schedule, memory and programs of a plan. */
#include "bindings/schedule/schedule_csv.h"
#include "cli.h"

#include <ctype.h>

typedef struct Topic Topic;
typedef struct Shown {
  Job *job;
  const Topic *topic; /* NULL: the overview */
  int rank;           /* of the program */
  ScheduleView view;
} Shown;

/* ---- mesh ---- */

static void text_mesh(Shown *w, Text *out) {
  enum { SHOWN = 64 };
  const Mesh *m = &w->job->mesh;
  char buf[96];
  text_printf(out, "mesh: %s, %d rank%s; slowest axis first\n", format_mesh(m, buf),
              m->world, m->world > 1 ? "s" : "");
  text_add(out, "  rank");
  for (int i = 0; i < AXIS_N; i++)
    if (m->size[m->order[i]] > 1) text_printf(out, "%14s", axis_name((Axis)m->order[i]));
  text_add(out, "\n");
  for (int r = 0; r < m->world && r < SHOWN; r++) {
    text_printf(out, "%6d", r);
    for (int i = 0; i < AXIS_N; i++)
      if (m->size[m->order[i]] > 1)
        text_printf(out, "%14d", mesh_coord(m, r, (Axis)m->order[i]));
    text_add(out, "\n");
  }
  if (m->world > SHOWN) text_printf(out, "  ... %d more ranks\n", m->world - SHOWN);
}

static void json_mesh(Shown *w, Json *out) {
  const Mesh *m = &w->job->mesh;
  json_open(out, "mesh", '{');
  json_open(out, "order", '[');
  for (int i = 0; i < AXIS_N; i++)
    json_str(out, NULL, axis_name((Axis)m->order[i]));
  json_close(out, ']');
  json_open(out, "size", '{');
  for (int i = 0; i < AXIS_N; i++)
    json_int(out, axis_name(axis_by_name(i)), m->size[axis_by_name(i)]);
  json_close(out, '}');
  json_open(out, "stride", '{');
  for (int i = 0; i < AXIS_N; i++)
    json_int(out, axis_name(axis_by_name(i)), m->stride[axis_by_name(i)]);
  json_close(out, '}');
  json_int(out, "world", m->world);
  json_close(out, '}');
}

/* ---- graph ---- */

static void text_graph(Shown *w, Text *out) {
  graph_dump(w->job->graph, out);
}

static void json_tensor(const Graph *g, Tid t, Json *out) {
  char label[96];
  json_open(out, NULL, '{');
  json_open(out, "dims", '[');
  for (int k = 0; k < g->t.at[t].ndim; k++)
    json_int(out, NULL, g->t.at[t].dim[k].size);
  json_close(out, ']');
  json_str(out, "dtype", dtype_name((DType)g->t.at[t].dtype));
  json_str(out, "name", tensor_label(g, t, label));
  json_close(out, '}');
}

static void json_graph(Shown *w, Json *out) {
  const Graph *g = w->job->graph;
  json_open(out, "ops", '[');
  for (int i = 0; i < g->op.n; i++) {
    const Op *op = &g->op.at[i];
    json_open(out, NULL, '{');
    json_open(out, "in", '[');
    for (int k = 0; k < op->nin; k++)
      json_tensor(g, op->in[k], out);
    json_close(out, ']');
    json_int(out, "line", op->line);
    json_str(out, "name", op->name);
    json_str(out, "op", op_info[op->code].name);
    json_open(out, "out", '[');
    for (int k = 0; k < op->nout; k++)
      json_tensor(g, op->out[k], out);
    json_close(out, ']');
    json_str(out, "unit", op->unit >= 0 ? g->unit.at[op->unit].name : NULL);
    json_close(out, '}');
  }
  json_close(out, ']');
}

/* ---- schedule ---- */

static void text_schedule(Shown *w, Text *out) {
  schedule_text(&w->view, out);
}

static void text_csv(Shown *w, Text *out) {
  schedule_csv_write(&w->job->schedule, false, out);
}

static void text_comms(Shown *w, Text *out) {
  schedule_csv_write(&w->job->schedule, true, out);
}

static void json_schedule(Shown *w, Json *out) {
  schedule_json(&w->view, out);
}

/* ---- memory ---- */

static void text_memory(Shown *w, Text *out) {
  char buf[32];
  for (int r = 0; r < w->job->mesh.size[AXIS_PP]; r++) {
    const Program *p = &w->job->compiled->prog[r];
    text_printf(out, "memory of each rank at pipeline rank %d: %s\n", r,
                format_bytes((double)p->arena_bytes, buf));
    for (int i = 0; i < p->nmem; i++)
      text_printf(out, "  %-18s %10s%s%s\n", p->mem[i].name,
                  format_bytes((double)p->mem[i].bytes, buf), p->mem[i].note ? "  " : "",
                  p->mem[i].note ? p->mem[i].note : "");
  }
}

static void json_memory(Shown *w, Json *out) {
  json_open(out, "memory", '[');
  for (int r = 0; r < w->job->mesh.size[AXIS_PP]; r++) {
    const Program *p = &w->job->compiled->prog[r];
    json_open(out, NULL, '{');
    json_open(out, "classes", '[');
    for (int i = 0; i < p->nmem; i++) {
      json_open(out, NULL, '{');
      json_int(out, "bytes", (int64_t)p->mem[i].bytes);
      json_str(out, "name", p->mem[i].name);
      json_str(out, "note", p->mem[i].note);
      json_close(out, '}');
    }
    json_close(out, ']');
    json_int(out, "pp", r);
    json_int(out, "total_bytes", (int64_t)p->arena_bytes);
    json_close(out, '}');
  }
  json_close(out, ']');
}

/* ---- the verb ---- */

typedef enum { NEED_MESH, NEED_GRAPH, NEED_SCHEDULE, NEED_COMPILED } Need;

struct Topic {
  const char *name;
  Need need;
  void (*text)(Shown *w, Text *out); /* NULL, both: the program of one rank */
  void (*json)(Shown *w, Json *out);
};

static const Topic topics[] = {
    {"mesh", NEED_MESH, text_mesh, json_mesh},
    {"graph", NEED_GRAPH, text_graph, json_graph},
    {"schedule", NEED_SCHEDULE, text_schedule, json_schedule},
    {"memory", NEED_COMPILED, text_memory, json_memory},
    {"program", NEED_COMPILED, NULL, NULL},
};

/* The schedule with --csv, and with --comms. */
static const Topic csv[] = {{"schedule", NEED_SCHEDULE, text_csv, json_schedule},
                            {"schedule", NEED_SCHEDULE, text_comms, json_schedule}};

/* Without a topic: these, in this order; JSON keys in the order of the alphabet. */
static const int overview[] = {0, 2, 3}, overview_json[] = {3, 0, 2};

static const Topic *find_topic(const char *name) {
  for (int i = 0; i < LEN(topics); i++)
    if (strcmp(topics[i].name, name) == 0) return &topics[i];
  return NULL;
}

/* The plan and the topic may come in any order. */
static weft_status read_args(Cli *cli, const char **plan, const Topic **topic,
                             weft_error *e) {
  *plan = NULL;
  *topic = NULL;
  for (int i = 0; i < cli->narg; i++) {
    const Topic *t = find_topic(cli->arg[i]);
    if (t && !*topic) {
      *topic = t;
    } else if (!*plan) {
      *plan = cli->arg[i];
    } else {
      return err_set(e, WEFT_EUSAGE,
                     "\"%s\" is none of mesh, graph, schedule, memory, "
                     "program",
                     cli->arg[i]);
    }
  }
  if (*plan) return WEFT_OK;
  return err_set(e, WEFT_EUSAGE, "show needs a plan: weft show %s", cli->verb->args);
}

static weft_status build(Shown *w, const Cli *cli) {
  Job *j = w->job;
  Need need = w->topic ? w->topic->need : NEED_COMPILED;
  TRY(job_mesh(j, 0));
  if (need == NEED_GRAPH) return job_graph(j);
  if (need == NEED_SCHEDULE) return schedule_view(&w->view, j, cli);
  if (need == NEED_COMPILED) TRY(job_compile(j));
  return w->topic ? WEFT_OK : schedule_view(&w->view, j, cli);
}

static weft_status check_options(const Job *j, const Cli *cli, const Topic *t,
                                 weft_error *e) {
  bool program = t && strcmp(t->name, "program") == 0;
  if (cli->rank >= 0 && !program)
    return err_set(e, WEFT_EUSAGE, "--rank belongs to show PLAN program");
  bool schedule = t && strcmp(t->name, "schedule") == 0;
  if (!schedule && (cli->csv || cli->svg || cli->width >= 0))
    return err_set(e, WEFT_EUSAGE, "%s belongs to show PLAN schedule",
                   cli->csv   ? "--csv"
                   : cli->svg ? "--svg"
                              : "--width");
  if (cli->comms && !cli->csv) return err_set(e, WEFT_EUSAGE, "--comms belongs to --csv");
  if (cli->csv && cli->json)
    return err_set(e, WEFT_EUSAGE, "--csv and --json are two forms; give one of them");
  if (program && cli->rank >= j->mesh.world)
    return err_set(e, WEFT_EUSAGE, "there is no rank %lld, the mesh has %d ranks",
                   (long long)cli->rank, j->mesh.world);
  return WEFT_OK;
}

static void json_result(Json *out, void *ud) {
  Shown *s = ud;
  if (!s->topic) {
    for (int i = 0; i < LEN(overview_json); i++)
      topics[overview_json[i]].json(s, out);
  } else if (s->topic->json) {
    s->topic->json(s, out);
  } else {
    /* The program writes an object of its own. */
    Text program = {0};
    program_json(s->job->compiled, s->rank, &program);
    while (program.n && isspace((unsigned char)program.s[program.n - 1]))
      program.n--;
    json_raw(out, "program", program.s, program.n);
    text_free(&program);
  }
}

static void print_result(Shown *s) {
  Text out = {0};
  if (s->topic && s->topic->text)
    s->topic->text(s, &out);
  else if (s->topic)
    program_print(s->job->compiled, s->rank, &out);
  for (int i = 0; !s->topic && i < LEN(overview); i++) {
    if (i) text_add(&out, "\n");
    topics[overview[i]].text(s, &out);
  }
  print_text(stdout, &out);
}

int verb_show(Cli *cli, Arena *arena) {
  Job j = {.arena = arena, .d = {.arena = arena}};
  Shown shown = {.job = &j, .rank = (int)MAX(cli->rank, 0)};
  const char *plan;
  weft_error e;
  err_clear(&e);
  weft_status st = read_args(cli, &plan, &shown.topic, &e);
  if (st != WEFT_OK) {
    j.e = e;
    return job_end(&j, cli, st, NULL, NULL);
  }
  st = job_start(&j, cli, arena, plan);
  if (st == WEFT_OK) st = build(&shown, cli);
  if (st == WEFT_OK) st = check_options(&j, cli, shown.topic, &j.e);
  if (st == WEFT_OK && cli->svg) st = schedule_picture(&shown.view, cli->svg, &j.e);
  if (cli->csv && st == WEFT_OK) shown.topic = &csv[cli->comms];
  /* A table that cannot run is what one wants to look at. */
  bool table = st == WEFT_EPLAN && shown.topic && j.schedule.list && !cli->csv;
  if ((st == WEFT_OK || table) && !cli->json) print_result(&shown);
  return job_end(&j, cli, st, json_result, &shown);
}
