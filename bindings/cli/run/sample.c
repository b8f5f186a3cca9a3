/* sample.c - weft sample: generates continuations of prompts. */
#include "sample_end.h"

#include <stdlib.h>
#include <unistd.h>

#include "vm/base/terminal.h"
#include "vm/ckpt/ckpt.h"
#include "vm/ckpt/ckpt_store.h"
#include "vm/run/sampler.h"
#include "vm/text/tokenizer.h"
#include "vm/weights/weights_load.h"

/* A prompt and its continuation. */
typedef struct One {
  int32_t *token;
  int64_t prompt, n, most; /* lengths in tokens; most: the limit */
  Text text;               /* the continuation, if tokens are text */
  const char *ended;       /* "length", "eos" or "stop" */
} One;

typedef struct Sample {
  Job job;
  const Cli *cli;
  Run *run;
  bool bytes;     /* tokens are bytes */
  Tokenizer *tok; /* the tokenizer, or NULL: only ids are known */
  One *one;
  int n;
  float *logits;
  int32_t *room;
  SamplerOptions choice;
  SampleEnd end;
} Sample;

/* ---- prompts ---- */

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

/* Opens the tokenizer of the command line, or the one beside the weights. */
static weft_status open_tokenizer(Sample *s) {
  const Cli *cli = s->cli;
  Job *j = &s->job;
  const char *path = cli->tokenizer;
  const char *folder = cli->weights ? cli->weights : lang_weights(j->lp);
  if (s->bytes && path)
    return err_set(&j->e, WEFT_EUSAGE, "the tokens of this plan are bytes (weft.text)");
  if (!path && folder && !s->bytes) {
    const char *beside = arena_printf(j->arena, "%s/tokenizer.json", folder);
    if (access(beside, R_OK) == 0) path = beside;
  }
  return path ? tokenizer_open(NULL, path, &s->tok, &j->e) : WEFT_OK;
}

/* The bytes of a token, maybe a part of a character. Models may have more ids than their
 * tokenizer has tokens; these have no text. */
static void text_of(const Sample *s, int32_t token, Text *out) {
  weft_error e;
  err_clear(&e);
  if (!s->tok)
    text_addn(out, &(char){(char)token}, 1);
  else if (tokenizer_decode(s->tok, &token, 1, true, out, &e) == WEFT_EFILE)
    text_add(out, "\uFFFD");
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
  int64_t more = cli->max_tokens > 0 ? cli->max_tokens : MIN(100, o->most - o->n);
  if (o->n + more > o->most || more == 0)
    return err_set(e, WEFT_EUSAGE,
                   "%lld tokens of the prompt and %lld more: the plan trains on %lld "
                   "(batch.seq)",
                   (long long)o->n, (long long)more, (long long)o->most);
  o->most = o->n + more;
  return WEFT_OK;
}

static weft_status read_prompts(Sample *s, int64_t *context) {
  const Cli *cli = s->cli;
  weft_error *e = &s->job.e;
  if (!cli->nprompt == !cli->tokens)
    return err_set(e, WEFT_EUSAGE, "give a --prompt TEXT or --tokens 1,2,3");
  if (cli->nprompt && !s->bytes && !s->tok)
    return err_set(e, WEFT_EUSAGE,
                   "the tokens of this plan are not bytes, and no tokenizer.json lies "
                   "beside its weights: give --tokenizer FILE, or ids, --tokens 1,2,3");
  s->n = cli->nprompt ? cli->nprompt : 1;
  s->one = NEW_N(s->job.arena, One, s->n);
  *context = 0;
  for (int i = 0; i < s->n; i++) {
    TRY(read_prompt(s, &s->one[i], cli->nprompt ? cli->prompt[i] : NULL));
    *context = MAX(*context, s->one[i].most);
  }
  return WEFT_OK;
}

/* Collects what ends a text before its limit. */
static weft_status read_end(Sample *s) {
  const Cli *cli = s->cli;
  const char *folder = cli->weights ? cli->weights : lang_folder(s->job.lp);
  s->end = (SampleEnd){.until = cli->until, .nuntil = cli->nuntil};
  for (int i = 0; i < cli->nuntil; i++)
    if (!*cli->until[i]) return err_set(&s->job.e, WEFT_EUSAGE, "--stop is empty");
  if (cli->nuntil && !s->bytes && !s->tok)
    return err_set(&s->job.e, WEFT_EUSAGE,
                   "--stop is a string, and the tokens of this plan are ids: give "
                   "--tokenizer FILE");
  return sample_eos(&s->end, s->job.arena, folder, &s->job.e);
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
  weft_status st = ckpt_load(c, s->run, &j->e);
  ckpt_close(c);
  return st;
}

static weft_status fill(Sample *s) {
  Job *j = &s->job;
  Folders in = lang_folders(j->lp);
  SafeTensors *weights = NULL;
  const char *path = s->cli->weights ? s->cli->weights : lang_weights(j->lp);
  if (s->cli->ckpt && s->cli->weights)
    return err_set(&j->e, WEFT_EUSAGE, "give --ckpt or --weights, not both");
  if (s->cli->ckpt) return fill_from_ckpt(s);
  if (!path)
    return err_set(&j->e, WEFT_EUSAGE,
                   "the plan names no weights: give --ckpt DIR or --weights DIR");
  TRY(st_open(NULL, path, s->cli->weights ? NULL : &in, &weights, &j->e));
  weft_status st = run_load(s->run, weights, &j->e);
  st_close(weights);
  return st;
}

