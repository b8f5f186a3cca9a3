/* sample.c - weft sample: generates continuations of prompts. */
#include "sample.h"

#include <stdlib.h>
#include <unistd.h>

#include "bindings/runs/resume.h"
#include "bindings/chat/chat.h"
#include "bindings/chat/plan_tokenizer.h"
#include "vm/base/plural.h"
#include "vm/ckpt/ckpt.h"
#include "vm/ckpt/ckpt_store.h"
#include "vm/weights/weights_load.h"
#include "vm/weights/weights_open.h"

/* ---- prompts ---- */

/* What check_sequence_cut asks for. */
const char *sample_room(const Sample *s, int64_t tokens) {
  const Plan *p = &s->plan;
  int64_t cp = MAX(p->mesh.cp, 1), unit = MAX(p->mesh.tp, 1) * (cp > 1 ? 2 * cp : 1);
  Arena *a = s->job.arena;
  long long seq = (tokens + unit - 1) / unit * unit;
  const char *packed =
      p->packed.size ? arena_printf(a, " --set packed.size=%lld", seq) : "";
  return arena_printf(a, "--set batch.seq=%lld%s", seq, packed);
}

static weft_status add_token(Sample *s, One *o, int64_t id) {
  if (o->n == o->most)
    return err_set(&s->job.e, WEFT_EUSAGE,
                   "the prompt has more than the %lld tokens that the plan trains on "
                   "(batch.seq)",
                   (long long)o->most);
  o->token[o->n++] = (int32_t)id;
  return WEFT_OK;
}

static weft_status read_ids(Sample *s, One *o, const char *text) {
  for (const char *at = text; *at;) {
    char *end;
    long long id = strtoll(at, &end, 10);
    if (end == at || (*end && *end != ',') || id < 0 || id > INT32_MAX)
      return err_set(&s->job.e, WEFT_EUSAGE,
                     "--tokens takes ids with commas between, as in 1,2,3; got \"%s\"",
                     text);
    TRY(add_token(s, o, id));
    at = *end ? end + 1 : end;
  }
  return WEFT_OK;
}

/* The tokenizer of the command line, or else of the plan. */
static weft_status open_tokenizer(Sample *s) {
  const Cli *cli = s->cli;
  Job *j = &s->job;
  const char *path = cli->tokenizer;
  if (s->bytes && path)
    return err_set(&j->e, WEFT_EUSAGE, "the tokens of this plan are bytes (weft.text)");
  if (!path) TRY(plan_tokenizer(j->lp, s->weights, &path, &j->d, &j->e));
  s->tokenizer = path;
  return path ? tokenizer_open(NULL, path, &s->tok, &j->e) : WEFT_OK;
}

static weft_status encode_prompt(Sample *s, One *o, const char *text) {
  TokenIds ids = {0};
  weft_status st = WEFT_OK;
  if (!s->tok) {
    for (const char *p = text; *p; p++) TRY(add_token(s, o, (unsigned char)*p));
    return WEFT_OK;
  }
  st = tokenizer_encode(s->tok, text, strlen(text), true, &ids, &s->job.e);
  for (size_t i = 0; i < ids.n && st == WEFT_OK; i++) st = add_token(s, o, ids.at[i]);
  token_ids_free(&ids);
  return st;
}

static weft_status read_prompt(Sample *s, One *o, const char *text) {
  const Cli *cli = s->cli;
  weft_error *e = &s->job.e;
  o->most = s->job.plan.batch.seq;
  o->token = NEW_N(s->job.arena, int32_t, o->most);
  TRY(text ? encode_prompt(s, o, text) : read_ids(s, o, cli->tokens));
  if (o->n == 0) return err_set(e, WEFT_EUSAGE, "the prompt is empty");
  o->prompt = o->n;
  int64_t more = cli->max_tokens > 0 ? cli->max_tokens : MIN(SAMPLE_MORE, o->most - o->n);
  if (o->n + more > o->most || more == 0)
    return err_set(e, WEFT_EUSAGE,
                   "%lld token%s of the prompt and %lld more: the plan trains on %lld "
                   "(%s has room for them)",
                   (long long)o->n, plural(o->n, "s"), (long long)more,
                   (long long)o->most, sample_room(s, o->n + MAX(more, 1)));
  o->most = o->n + more;
  return WEFT_OK;
}

