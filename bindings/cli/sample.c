/* sample.c - weft sample: continues a prompt, token by token. */
#include "cli.h"

#include <stdlib.h>
#include <unistd.h>

#include "vm/ckpt/ckpt.h"
#include "vm/ckpt/store.h"
#include "vm/exec/choose.h"
#include "vm/text/tokenizer.h"

typedef struct Sample {
  Job job;
  const Cli *cli;
  Run *run;
  bool bytes;     /* tokens are bytes of a text */
  Tokenizer *tok; /* or what this one says; NULL: only ids */
  int32_t *token; /* the prompt, then what follows */
  int64_t prompt, n, most;
  float *logits;
  int32_t *room;
  Choice choice;
} Sample;

/* ---- the prompt ---- */

static weft_status add_token(Sample *s, int64_t id) {
  if (s->n == s->most)
    return err_set(&s->job.e, WEFT_EUSAGE,
                   "the prompt has more than the %lld tokens that the plan trains on "
                   "(batch.seq)",
                   (long long)s->most);
  s->token[s->n++] = (int32_t)id;
  return WEFT_OK;
}

static weft_status read_ids(Sample *s, const char *text) {
  for (const char *at = text; *at;) {
    char *end;
    long long id = strtoll(at, &end, 10);
    if (end == at || (*end && *end != ',') || id < 0 || id > INT32_MAX)
      return err_set(&s->job.e, WEFT_EUSAGE,
                     "--tokens takes ids with commas between, as in 1,2,3; got \"%s\"",
                     text);
    TRY(add_token(s, id));
    at = *end ? end + 1 : end;
  }
  return WEFT_OK;
}

/* That of the command, or the one that lies beside the weights. */
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

/* The text of tokens, as bytes: a token may be a part of a character. Models may have
 * more ids than their tokenizer: what those stand for nobody knows. */
static void text_of(const Sample *s, int64_t from, int64_t to, Text *out) {
  for (int64_t i = from; i < to; i++) {
    weft_error e;
    err_clear(&e);
    if (!s->tok)
      text_addn(out, &(char){(char)s->token[i]}, 1);
    else if (tokenizer_decode(s->tok, s->token + i, 1, true, out, &e) == WEFT_EFILE)
      text_add(out, "\uFFFD");
  }
}

static weft_status encode_prompt(Sample *s, const char *text) {
  TokenIds ids = {0};
  weft_status st = WEFT_OK;
  if (!s->tok) {
    for (const char *p = text; *p; p++)
      TRY(add_token(s, (unsigned char)*p));
    return WEFT_OK;
  }
  st = tokenizer_encode(s->tok, text, strlen(text), true, &ids, &s->job.e);
  for (size_t i = 0; i < ids.n && st == WEFT_OK; i++)
    st = add_token(s, ids.at[i]);
  token_ids_free(&ids);
  return st;
}

static weft_status read_prompt(Sample *s) {
  const Cli *cli = s->cli;
  weft_error *e = &s->job.e;
  if (!cli->prompt == !cli->tokens)
    return err_set(e, WEFT_EUSAGE, "give a --prompt TEXT or --tokens 1,2,3");
  if (cli->prompt && !s->bytes && !s->tok)
    return err_set(e, WEFT_EUSAGE,
                   "the tokens of this plan are not bytes, and no tokenizer.json lies "
                   "beside its weights: give --tokenizer FILE, or ids, --tokens 1,2,3");
  s->most = s->job.plan.batch.seq;
  s->token = NEW_N(s->job.arena, int32_t, s->most);
  if (cli->prompt) TRY(encode_prompt(s, cli->prompt));
  if (cli->tokens) TRY(read_ids(s, cli->tokens));
  if (s->n == 0) return err_set(e, WEFT_EUSAGE, "the prompt is empty");
  s->prompt = s->n;
  int64_t more = cli->max_tokens > 0 ? cli->max_tokens : MIN(100, s->most - s->n);
  if (s->n + more > s->most || more == 0)
    return err_set(e, WEFT_EUSAGE,
                   "%lld tokens of the prompt and %lld more: the plan trains on %lld "
                   "(batch.seq)",
                   (long long)s->n, (long long)more, (long long)s->most);
  s->most = s->n + more;
  return WEFT_OK;
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
  s->choice = (Choice){.greedy = cli->greedy,
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

static void print_token(const Sample *s, int64_t i) {
  if (s->bytes || s->tok) {
    Text t = {0};
    text_of(s, i, i + 1, &t);
    if (t.s) fwrite(t.s, 1, t.n, stdout);
    text_free(&t);
  } else {
    printf("%s%d", i > (s->cli->quiet ? s->prompt : 0) ? "," : "", s->token[i]);
  }
  fflush(stdout);
}

static weft_status generate(Sample *s) {
  const Compiled *c = s->job.compiled;
  bool prints = !s->cli->json;
  for (int64_t i = 0; i < s->prompt && prints && !s->cli->quiet; i++)
    print_token(s, i);
  for (int64_t i = 0; i + 1 < s->most; i++) {
    TRY(run_decode(s->run, s->token[i], i, s->logits, &s->job.e));
    if (i + 1 < s->prompt) continue;
    s->token[s->n++] = choose(&s->choice, s->logits, c->vocab, i + 1, s->room);
    if (prints) print_token(s, i + 1);
  }
  if (prints) putchar('\n');
  return WEFT_OK;
}

static void json_result(Json *out, void *ud) {
  const Sample *s = ud;
  json_int(out, "prompt", s->prompt);
  if (s->bytes || s->tok) {
    Text t = {0};
    text_of(s, s->prompt, s->n, &t);
    json_str(out, "text", t.s ? t.s : "");
    text_free(&t);
  }
  json_open(out, "tokens", '[');
  for (int64_t i = 0; i < s->n; i++)
    json_int(out, NULL, s->token[i]);
  json_close(out, ']');
}

static weft_status sample(Sample *s, Arena *arena) {
  Job *j = &s->job;
  TRY(job_start(j, s->cli, arena, s->cli->arg[0]));
  s->bytes = j->plan.data.kind == DATA_TEXT;
  TRY(read_choice(s));
  TRY(open_tokenizer(s));
  TRY(read_prompt(s));
  TRY(job_decode(j, s->most));
  s->logits = NEW_N(arena, float, j->compiled->vocab);
  s->room = NEW_N(arena, int32_t, j->compiled->vocab);
  RunOptions o = {.threads = MAX((int)s->cli->threads, 0), .stop = s->cli->stop};
  TRY(run_open(&j->plan, j->compiled, &o, &s->run, &j->e));
  TRY(fill(s));
  return generate(s);
}

int verb_sample(Cli *cli, Arena *arena) {
  Sample s = {.cli = cli};
  weft_status st = sample(&s, arena);
  int code = job_end(&s.job, cli, st, json_result, &s);
  run_close(s.run);
  tokenizer_close(s.tok);
  return code;
}
