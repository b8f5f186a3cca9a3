/* verb_run.c - weft run: trains, on virtual ranks or as one process of many, and reports.
 */
#include "bindings/cli/cli.h"
#include "bindings/cli/data/export.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "bindings/record/record.h"
#include "run_ckpt.h"
#include "vm/base/terminal.h"
#include "vm/comm/launcher_env.h"
#include "vm/session/session.h"
#include "vm/weights/run_export.h"
#include "vm/weights/weights_open.h"

typedef struct Training {
  Job job;
  const Cli *cli;
  Session session;
  ExportFolder export;
  const WorldKind *comm;
  bool told;       /* another process reports why the run has ended */
  Rendezvous meet; /* for backends whose processes meet by TCP */
  bool first;      /* this process reports */
  Recorder record;
  RunCkpt ckpt;
  StepResult last;
  SourceSums sources; /* of the last steps */
  double eval_loss;   /* of the last evaluation */
  int64_t tokens;
  int64_t end; /* train.steps or --steps; the learning rate schedule keeps the plan's */
  int64_t skipped; /* steps skipped by the loss scaler */
  double ms;
  char way[96]; /* how steps are launched: see run_way */
} Training;

static const char *get_env(void *ud, const char *name) { return getenv(name); }

int launched_rank(void) {
  LaunchInfo info;
  return launch_detect(get_env, NULL, &info, NULL) == WEFT_OK ? info.rank : 0;
}

bool is_launched(void) {
  LaunchInfo info;
  return launch_detect(get_env, NULL, &info, NULL) == WEFT_OK && info.kind != LAUNCH_NONE;
}

int launched_ranks(void) {
  LaunchInfo info;
  weft_status st = launch_detect(get_env, NULL, &info, NULL);
  return st == WEFT_OK && info.kind != LAUNCH_NONE ? info.size : 1;
}

/* ---- starting ---- */

/* Checks that the number of started ranks fits the mesh. The error says how to start
 * them, while job_mesh could only say which sizes do not fit. */
static weft_status check_world(Training *t, const LaunchInfo *info) {
  Job *j = &t->job;
  Mesh m;
  Diags ignored = {.arena = j->arena};
  if (!mesh_resolve(&j->plan.mesh, lang_cluster_ranks(j->lp), &m, &ignored))
    return WEFT_OK; /* job_mesh reports it */
  bool open = job_open_world(j);
  if (open ? info->size % m.world == 0 : info->size == m.world) return WEFT_OK;
  char mesh[96], started[96];
  format_mesh(&m, mesh);
  if (info->kind == LAUNCH_NONE)
    snprintf(started, sizeof started, "this is one process that no launcher has started");
  else
    snprintf(started, sizeof started, "%s has started %d process%s",
             launch_name(info->kind), info->size, info->size > 1 ? "es" : "");
  return err_set(&j->e, WEFT_EUSAGE,
                 "%s, but the plan's mesh (%s) %s %d ranks: start "
                 "mpirun -n %d weft run %s%s",
                 started, mesh, open ? "takes a multiple of" : "has", m.world, m.world,
                 t->cli->arg[0],
                 t->cli->comm ? ", or leave --comm out" : ", or change the mesh");
}

/* Chooses the backend; *world: ranks that the launcher has started (0: no launcher). */
static weft_status choose_comm(Training *t, int64_t *world) {
  weft_error *e = &t->job.e;
  LaunchInfo info;
  TRY(launch_detect(get_env, NULL, &info, e));
  bool launched = info.kind != LAUNCH_NONE && info.size > 1;
  char names[64];
  bool meets = info.kind == LAUNCH_ENV, host = !t->job.device || t->job.device->host;
  t->comm = t->cli->comm ? world_kind(t->cli->comm, NULL)
                         : world_default(launched, meets, host);
  if (!t->comm)
    return err_set(e, WEFT_EUSAGE, "--comm is %s, got \"%s\"", world_names(names),
                   t->cli->comm);
  const DeviceKind *d = t->job.device ? t->job.device : device_kind(NULL, e);
  TRY(world_suits(t->comm, d, e));
  *world = t->comm->processes ? info.size : 0;
  if (launched && *world == 0)
    return err_set(e, WEFT_EUSAGE,
                   "%s has started %d processes, but --comm %s is one "
                   "process; leave --comm out",
                   launch_name(info.kind), info.size, t->comm->name);
  if (*world) TRY(check_world(t, &info));
  if (t->comm->over ? !meets : !t->comm->meets) return WEFT_OK;
  return rendezvous_of_env(&info, t->cli->stop, &t->meet, e);
}

