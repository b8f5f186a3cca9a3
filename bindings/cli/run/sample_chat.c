/* sample_chat.c - weft sample --chat: questions from the command line or, a line each,
 * from the standard input. Each answer is written into the conversation by the template,
 * as training data are; what of it is in the key-value cache already is not run again. */
#include "sample.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "bindings/chat/chat.h"
#include "bindings/chat/chat_plan.h"
#include "bindings/cli/chat_options.h"
#include "vm/base/terminal.h"
#include "vm/base/plural.h"

typedef struct Turn {
  struct Turn *next;
  const char *question;
  One one;
} Turn;

typedef struct SampleChat {
  TokenizerConfig config;
  LangOptions options;
  LangState *own; /* of a template in a file, else NULL */
  ChatTemplate template;
  int64_t context; /* batch.seq of the plan, before it is compiled for one token */
  Text text;
  Turn *first, **last;
  int asked;
  char *line; /* buffer of getline */
  size_t cap;
} SampleChat;

/* ---- the template ---- */

/* The fields of the plan's weft.chat, unless the command line names a template. */
static void push_spec(lua_State *L, void *ud) {
  const Sample *s = ud;
  if (!s->cli->template && s->job.plan.data.kind == DATA_CHAT)
    chat_plan_push_spec(L);
  else
    lua_newtable(L);
  chat_options_set(L, s->cli);
}

static weft_status open_template(Sample *s) {
  SampleChat *c = s->chat;
  Job *j = &s->job;
  bool file = chat_template_file(s->cli);
  if (file) TRY(chat_state_open(s->cli, j->arena, &c->options, &c->own, &j->e));
  TRY(tokenizer_config_read(j->arena, s->tokenizer, &c->config, &j->e));
  ChatOpen o = {.path = file ? s->cli->template : "",
                .push_spec = push_spec,
                .ud = s,
                .config = &c->config,
                .refuse = s->cli->refuse_special ? s->tok : NULL,
                .talks = true};
  weft_status st =
      chat_template_open(file ? c->own : j->lp->state, &o, &c->template, &j->e);
  return st == WEFT_EPLAN ? WEFT_EUSAGE : st;
}

/* An answer ends with what the template puts behind one: its first special token, or else
 * its text; or with the token that ends texts. */
static weft_status add_ending(Sample *s) {
  SampleChat *c = s->chat;
  Job *j = &s->job;
  weft_status st = chat_talk(&c->template, "ending", "", 0, &c->text, &j->e);
  if (st != WEFT_OK) return st == WEFT_EPLAN ? WEFT_EUSAGE : st;
  const char *end = c->text.n ? c->text.s : "";
  const char *special = tokenizer_special_in(s->tok, end, strlen(end));
  size_t n = strlen(end);
  while (n > 1 && strchr(" \t\r\n", end[n - 1])) n--;
  if (special)
    sample_end_at(&s->end, tokenizer_find(s->tok, special));
  else if (n)
    s->end.until[s->end.nuntil++] = arena_strn(j->arena, end, n);
  if (c->config.eos) sample_end_at(&s->end, tokenizer_find(s->tok, c->config.eos));
  if (s->end.neos || s->end.nuntil) return WEFT_OK;
  return err_set(&j->e, WEFT_EUSAGE,
                 "the template puts nothing behind an answer, and no eos_token_id is "
                 "known, so nothing ends one: give --stop TEXT");
}

weft_status sample_chat_open(Sample *s, int64_t *context) {
  SampleChat *c = s->chat = NEW(s->job.arena, SampleChat);
  c->last = &c->first;
  if (s->cli->tokens)
    return err_set(&s->job.e, WEFT_EUSAGE,
                   "--chat takes questions, from --prompt or the standard input, and no "
                   "--tokens");
  if (!s->tok)
    return err_set(
        &s->job.e, WEFT_EUSAGE,
        "--chat needs a tokenizer: the plan names none (plan.tokenizer), and no "
        "tokenizer.json lies beside the weights: give --tokenizer DIR");
  TRY(open_template(s));
  TRY(add_ending(s));
  *context = c->context = s->job.plan.batch.seq;
  return WEFT_OK;
}

void sample_chat_close(Sample *s) {
  SampleChat *c = s->chat;
  if (!c) return;
  for (Turn *t = c->first; t; t = t->next) text_free(&t->one.text);
  text_free(&c->text);
  state_free(c->own);
  free(c->line);
}

/* ---- a question and its answer ---- */

