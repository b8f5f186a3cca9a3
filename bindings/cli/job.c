/* job.c - the way from a plan file to proven programs, one step per function, and the
 * common end of every verb. */
#include "cli.h"

#include <stdlib.h>

/* Every process that a launcher has started for a run has the same plan; one is heard. */
bool speaks(const Cli *cli) {
  return cli->verb->run != verb_run || launched_rank() == 0;
}

static void print_line(void *ud, const char *line) {
  fprintf(stderr, "%s\n", line);
}

weft_status job_load(Job *j, const Cli *cli, Arena *arena, const char *path) {
  *j = (Job){.cli = cli, .arena = arena, .d = {.arena = arena}};
  err_clear(&j->e);
  LangOptions o = {.set = cli->set,
                   .nset = cli->nset,
                   .define = cli->define,
                   .ndefine = cli->ndefine,
                   .stop = cli->stop,
                   .print = speaks(cli) ? print_line : NULL};
  TRY(lang_load(&o, path, &j->lp, &j->d, &j->e));
  j->plan = *lang_plan(j->lp);
  return WEFT_OK;
}

bool job_open_world(const Job *j) {
  const MeshSpec *m = &j->plan.mesh;
  return !m->world && !m->dp && !lang_cluster_ranks(j->lp);
}

weft_status job_mesh(Job *j, int64_t world) {
  if (!world) world = lang_cluster_ranks(j->lp);
  weft_status st = WEFT_EPLAN;
  if (mesh_resolve(&j->plan.mesh, world, &j->mesh, &j->d))
    st = lang_check_mesh(j->lp, &j->plan, &j->mesh, &j->d, &j->e);
  if (st != WEFT_OK) {
    lang_locate(j->lp, &j->d);
    return st;
  }
  j->microbatches = plan_microbatches(&j->plan, &j->mesh);
  return WEFT_OK;
}

weft_status job_graph(Job *j) {
  int64_t B = j->plan.batch.micro * mesh_size(&j->mesh, AXES_DP);
  j->graph = graph_new(j->arena, B, j->plan.batch.seq);
  return lang_build_graph(j->lp, B, j->plan.batch.seq, j->graph, &j->d, &j->e);
}

weft_status job_schedule(Job *j) {
  return lang_schedule(j->lp, &j->mesh, j->microbatches, &j->schedule, &j->d, &j->e);
}

weft_status job_compile(Job *j) {
  TRY(job_graph(j));
  TRY(job_schedule(j));
  /* WEFT_DUMP=as prints the graph after the passes with these letters. */
  Text dump = {0};
  CompileInput in = {.plan = &j->plan,
                     .mesh = &j->mesh,
                     .graph = j->graph,
                     .schedule = &j->schedule,
                     .arena = j->arena,
                     .dump = getenv("WEFT_DUMP"),
                     .dump_out = &dump};
  weft_status st = compile(&in, &j->compiled, &j->d, &j->e);
  print_text(stderr, &dump);
  if (j->d.list.n) lang_locate(j->lp, &j->d);
  return st;
}

/* An error that came with a weft_error is reported like the others. */
static void json_error(Job *j, weft_status st) {
  static const char *const codes[] = {
      [WEFT_EPLAN] = "plan",         [WEFT_ERUN] = "run",
      [WEFT_EFILE] = "file",         [WEFT_EUSAGE] = "usage",
      [WEFT_ELIMIT] = "limit",       [WEFT_ENOMEM] = "memory",
      [WEFT_EINTERNAL] = "internal", [WEFT_EINTR] = "interrupted"};
  Diag *g = diag_error(&j->d, codes[st], "", "%s", j->e.text);
  if (j->e.file[0]) g->file = arena_str(j->arena, j->e.file);
  g->line = j->e.line;
}

static void print_error(const weft_error *e) {
  if (!e->file[0])
    complain("%s", e->text);
  else if (!e->line)
    fprintf(stderr, "%s: error: %s\n", e->file, e->text);
  else
    fprintf(stderr, "%s:%d: error: %s\n", e->file, e->line, e->text);
}

int job_end(Job *j, weft_status st, void (*result)(Json *out, void *ud), void *ud) {
  Text text = {0};
  /* A wrong plan has its diagnostics; any other error is in `e`. */
  bool other = st != WEFT_OK && !(st == WEFT_EPLAN && j->d.errors);
  if (other && !j->e.text[0]) err_set(&j->e, st, "failed for a reason that is not known");
  if (other && j->cli->json) json_error(j, st);
  if (j->cli->json) {
    Json out = {.out = &text, .pretty = true};
    report_json_begin(&j->d, j->cli->verb->name, &out);
    if (st == WEFT_OK && result) {
      json_open(&out, "result", '{');
      result(&out, ud);
      json_close(&out, '}');
    } else {
      json_none(&out, "result");
    }
    report_json_end(&j->d, &out);
    text_add(&text, "\n");
    print_text(stdout, &text);
  } else {
    report_text(&j->d, colour_wanted(stderr), &text);
    print_text(stderr, &text);
    if (other) print_error(&j->e);
  }
  lang_free(j->lp);
  return weft_exit_code(st);
}