/* Threads per rank. Somewhat more threads than cores are allowed, because results depend
 * on their number and those of a large machine should be reproducible on a small one. */
static weft_status choose_threads(Training *t, int64_t world, int *threads) {
  long cores = sysconf(_SC_NPROCESSORS_ONLN);
  int ranks = world ? 1 : t->job.mesh.world;
  int64_t most = MAX(MAX(256, 4 * cores) / ranks, 1);
  *threads = MAX((int)t->cli->threads, 0);
  if (*threads <= most) return WEFT_OK;
  return err_set(&t->job.e, WEFT_EUSAGE,
                 "--threads %d: %d rank%s of %d threads are too "
                 "many for %ld cores; at most --threads %lld",
                 *threads, ranks, ranks > 1 ? "s" : "", *threads, cores, (long long)most);
}

/* Opens log and event files on the process that reports; options are checked on all. */
static weft_status open_record(Training *t) {
  const Cli *cli = t->cli;
  RecordOptions o = {.log = cli->log,
                     .events = cli->tensorboard,
                     .append = cli->append,
                     .lines = !cli->quiet && !cli->json,
                     .progress =
                         !cli->quiet && isatty(STDERR_FILENO) && colour_wanted(stderr)};
  RunHead head = {.job = &t->job, .plan = cli->arg[0], .comm = t->comm->name};
  return t->first ? record_open(&t->record, &o, &head, &t->job.e) : WEFT_OK;
}

/* SIGTERM ends the wait for other processes like Ctrl-C, with a message. */
static weft_status open_session(Training *t, const RunOptions *o) {
  Job *j = &t->job;
  bool meets = t->meet.addr != NULL;
  if (meets) t->cli->heed(SIGTERM);
  weft_status st = session_open(&t->session, &j->plan, j->compiled, o, &j->e);
  if (meets) signal(SIGTERM, SIG_DFL);
  return st;
}

static weft_status start(Training *t) {
  Job *j = &t->job;
  int64_t world = 0;
  int threads;
  TRY(choose_comm(t, &world));
  TRY(job_mesh(j, world));
  TRY(choose_threads(t, world, &threads));
  TRY(job_compile(j));
  TRY(job_expect(j, NULL));
  TRY(open_record(t));
  TRY(job_data(j, NULL, &t->session.data));
  t->end = t->record.head.end = t->cli->steps >= 0 ? t->cli->steps : j->plan.steps;
  TRY(job_val(j, NULL, &t->session.val));
  Folders in = lang_folders(j->lp);
  const char *weights = lang_weights(j->lp);
  TRY(weights_open(NULL, weights, &in, &j->plan, &in, &t->session.weights, &j->e));
  JobFacts f = {.arena = j->arena,
                .data = t->session.data,
                .val = t->session.val,
                .weights = t->session.weights,
                .steps = t->end};
  TRY(run_ckpt_find(&t->ckpt, &t->session, &f));
  if (t->ckpt.from) {
    t->record.head.resumed = t->ckpt.from->dir;
    t->record.head.resumed_step = t->ckpt.from->m.step;
  }
  t->record.head.data = data_describe(t->session.data);
  t->record.head.of = t->session.data;
  t->record.head.val = t->session.val;
  t->record.head.plan_hash = job_hash(&f);
  RunOptions o = {.world = t->comm,
                  .settings.meet = t->meet.addr ? &t->meet : NULL,
                  .told = &t->told,
                  .trace = t->cli->trace != NULL,
                  .patience_s = j->plan.comm_timeout,
                  .threads = threads,
                  .stop = j->plan.checkpoint.dir ? NULL : t->cli->stop,
                  .saves = j->plan.checkpoint.dir,
                  .fact = f.fact,
                  .nfact = f.n};
  return open_session(t, &o);
}

/* ---- reporting ---- */

/* Nothing if there is no text. */
static weft_status warn(Training *t, const char *text, weft_error *e) {
  if (!text) return WEFT_OK;
  record_clear(&t->record);
  report_error("warning: %s", text);
  return record_note(&t->record, "warning", text, e);
}

