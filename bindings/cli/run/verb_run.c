/* verb_run.c - weft run: trains, on virtual ranks or as one process of many, and reports.
 */
#include "bindings/cli/cli.h"
#include "bindings/cli/data/export_options.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "bindings/record/record.h"
#include "processes.h"
#include "run_ckpt.h"
#include "vm/base/terminal.h"
#include "vm/ckpt/ckpt_store.h"
#include "vm/session/session.h"
#include "vm/weights/run_export.h"
#include "vm/weights/snapshot.h"
#include "vm/base/plural.h"

typedef struct Training {
  Job job;
  const Cli *cli;
  Session session;
  ExportFolder export;
  Processes ranks;
  bool first; /* this process reports */
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

/* ---- starting ---- */

static void warn_of_record(void *ud, const char *text) {
  Training *t = ud;
  verb_warns(t->cli, &t->job, "%s", text);
}

/* Opens log and event files, and looks where a trace will be written, on the process that
 * reports; options are checked on all. */
static weft_status open_record(Training *t) {
  const Cli *cli = t->cli;
  RecordOptions o = {.log = cli->log,
                     .events = cli->tensorboard,
                     .append = cli->append,
                     .lines = !cli->quiet && !cli->json,
                     .warn = warn_of_record,
                     .ud = t,
                     .progress =
                         !cli->quiet && isatty(STDERR_FILENO) && colour_wanted(stderr)};
  RunHead head = {.job = &t->job, .plan = cli->arg[0], .comm = t->ranks.comm->name};
  if (t->first && cli->trace) TRY(file_check(cli->trace, false, &t->job.e));
  return t->first ? record_open(&t->record, &o, &head, &t->job.e) : WEFT_OK;
}

static weft_status start(Training *t) {
  Job *j = &t->job;
  TRY(processes(&t->ranks));
  TRY(job_compile(j));
  TRY(job_expect(j, NULL));
  TRY(job_tokenizer(j));
  TRY(open_record(t));
  TRY(job_data(j, NULL, &t->session.data));
  t->end = t->record.head.end = t->cli->steps >= 0 ? t->cli->steps : j->plan.steps;
  TRY(job_val(j, NULL, &t->session.val));
  TRY(job_weights(j, NULL, &t->session.weights, &j->e));
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
  RunOptions o = {.trace = t->cli->trace != NULL,
                  .patience_s = j->plan.comm_timeout,
                  .saves = j->plan.checkpoint.dir,
                  .fact = f.fact,
                  .nfact = f.n};
  return processes_open(&t->ranks, &t->session, &o);
}

/* ---- reporting ---- */

/* Nothing if there is no text. */
static void warn(Training *t, const char *text) {
  if (!text) return;
  record_clear(&t->record);
  verb_warns(t->cli, &t->job, "%s", text);
  record_note(&t->record, "warning", text);
}

/* Warns once if a device could not capture the step after all; each process warns for its
 * own rank. */
static void warn_of_launches(Training *t) {
  const char *why = run_not_captured(t->session.run);
  char text[700];
  if (!why) return;
  snprintf(text, sizeof text, "steps are launched op by op from here on: %s", why);
  warn(t, text);
}

static weft_status after_step(void *ud, const StepResult *r, weft_error *e) {
  Training *t = ud;
  t->last = *r;
  if (r->eval_tokens) t->eval_loss = r->eval_loss;
  t->tokens += r->tokens;
  t->ms += r->ms;
  t->skipped += r->skipped;
  sources_add(&t->sources, r, t->end / 10);
  warn_of_launches(t);
  record_step(&t->record, r);
  return run_ckpt_step(&t->ckpt, r, t->session.step);
}

/* ---- the run ---- */

/* A warning if the backend is not meant for training between machines; else NULL. */
static const char *not_for_training(const Training *t) {
  const Run *r = t->session.run;
  if (!t->first || !t->ranks.comm->bring_up || run_machine_ranks(r) == run_world(r))
    return NULL;
  return arena_printf(
      t->job.arena,
      "--comm %s carries data between machines: that is for first runs and "
      "for debugging; to train, use --comm mpi (weft launch --mpirun or "
      "--slurm writes the script)",
      t->ranks.comm->name);
}

/* Who computes attention, as it was loaded. */
static const char *who_attends(Training *t) {
  char text[ATTENTION_WAY];
  const char *said = job_attention(&t->job);
  if (said && run_instead(t->session.run))
    return "cuDNN, or weft's own kernels where it makes no plan";
  if (said || !attention_way(t->job.compiled, text)) return said;
  return arena_str(t->job.arena, text);
}

static void print_start(Training *t) {
  char mesh[128], memory[32];
  const Job *j = &t->job;
  bool asked = j->plan.attention != ATTENTION_NATIVE;
  const char *attention = asked ? t->record.head.attention : NULL;
  const char *way = t->record.head.way, *kernels = t->record.head.kernels;
  const char *arena = t->record.head.arena;
  fprintf(stderr, "%s: %s (%s), %s%s; %s%s%s%s%s%s%s%s%s\n", t->job.plan.name,
          format_mesh_ranks(&t->job.mesh, mesh), t->ranks.comm->name,
          format_bytes((double)run_memory(t->session.run), memory),
          t->job.mesh.world > 1 ? " each" : "", SHOWN(data_describe(t->session.data)),
          attention ? "; attention: " : "", attention ? attention : "",
          way ? "; steps are " : "", way ? way : "", kernels ? "; kernels: " : "",
          kernels ? kernels : "", arena ? "; arena: " : "", arena ? arena : "");
}

/* Says that early stopping has ended the run, and which evaluation was best. */
static void tell_best(Training *t) {
  const BestEval *best = &t->session.best;
  const Checkpointing *c = &t->job.plan.checkpoint;
  char text[400];
  if (!t->first || !best->step) return;
  snprintf(
      text, sizeof text,
      "stopped after %lld step%s: %lld evaluation%s in a row had no loss that is lower "
      "by more than %g",
      (long long)t->session.step, plural(t->session.step, "s"), (long long)best->since,
      plural(best->since, "s"), t->session.min_delta);
  if (t->session.stopped && !t->cli->quiet) report_error("%s", text);
  if (t->session.stopped) record_note(&t->record, "stopped", text);
  if (t->cli->quiet || !(c->keep_best || t->session.stopped)) return;
  const char *at =
      c->keep_best ? store_path(t->job.arena, c->dir, best->step, false) : NULL;
  bool there = at && access(at, F_OK) == 0;
  report_error("the best evaluation loss is %.4f, after %lld step%s%s%s", best->loss,
               (long long)best->step, plural(best->step, "s"),
               there ? ": its checkpoint is in "
               : at  ? ", of which there is no checkpoint"
                     : "",
               there ? at : "");
}

/* Says what each stream of a blend has come to. */
static void tell_sources(Training *t) {
  SourceLoss last[SOURCES_MOST];
  Text text = {0};
  int64_t steps = sources_last(&t->sources, last);
  if (!t->first || t->cli->quiet || t->cli->json || !t->last.sources) return;
  text_printf(&text, "over the last %lld step%s:\n", (long long)steps,
              plural(steps, "s"));
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

static weft_status begin_export(Training *t) {
  ExportHow how;
  weft_error *e = &t->job.e;
  TRY(export_options(t->cli, false, &how, e));
  weft_status st =
      export_begin(&t->export, &t->job, &how, t->cli->export, t->session.weights, e);
  TRY(run_agree(t->session.run, st, e));
  return run_export_shares(t->session.run, t->cli->export, e);
}

/* A run that a signal has ended after a step, on all ranks after the same one, has a
 * trace of the steps that it took. Other errors keep the words of their own. */
static weft_status write_trace(Training *t, weft_status st) {
  weft_error e = NO_ERROR;
  char text[900];
  bool orderly = st == WEFT_OK || (st == WEFT_EINTR && *run_ckpt_stop(&t->ckpt));
  if (st == WEFT_OK) return run_trace(t->session.run, t->cli->trace, &t->job.e);
  if (orderly && run_trace(t->session.run, t->cli->trace, &e) == WEFT_OK) return st;
  snprintf(text, sizeof text, "%s: the trace was not written%s%s", t->cli->trace,
           e.text[0] ? ": " : ", as the run did not end in order", e.text);
  if (t->first) warn(t, text);
  return st;
}

/* The files of an export are those of a model that has been trained. */
static void warn_of_export(Training *t) {
  const char *dir = t->job.plan.checkpoint.dir;
  if (!t->first) return;
  warn(t, arena_printf(
              t->job.arena,
              "%s: nothing was exported, as the run has not taken all its steps%s",
              t->cli->export, dir ? "; weft ckpt export does it from a checkpoint" : ""));
}

static weft_status check_options(Training *t, const Cli *cli) {
  const Belongs of_export[] = {{cli->dtype, "--dtype", "--export"},
                               {cli->shard_size, "--shard-size", "--export"}};
  return cli->export ? WEFT_OK : options_belong(of_export, LEN(of_export), &t->job.e);
}

static weft_status run_plan(Training *t, const Cli *cli, Arena *arena) {
  TRY(job_start(&t->job, cli, arena, cli->arg[0]));
  TRY(check_options(t, cli));
  TRY(start(t));
  if (cli->export) TRY(begin_export(t));
  t->record.head.way = run_way(t->session.run, t->way);
  t->record.head.kernels = run_kernels(t->session.run);
  t->record.head.arena = run_arena(t->session.run);
  t->record.head.attention = who_attends(t);
  TRY(record_begin(&t->record, run_memory(t->session.run), &t->job.e));
  if (t->first && !cli->quiet) print_start(t);
  const char *why;
  for (int i = 0; (why = run_warning(t->session.run, i)); i++) warn(t, why);
  warn(t, not_for_training(t));
  TRY(run_ckpt_begin(&t->ckpt, &t->session, t->end));
  weft_status st = session_train(&t->session, t->end, run_ckpt_stop(&t->ckpt), after_step,
                                 t, &t->job.e);
  record_clear(&t->record);
  if (st == WEFT_OK) tell_best(t);
  if (st == WEFT_OK) tell_sources(t);
  if (st == WEFT_OK && cli->export)
    st = run_export(t->session.run, &t->export.out, &t->job.e);
  else if (cli->export)
    warn_of_export(t);
  return cli->trace ? write_trace(t, st) : st;
}

static void clear_line(void *ud) {
  Training *t = ud;
  record_clear(&t->record);
}

static void warn_of_ckpt(void *ud, const char *text) { warn(ud, text); }

int verb_run(Cli *cli, Arena *arena) {
  int code;
  if (processes_start(cli, arena, &code)) return code;
  Training t = {.cli = cli,
                .first = is_rank0(cli),
                .last = {.loss = NAN, .grad_norm = NAN, .lr = NAN},
                .eval_loss = NAN}; /* of no step, and of no evaluation */
  t.ranks = (Processes){.job = &t.job, .cli = cli};
  t.ckpt = (RunCkpt){.cli = cli,
                     .job = &t.job,
                     .first = t.first,
                     .make_room = clear_line,
                     .warn = warn_of_ckpt,
                     .ud = &t};
  weft_status st = run_ckpt_end(&t.ckpt, run_plan(&t, cli, arena));
  bool in_order =
      t.ckpt.signal || t.ckpt.lost; /* all ranks know, and end with the same code */
  if (st != WEFT_OK && !in_order) run_fails(t.session.run, &t.job.e);
  record_end(&t.record, st, &t.job.e);
  t.ranks.reported_elsewhere |= t.ckpt.lost;
  code = t.first ? job_end(&t.job, cli, st, json_result, &t)
                 : processes_end_other(&t.ranks, st);
  code = code_of_signal(cli, st, code);
  if (t.ckpt.signal)
    code = 128 + t.ckpt.signal; /* all ranks end with this code, after the same step */
  session_close(&t.session, st != WEFT_OK && !in_order);
  record_close(&t.record);
  export_end(&t.export);
  return code;
}
