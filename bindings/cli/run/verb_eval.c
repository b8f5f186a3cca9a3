/* verb_eval.c - weft eval: the loss of a model on validation data, on the ranks of a
 * plan. */
#include <math.h>

#include "bindings/runs/resume.h"
#include "bindings/cli/cli.h"
#include "bindings/record/record.h"
#include "eval.h"
#include "vm/ckpt/ckpt.h"
#include "vm/ckpt/ckpt_store.h"
#include "vm/base/terminal.h"
#include "vm/weights/weights_open.h"
#include "vm/base/plural.h"

/* ---- parameters ---- */

static weft_status fill_from_ckpt(void *ud, Run *run, weft_error *e) {
  return ckpt_load(ud, run, CKPT_PARAMS, e);
}

static weft_status open_ckpt(Evaluation *v) {
  Job *j = &v->job;
  const char *path;
  bool none;
  TRY(store_find(j->arena, v->cli->ckpt, &path, &none, &j->e));
  TRY(ckpt_open(path, &v->ckpt, &j->e));
  TRY(ckpt_fits(v->ckpt, j->compiled, CKPT_PARAMS, &j->e));
  TRY(resume_adapter(j, v->ckpt));
  v->name =
      arena_printf(j->arena, "step %lld, %s", (long long)v->ckpt->m.step, v->ckpt->m.id);
  v->session.fill = fill_from_ckpt, v->session.fill_from = v->ckpt;
  return WEFT_OK;
}

static weft_status open_parameters(Evaluation *v) {
  const Cli *cli = v->cli;
  Job *j = &v->job;
  Folders in = lang_folders(j->lp);
  if (cli->ckpt && cli->weights)
    return err_set(&j->e, WEFT_EUSAGE, "give --ckpt or --weights, not both");
  if (cli->weights && j->plan.loss.second == SECOND_COPY)
    return err_set(&j->e, WEFT_EUSAGE,
                   "the loss compares the model with a copy of what it began as, which a "
                   "folder of weights does not have: give --ckpt DIR");
  if (cli->ckpt) return open_ckpt(v);
  if (!cli->weights && !lang_weights(j->lp))
    return err_set(&j->e, WEFT_EUSAGE,
                   "the plan names no weights: give --ckpt DIR or --weights DIR");
  if (!cli->weights) return job_weights(j, NULL, &v->session.weights, &j->e);
  return weights_open(NULL, cli->weights, NULL, &j->plan, &in, &v->session.weights,
                      &j->e);
}

/* ---- data ---- */

/* Tokens at the ends of streams that fill no window: told where they are more than one in
 * a hundred. */
static void tell_of_ends(Evaluation *v, const Data *d) {
  const Plan *p = &v->job.plan;
  int64_t all = data_tokens(d), rest = all - data_windows(d) * p->batch.seq;
  if (p->packed.size || rest <= all / 100) return;
  verb_warns(
      v->cli, &v->job,
      "%lld of %lld tokens are left out: a sequence has batch.seq = %lld, and what "
      "is at the end of a stream fills none",
      (long long)rest, (long long)all, (long long)p->batch.seq);
}

/* What is divided by sequences or pairs is measured on whole steps, a blend up to where a
 * stream of it begins anew. */
static void tell_left_out(Evaluation *v, int64_t once, int64_t step) {
  const Data *d = v->session.val;
  int64_t all = data_windows(d), rest = all - once;
  int ends = 0;
  if (v->cli->quiet || !is_rank0(v->cli)) return;
  tell_of_ends(v, d);
  data_once(d, &ends);
  if (rest)
    verb_warns(v->cli, &v->job,
               "%lld of %lld sequences are left out: %s has no more, and a "
               "blend is measured in the proportions of its weights",
               (long long)rest, (long long)all, SHOWN(data_source_name(d, ends)));
  rest = step ? once % step : 0;
  if (rest)
    verb_warns(v->cli, &v->job,
               "%lld of %lld sequences are left out: a loss that is divided by "
               "sequences or pairs is measured on whole steps, of batch.global = %lld",
               (long long)rest, (long long)once, (long long)step);
}

/* The plan's validation data, or, where it has none, all of its data. */
static weft_status open_data(Evaluation *v) {
  Job *j = &v->job;
  Session *s = &v->session;
  TRY(job_val(j, NULL, &s->val));
  if (!s->val) TRY(job_data(j, NULL, &s->val));
  int64_t once = data_once(s->val, NULL), step = j->plan.batch.global;
  bool whole = once >= step && j->plan.loss.per != LOSS_PER_TOKENS;
  int64_t all = once ? (once + (whole ? 0 : step - 1)) / step : j->plan.eval_batches;
  bool limited = v->cli->batches > 0 && (!once || v->cli->batches <= all);
  v->batches = limited ? v->cli->batches : all;
  if (!limited) tell_left_out(v, once, whole ? step : 0);
  return WEFT_OK;
}