/* Warns once if a device could not capture the step after all; each process warns for its
 * own rank. */
static weft_status warn_of_launches(Training *t, weft_error *e) {
  const char *why = run_not_captured(t->session.run);
  char text[700];
  if (!why) return WEFT_OK;
  snprintf(text, sizeof text, "steps are launched op by op from here on: %s", why);
  return warn(t, text, e);
}

static weft_status after_step(void *ud, const StepResult *r, weft_error *e) {
  Training *t = ud;
  t->last = *r;
  if (r->eval_tokens) t->eval_loss = r->eval_loss;
  t->tokens += r->tokens;
  t->ms += r->ms;
  t->skipped += r->skipped;
  sources_add(&t->sources, r, t->end / 10);
  TRY(warn_of_launches(t, e));
  TRY(record_step(&t->record, r, e));
  return run_ckpt_step(&t->ckpt, r, t->session.step);
}

/* ---- the run ---- */

/* A warning if the backend is not meant for training between machines; else NULL. */
static const char *not_for_training(const Training *t) {
  const Run *r = t->session.run;
  if (!t->first || !t->comm->bring_up || run_machine_ranks(r) == run_world(r))
    return NULL;
  return arena_printf(
      t->job.arena,
      "--comm %s carries data between machines: that is for first runs and "
      "for debugging; to train, use --comm mpi (weft launch --mpirun or "
      "--slurm writes the script)",
      t->comm->name);
}

static void print_start(Training *t) {
  char mesh[96], memory[32], text[ATTENTION_WAY];
  const Job *j = &t->job;
  bool asked = j->plan.attention != ATTENTION_NATIVE;
  const char *attention = asked ? attention_way(j->compiled, text) : NULL;
  const char *way = t->record.head.way;
  fprintf(stderr, "%s: %s, %d rank%s (%s), %s each; %s%s%s%s%s\n", t->job.plan.name,
          format_mesh(&t->job.mesh, mesh), t->job.mesh.world,
          t->job.mesh.world > 1 ? "s" : "", t->comm->name,
          format_bytes((double)run_memory(t->session.run), memory),
          SHOWN(data_describe(t->session.data)), attention ? "; attention: " : "",
          attention ? attention : "", way ? "; steps are " : "", way ? way : "");
}

/* Says that early stopping has ended the run, and which evaluation was best. */
static weft_status tell_best(Training *t) {
  const BestEval *best = &t->session.best;
  const Checkpointing *c = &t->job.plan.checkpoint;
  char text[400];
  if (!t->first || !best->step) return WEFT_OK;
  snprintf(
      text, sizeof text,
      "stopped after %lld steps: %lld evaluation%s in a row had no loss that is lower "
      "by more than %g",
      (long long)t->session.step, (long long)best->since, best->since > 1 ? "s" : "",
      t->session.min_delta);
  if (t->session.stopped && !t->cli->quiet) report_error("%s", text);
  if (t->session.stopped) TRY(record_note(&t->record, "stopped", text, &t->job.e));
  if (!t->cli->quiet && (c->keep_best || t->session.stopped))
    report_error("the best evaluation loss is %.4f, after %lld steps%s%s", best->loss,
                 (long long)best->step, c->keep_best ? ": its checkpoint is in " : "",
                 c->keep_best ? c->dir : "");
  return WEFT_OK;
}

/* Says what each stream of a blend has come to. */
static void tell_sources(Training *t) {
  SourceLoss last[SOURCES_MOST];
  Text text = {0};
  int64_t steps = sources_last(&t->sources, last);
  if (!t->first || t->cli->quiet || t->cli->json || !t->last.sources) return;
  text_printf(&text, "over the last %lld step%s:\n", (long long)steps,
              steps > 1 ? "s" : "");
  sources_text(t->session.data, last, t->last.sources, &text);
  print_text(stdout, &text);
}