/* The tokens of the conversation up to the answer, and how many it may have. */
static weft_status read_conversation(Sample *s, Turn *t) {
  const Cli *cli = s->cli;
  Job *j = &s->job;
  One *o = &t->one;
  TokenIds ids = {0};
  int64_t trained = s->chat->context,
          more = cli->max_tokens > 0 ? cli->max_tokens : SAMPLE_MORE;
  TRY(chat_talk(&s->chat->template, "ask", t->question, strlen(t->question),
                &s->chat->text, &j->e));
  weft_status st =
      tokenizer_encode(s->tok, s->chat->text.s, s->chat->text.n, false, &ids, &j->e);
  int64_t n = (int64_t)ids.n;
  if (st == WEFT_OK && n >= trained)
    st = err_set(
        &j->e, WEFT_EPLAN,
        "the conversation has %lld tokens with this question, and the plan trains "
        "on %lld (batch.seq; %s has room for %lld more)",
        (long long)n, (long long)trained, sample_room(s, n + more), (long long)more);
  if (st == WEFT_OK) {
    o->most = cli->max_tokens > 0 ? MIN(n + cli->max_tokens, trained) : trained;
    o->token = NEW_N(j->arena, int32_t, o->most);
    memcpy(o->token, ids.at, ids.n * sizeof *ids.at);
    o->n = o->prompt = n;
  }
  token_ids_free(&ids);
  return st;
}

/* Bytes of another encoding, as of a terminal that is set to Latin-1. */
static weft_status check_question(Sample *s, const char *question) {
  size_t n = strlen(question), good = text_utf8(question, n);
  if (good == n) return WEFT_OK;
  return err_set(&s->job.e, WEFT_EPLAN,
                 "the question \"%s\" is not UTF-8 from byte %zu on", SHOWN(question),
                 good);
}

static weft_status answer(Sample *s, const char *question) {
  SampleChat *c = s->chat;
  Job *j = &s->job;
  TRY(check_question(s, question));
  Turn *t = NEW(j->arena, Turn);
  t->question = arena_str(j->arena, question);
  TRY(read_conversation(s, t));
  *c->last = t;
  c->last = &t->next;
  TRY(sample_generate(s, &t->one));
  const Text *said = &t->one.text;
  if (str_eq(t->one.ended, "length") && !s->cli->json)
    report_error("the answer was cut after %lld token%s",
                 (long long)(t->one.n - t->one.prompt),
                 plural(t->one.n - t->one.prompt, "s"));
  return chat_talk(&c->template, "answer", said->n ? said->s : "", said->n, &c->text,
                   &j->e);
}

/* ---- questions ---- */

static bool is_blank(const char *s) { return s[strspn(s, " \t\r\n")] == 0; }

/* The next question of the command line, or the next line that has one; NULL: none. */
static const char *next_question(Sample *s) {
  SampleChat *c = s->chat;
  const Cli *cli = s->cli;
  bool shows = !cli->json && !cli->quiet, typed = isatty(STDIN_FILENO);
  if (cli->nprompt) {
    if (c->asked == cli->nprompt) return NULL;
    if (shows) printf("> %s\n", SHOWN(cli->prompt[c->asked]));
    return cli->prompt[c->asked++];
  }
  for (;;) {
    if (shows && typed) fputs("> ", stdout);
    fflush(stdout);
    ssize_t n = getline(&c->line, &c->cap, stdin);
    if (n < 0) return NULL;
    while (n && (c->line[n - 1] == '\n' || c->line[n - 1] == '\r')) c->line[--n] = 0;
    if (is_blank(c->line)) continue;
    if (shows && !typed) printf("> %s\n", SHOWN(c->line));
    return c->line;
  }
}

/* Ctrl-C ends the wait for a line. */
static void interrupt_reads(void) {
  struct sigaction act;
  if (sigaction(SIGINT, NULL, &act) != 0) return;
  act.sa_flags &= ~SA_RESTART;
  sigaction(SIGINT, &act, NULL);
}

/* At a terminal a question that is refused may be asked in another way. */
weft_status sample_chat(Sample *s) {
  Job *j = &s->job;
  bool typed = !s->cli->nprompt && isatty(STDIN_FILENO);
  const char *question;
  if (typed) interrupt_reads();
  while ((question = next_question(s))) {
    weft_status st = answer(s, question);
    if (st == WEFT_EPLAN && typed) {
      report_error("%s", j->e.text);
      err_clear(&j->e);
    } else if (st != WEFT_OK) {
      return st == WEFT_EPLAN ? WEFT_EUSAGE : st;
    }
  }
  if (s->cli->stop && *s->cli->stop) return err_set(&j->e, WEFT_EINTR, "interrupted");
  if (typed && !s->cli->json) putchar('\n');
  if (s->chat->first) return WEFT_OK;
  return err_set(&j->e, WEFT_EUSAGE,
                 "no question: give --prompt TEXT, or lines on the standard input");
}

bool sample_chat_any(const Sample *s) {
  return s->chat && s->chat->first && s->chat->first->one.done;
}

void sample_chat_json(Json *out, void *ud) {
  const Sample *s = ud;
  json_open(out, "turns", '[');
  for (const Turn *t = s->chat->first; t; t = t->next) {
    if (!t->one.done) continue;
    json_open(out, NULL, '{');
    sample_json(out, s, &t->one);
    json_str(out, "question", t->question);
    json_close(out, '}');
  }
  json_close(out, ']');
}