static weft_status read_prompts(Sample *s) {
  const Cli *cli = s->cli;
  weft_error *e = &s->job.e;
  if (!cli->nprompt == !cli->tokens)
    return err_set(e, WEFT_EUSAGE, "give a --prompt TEXT or --tokens 1,2,3");
  if (cli->nprompt && !s->bytes && !s->tok)
    return err_set(e, WEFT_EUSAGE,
                   "the tokens of this plan are not bytes, it names no tokenizer (plan."
                   "tokenizer), and no tokenizer.json lies beside its weights: give "
                   "--tokenizer FILE, or ids, --tokens 1,2,3");
  s->n = cli->nprompt ? cli->nprompt : 1;
  s->one = NEW_N(s->job.arena, One, s->n);
  int64_t *context = NEW_N(s->job.arena, int64_t, s->n);
  for (int i = 0; i < s->n; i++) {
    TRY(read_prompt(s, &s->one[i], cli->nprompt ? cli->prompt[i] : NULL));
    context[i] = s->one[i].most;
  }
  job_decode_contexts(&s->job, context, s->n);
  for (int i = 0; i < s->n; i++) s->one[i].context = context[i];
  return WEFT_OK;
}

/* Before anything is printed. */
static weft_status check_prompts(Sample *s) {
  int64_t vocab = s->job.compiled->vocab;
  for (int i = 0; i < s->n; i++)
    for (int64_t k = 0; k < s->one[i].n; k++)
      if (s->one[i].token[k] >= vocab)
        return err_set(&s->job.e, WEFT_EUSAGE,
                       "token %d is not below the vocabulary of %lld", s->one[i].token[k],
                       (long long)vocab);
  return WEFT_OK;
}

/* What ends texts by the tokenizer that the plan names. */
static weft_status end_of_tokenizer(Sample *s, const char *folder) {
  Job *j = &s->job;
  TokenizerConfig config;
  bool said;
  TRY(sample_eos(&s->end, j->arena, folder, &said, &j->e));
  if (said || !s->tok) return WEFT_OK;
  TRY(tokenizer_config_read(j->arena, folder, &config, &j->e));
  if (config.eos) sample_end_at(&s->end, tokenizer_find(s->tok, config.eos));
  return WEFT_OK;
}

/* Collects end tokens: those that the plan writes, or else those of the weights and those
 * of the plan's tokenizer, as an exported folder has them (special_ids.h). */
static weft_status read_end_tokens(Sample *s) {
  Job *j = &s->job;
  const char *weights = s->weights;
  PlanTokenizer tokenizer;
  bool said;
  TRY(sample_eos_of_plan(&s->end, j->lp, &said, &j->e));
  if (said) return WEFT_OK;
  weft_status st = plan_tokenizer_named(j->lp, &tokenizer, &j->e);
  if (st != WEFT_OK && !s->cli->tokenizer) return st;
  if (st != WEFT_OK) tokenizer = (PlanTokenizer){0}, err_clear(&j->e);
  if (!weights && (lang_weights(j->lp) || !tokenizer.file)) weights = lang_folder(j->lp);
  TRY(sample_eos(&s->end, j->arena, weights, &said, &j->e));
  return tokenizer.file ? end_of_tokenizer(s, tokenizer.folder) : WEFT_OK;
}

/* Collects what ends a text before its limit. */
static weft_status read_end(Sample *s) {
  const Cli *cli = s->cli;
  s->end = (SampleEnd){0};
  for (int i = 0; i < cli->nuntil; i++) {
    if (!*cli->until[i]) return err_set(&s->job.e, WEFT_EUSAGE, "--stop is empty");
    s->end.until[s->end.nuntil++] = cli->until[i];
  }
  if (cli->nuntil && !s->bytes && !s->tok)
    return err_set(&s->job.e, WEFT_EUSAGE,
                   "--stop is a string, and the tokens of this plan are ids: give "
                   "--tokenizer FILE");
  return read_end_tokens(s);
}

static weft_status read_choice(Sample *s) {
  const Cli *cli = s->cli;
  weft_error *e = &s->job.e;
  if (cli->greedy && (cli->temperature > 0 || cli->top_k > 0 || cli->top_p > 0))
    return err_set(e, WEFT_EUSAGE,
                   "--greedy leaves no choice to --temperature, --top-k "
                   "and --top-p");
  if (cli->top_p > 1)
    return err_set(e, WEFT_EUSAGE, "--top-p is a probability, got %g", cli->top_p);
  s->choice = (SamplerOptions){.greedy = cli->greedy,
                               .temperature = cli->temperature > 0 ? cli->temperature : 1,
                               .top_k = MAX(cli->top_k, 0),
                               .top_p = cli->top_p > 0 ? cli->top_p : 1,
                               .seed = (uint64_t)MAX(cli->seed, 0)};
  return WEFT_OK;
}

/* ---- parameters ---- */

static weft_status fill_from_ckpt(Sample *s) {
  Job *j = &s->job;
  const char *path;
  bool none;
  Ckpt *c;
  TRY(store_find(j->arena, s->cli->ckpt, &path, &none, &j->e));
  TRY(ckpt_open(path, &c, &j->e));
  weft_status st = ckpt_load(c, s->run, CKPT_PARAMS, &j->e);
  if (st == WEFT_OK) st = resume_adapter(j, c);
  ckpt_close(c);
  return st;
}