/* ---- the verb ---- */

weft_status eval_open_run(Evaluation *v) {
  Job *j = &v->job;
  JobFacts f = {.arena = j->arena,
                .data = v->session.data,
                .val = v->session.val,
                .weights = v->session.weights,
                .resumed = v->name};
  TRY(job_facts(j, &f, &j->e));
  RunOptions o = {.patience_s = j->plan.comm_timeout,
                  .stop = v->cli->stop,
                  .fact = f.fact,
                  .nfact = f.n};
  TRY(processes_open(&v->ranks, &v->session, &o));
  verb_warns_of_run(v->cli, j, v->session.run);
  return WEFT_OK;
}

/* Models of cross entropy have one; preferences and divergences have none. It is that of
 * the cross entropy alone, which is not all of the loss of a model with routers, further
 * tokens or z-loss. */
static bool has_perplexity(const Evaluation *v) {
  const char *name = v->job.plan.loss.name;
  return !name || str_eq(name, "cross_entropy");
}

static weft_status evaluate(Evaluation *v, Arena *arena) {
  const Cli *cli = v->cli;
  Job *j = &v->job;
  TRY(job_start(j, cli, arena, cli->arg[0]));
  TRY(processes(&v->ranks));
  j->evaluates = true;
  j->tells_entropy = has_perplexity(v);
  j->plan.eval_every = 1;
  if (cli->reference) return eval_reference(v);
  TRY(job_compile(j));
  TRY(job_tokenizer(j));
  TRY(open_data(v));
  TRY(open_parameters(v));
  TRY(eval_open_run(v));
  return run_evaluate(v->session.run, v->session.val, v->batches, &v->result, &j->e);
}

static void print_result(const Evaluation *v) {
  const StepResult *r = &v->result;
  double entropy = r->eval_entropy;
  Text text = {0};
  text_printf(&text, "loss %.4f", r->eval_loss);
  bool told = has_perplexity(v) && !isnan(entropy); /* a model may end without one */
  if (told && fabs(entropy - r->eval_loss) > 1e-6 * entropy)
    text_printf(&text, "  cross entropy %.4f", entropy);
  if (told) text_printf(&text, "  perplexity %.4g", exp(entropy));
  text_printf(&text, "  %lld token%s  %.1f s  (%s%s%s)\n", (long long)r->eval_tokens,
              plural(r->eval_tokens, "s"), r->eval_ms / 1e3,
              data_describe(v->session.val), v->ckpt ? "; " : "",
              v->ckpt ? SHOWN(v->ckpt->dir) : "");
  if (r->eval_sources)
    sources_text(v->session.val, r->eval_source, r->eval_sources, &text);
  print_text(stdout, &text);
}

static void json_result(Json *out, void *ud) {
  const Evaluation *v = ud;
  const StepResult *r = &v->result;
  json_int(out, "batches", v->batches);
  if (v->ckpt) json_str(out, "checkpoint", v->ckpt->dir);
  if (has_perplexity(v)) json_num(out, "cross_entropy", r->eval_entropy);
  json_str(out, "data", data_describe(v->session.val));
  json_num(out, "loss", r->eval_loss);
  json_int(out, "memory_bytes", (int64_t)run_memory(v->session.run));
  if (has_perplexity(v)) json_num(out, "perplexity", exp(r->eval_entropy));
  json_num(out, "seconds", r->eval_ms / 1e3);
  sources_json(out, "sources", v->session.val, r->eval_source, r->eval_sources);
  json_int(out, "tokens", r->eval_tokens);
  json_int(out, "world", run_world(v->session.run));
}

int verb_eval(Cli *cli, Arena *arena) {
  int code;
  if (processes_start(cli, arena, &code)) return code;
  Evaluation v = {.cli = cli, .result = {.step = -1}};
  v.ranks = (Processes){.job = &v.job, .cli = cli};
  bool first = is_rank0(cli);
  weft_status st = evaluate(&v, arena);
  if (st != WEFT_OK) run_fails(v.session.run, &v.job.e);
  if (st == WEFT_OK && first && !cli->json && !cli->reference) print_result(&v);
  if (st == WEFT_OK && !cli->reference && !isfinite(v.result.eval_loss)) {
    st = err_set(&v.job.e, WEFT_ERUN, "the loss is not finite");
    v.ranks.reported_elsewhere = true; /* all processes know */
  }
  code = first ? job_end(&v.job, cli, st,
                         cli->reference ? eval_reference_json : json_result, &v)
               : processes_end_other(&v.ranks, st);
  code = code_of_signal(cli, st, code);
  session_close(&v.session, st != WEFT_OK);
  ckpt_close(v.ckpt);
  return code;
}