/* ---- sampling ---- */

/* Prints bytes [from, to) of the continuation; returns how many were printed. On a
 * terminal control characters are made visible and an incomplete character waits for its
 * rest. */
static size_t print_bytes(const One *o, size_t from, size_t to, bool end) {
  size_t n = to > from ? to - from : 0;
  if (n && isatty(STDOUT_FILENO)) {
    Text t = {0};
    n = text_add_shown(&t, o->text.s + from, n, FREE_LINES, end);
    print_text(stdout, &t);
  } else if (n) {
    fwrite(o->text.s + from, 1, n, stdout);
  }
  fflush(stdout);
  return n;
}

/* Prints the prompt as it was tokenized. */
static void print_prompt(const Sample *s, const One *o) {
  Text t = {0};
  for (int64_t i = 0; i < o->prompt; i++)
    if (s->bytes || s->tok)
      text_of(s, o->token[i], &t);
    else
      text_printf(&t, "%s%d", i ? "," : "", o->token[i]);
  One shown = {.text = t};
  print_bytes(&shown, 0, t.n, true);
  text_free(&t);
}

/* Adds the text of the last token; true if it ends the continuation. Text that may be the
 * beginning of a stop string is printed once it is known not to be one. */
static bool add_text(const Sample *s, One *o, size_t *printed, bool prints) {
  size_t before = o->text.n;
  text_of(s, o->token[o->n - 1], &o->text);
  int64_t at = sample_until(&s->end, &o->text, before);
  if (at >= 0) o->text.n = (size_t)at;
  size_t to = o->text.n - (at >= 0 ? 0 : sample_maybe(&s->end, &o->text));
  if (prints) *printed += print_bytes(o, *printed, to, false);
  return at >= 0;
}

static weft_status generate(Sample *s, One *o) {
  const Compiled *c = s->job.compiled;
  bool prints = !s->cli->json, text = s->bytes || s->tok;
  size_t printed = 0;
  if (prints && !s->cli->quiet) print_prompt(s, o);
  o->ended = "length";
  for (int64_t i = 0; i + 1 < o->most; i++) {
    TRY(run_decode(s->run, o->token[i], i, s->logits, &s->job.e));
    const char *why = run_not_captured(s->run);
    if (why) report_error("warning: steps are launched op by op from here on: %s", why);
    if (i + 1 < o->prompt) continue;
    int32_t id = sample_token(&s->choice, s->logits, c->vocab, i + 1, s->room);
    o->token[o->n++] = id;
    if (prints && !text)
      printf("%s%d", i + 1 > (s->cli->quiet ? o->prompt : 0) ? "," : "", id);
    if (sample_is_eos(&s->end, id))
      o->ended = "eos";
    else if (text && add_text(s, o, &printed, prints))
      o->ended = "stop";
    if (o->ended[0] != 'l') break;
  }
  if (prints) print_bytes(o, printed, o->text.n, true);
  if (prints) putchar('\n');
  fflush(stdout);
  return WEFT_OK;
}

static void json_one(Json *out, const Sample *s, const One *o) {
  json_str(out, "ended", o->ended);
  json_int(out, "prompt", o->prompt);
  if (s->bytes || s->tok) json_str(out, "text", o->text.s ? o->text.s : "");
  json_open(out, "tokens", '[');
  for (int64_t i = 0; i < o->n; i++) json_int(out, NULL, o->token[i]);
  json_close(out, ']');
}

/* With several prompts the result is a list. */
static void json_result(Json *out, void *ud) {
  const Sample *s = ud;
  if (s->n == 1) {
    json_one(out, s, s->one);
    return;
  }
  json_open(out, "samples", '[');
  for (int i = 0; i < s->n; i++) {
    json_open(out, NULL, '{');
    json_one(out, s, &s->one[i]);
    json_close(out, '}');
  }
  json_close(out, ']');
}

static weft_status sample(Sample *s, Arena *arena) {
  Job *j = &s->job;
  int64_t context = 0;
  TRY(job_start(j, s->cli, arena, s->cli->arg[0]));
  if (launched_ranks() > 1)
    return err_set(&j->e, WEFT_EUSAGE,
                   "weft sample is one process, with the plan's tp ranks as its threads, "
                   "but a launcher has started %d processes: start it without one",
                   launched_ranks());
  s->bytes = j->plan.data.kind == DATA_TEXT;
  TRY(read_choice(s));
  TRY(open_tokenizer(s));
  TRY(read_prompts(s, &context));
  TRY(read_end(s));
  TRY(job_decode(j, context));
  s->logits = NEW_N(arena, float, j->compiled->vocab);
  s->room = NEW_N(arena, int32_t, j->compiled->vocab);
  RunOptions o = {.threads = MAX((int)s->cli->threads, 0), .stop = s->cli->stop};
  TRY(run_open(&j->plan, j->compiled, &o, &s->run, &j->e));
  TRY(fill(s));
  for (int i = 0; i < s->n; i++) TRY(generate(s, &s->one[i]));
  return WEFT_OK;
}

int verb_sample(Cli *cli, Arena *arena) {
  Sample s = {.cli = cli};
  weft_status st = sample(&s, arena);
  int code = job_end(&s.job, cli, st, json_result, &s);
  for (int i = 0; i < s.n; i++) text_free(&s.one[i].text);
  run_close(s.run);
  tokenizer_close(s.tok);
  return code;
}