static weft_status fill(Sample *s) {
  Job *j = &s->job;
  Folders in = lang_folders(j->lp);
  SafeTensors *weights = NULL;
  if (s->cli->ckpt && s->cli->weights)
    return err_set(&j->e, WEFT_EUSAGE, "give --ckpt or --weights, not both");
  if (s->cli->ckpt) return fill_from_ckpt(s);
  if (!s->cli->weights && !lang_weights(j->lp))
    return err_set(&j->e, WEFT_EUSAGE,
                   "the plan names no weights: give --ckpt DIR or --weights DIR");
  if (s->cli->weights)
    TRY(weights_open(NULL, s->cli->weights, NULL, &j->plan, &in, &weights, &j->e));
  else
    TRY(job_weights(j, NULL, &weights, &j->e));
  weft_status st = run_load(s->run, weights, &j->e);
  st_close(weights);
  return st;
}

/* ---- the verb ---- */

/* With several prompts the result is a list: of those that are complete. */
static void json_result(Json *out, void *ud) {
  const Sample *s = ud;
  if (s->n == 1) {
    sample_json(out, s, s->one);
    return;
  }
  json_open(out, "samples", '[');
  for (int i = 0; i < s->n && s->one[i].done; i++) {
    json_open(out, NULL, '{');
    sample_json(out, s, &s->one[i]);
    json_close(out, '}');
  }
  json_close(out, ']');
}

static weft_status refuse_chat_options(Sample *s) {
  const Cli *cli = s->cli;
  const Belongs of_chat[] = {{cli->template, "--template", "--chat"},
                             {cli->noption, "--option", "--chat"},
                             {cli->refuse_special, "--refuse-special", "--chat"}};
  return options_belong(of_chat, LEN(of_chat), &s->job.e);
}

/* Opens a run for texts of so many tokens, unless it is open. */
static weft_status open_run(Sample *s, int64_t context) {
  Job *j = &s->job;
  if (s->context == context) return WEFT_OK;
  run_close(s->run);
  s->run = NULL;
  s->context = s->nhad = 0;
  j->plan = s->plan;
  TRY(job_decode(j, context));
  TRY(check_prompts(s));
  s->logits = NEW_N(j->arena, float, j->compiled->vocab);
  s->room = NEW_N(j->arena, int32_t, j->compiled->vocab);
  s->had = NEW_N(j->arena, int32_t, context);
  RunOptions o = {.threads = MAX((int)s->cli->threads, 0), .stop = s->cli->stop};
  TRY(run_open(&j->plan, j->compiled, &o, &s->run, &j->e));
  if (!s->warned) verb_warns_of_run(s->cli, j, s->run);
  s->warned = true;
  TRY(fill(s));
  s->context = context;
  return WEFT_OK;
}

static weft_status talk(Sample *s) {
  int64_t context;
  TRY(sample_chat_open(s, &context));
  TRY(open_run(s, context));
  return sample_chat(s);
}

static weft_status sample(Sample *s, Arena *arena) {
  Job *j = &s->job;
  TRY(job_start(j, s->cli, arena, s->cli->arg[0]));
  if (launched_ranks() > 1)
    return err_set(&j->e, WEFT_EUSAGE,
                   "weft sample is one process, with the plan's tp ranks as its threads, "
                   "but a launcher has started %d processes: start it without one",
                   launched_ranks());
  if (!s->cli->chat) TRY(refuse_chat_options(s));
  s->plan = j->plan;
  s->bytes = j->plan.data.kind == DATA_TEXT;
  if (s->cli->weights) s->weights = tokenizer_folder(arena, s->cli->weights);
  TRY(read_choice(s));
  TRY(open_tokenizer(s));
  if (!s->cli->chat) TRY(read_prompts(s));
  TRY(read_end(s));
  if (s->cli->chat) return talk(s);
  for (int i = 0; i < s->n; i++) {
    TRY(open_run(s, s->one[i].context));
    if (!s->cli->json && !s->cli->quiet) sample_print_prompt(s, &s->one[i]);
    TRY(sample_generate(s, &s->one[i]));
  }
  return WEFT_OK;
}

int verb_sample(Cli *cli, Arena *arena) {
  Sample s = {.cli = cli};
  weft_status st = sample(&s, arena);
  bool any = cli->chat ? sample_chat_any(&s) : s.n && s.one[0].done;
  int code = job_end_part(&s.job, cli, st,
                          !any        ? NULL
                          : cli->chat ? sample_chat_json
                                      : json_result,
                          &s);
  for (int i = 0; i < s.n; i++) text_free(&s.one[i].text);
  sample_chat_close(&s);
  run_close(s.run);
  tokenizer_close(s.tok);
  return code;
}