static void json_result(Json *out, void *ud) {
  const Training *t = ud;
  SourceLoss last[SOURCES_MOST];
  sources_last(&t->sources, last);
  if (t->session.best.step) {
    json_num(out, "best_eval_loss", t->session.best.loss);
    json_int(out, "best_eval_step", t->session.best.step);
  }
  if (t->session.val) json_num(out, "eval_loss", t->eval_loss);
  json_num(out, "grad_norm", t->last.grad_norm);
  json_num(out, "loss", t->last.loss);
  json_num(out, "lr", t->last.lr);
  json_int(out, "memory_bytes", (int64_t)run_memory(t->session.run));
  if (t->last.loss_scale > 0) json_int(out, "skipped", t->skipped);
  sources_json(out, "sources", t->session.data, last, t->last.sources);
  json_int(out, "steps", t->session.step);
  if (t->session.patience) json_bool(out, "stopped", t->session.stopped);
  json_int(out, "tokens", t->tokens);
  json_num(out, "tokens_per_s", t->ms > 0 ? 1e3 * (double)t->tokens / t->ms : 0);
  json_int(out, "world", run_world(t->session.run));
}

static weft_status run_plan(Training *t, const Cli *cli, Arena *arena) {
  TRY(job_start(&t->job, cli, arena, cli->arg[0]));
  TRY(start(t));
  if (cli->export)
    TRY(export_begin(&t->export, &t->job, cli, cli->export, t->session.weights, false,
                     &t->job.e));
  t->record.head.way = run_way(t->session.run, t->way);
  TRY(record_begin(&t->record, run_memory(t->session.run), &t->job.e));
  if (t->first && !cli->quiet) print_start(t);
  TRY(warn(t, run_uneven(t->session.run), &t->job.e));
  TRY(warn(t, not_for_training(t), &t->job.e));
  TRY(run_ckpt_begin(&t->ckpt, &t->session, t->end));
  weft_status st = session_train(&t->session, t->end, run_ckpt_stop(&t->ckpt), after_step,
                                 t, &t->job.e);
  record_clear(&t->record);
  if (st == WEFT_OK) st = tell_best(t);
  if (st == WEFT_OK) tell_sources(t);
  if (st == WEFT_OK && cli->export)
    st = run_export(t->session.run, &t->export.out, &t->job.e);
  if (st == WEFT_OK && t->cli->trace)
    st = run_trace(t->session.run, t->cli->trace, &t->job.e);
  return st;
}

/* The end of a process that does not report. If rank 0 has the same error it reports it,
 * and the launcher ends this process meanwhile; else the error occurred here only and is
 * printed. */
static int end_other(Training *t, weft_status st) {
  Job *j = &t->job;
  weft_error first;
  err_clear(&first);
  if (st == WEFT_EPLAN && j->d.errors) report_first(&j->d, &first);
  const weft_error *e = first.code ? &first : &j->e;
  if (st != WEFT_OK && st != WEFT_EINTR && !t->told) {
    sleep(2);
    report_error("rank %d: %s%s%s", launched_rank(), e->file, e->file[0] ? ": " : "",
                 e->text);
  }
  job_free(j);
  return weft_exit_code(st);
}

static void clear_line(void *ud) {
  Training *t = ud;
  record_clear(&t->record);
}

int verb_run(Cli *cli, Arena *arena) {
  weft_error e = {.rank = -1};
  if (procs_for_gpus(cli, arena, &e) != WEFT_OK) {
    report_error("%s", e.text);
    return weft_exit_code(e.code);
  }
  if (cli->procs > 0 && !getenv("WEFT_PROCS")) return run_procs(cli, arena);
  Training t = {.cli = cli, .first = is_rank0(cli)};
  t.ckpt = (RunCkpt){
      .cli = cli, .job = &t.job, .first = t.first, .make_room = clear_line, .ud = &t};
  weft_status st = run_ckpt_end(&t.ckpt, run_plan(&t, cli, arena));
  bool in_order =
      t.ckpt.signal || t.ckpt.lost; /* all ranks know, and end with the same code */
  if (st != WEFT_OK && !in_order) run_fails(t.session.run, &t.job.e);
  t.told |= t.ckpt.lost;
  int code = t.first ? job_end(&t.job, cli, st, json_result, &t) : end_other(&t, st);
  if (st == WEFT_EINTR && *cli->stop) code = 128 + *cli->stop;
  if (t.ckpt.signal)
    code = 128 + t.ckpt.signal; /* all ranks end with this code, their state saved */
  session_close(&t.session, st != WEFT_OK && !in_order);
  record_close(&t.record);
  export_end(&t.export);
  return code;
}
