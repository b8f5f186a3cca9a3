/* tokenize_chat.c - weft tokenize --chat: conversations to a token file with a mask. */
#include "tokenize.h"

#include "bindings/chat/chat.h"
#include "bindings/cli/chat_options.h"
#include "bindings/sandbox/lua_fields.h"
#include "vm/base/terminal.h"
#include "vm/base/plural.h"

typedef struct ChatJob {
  const Cli *cli;
  Arena *arena;
  Tokenizer *tokenizer;
  TokenizerConfig config;
  LangOptions options;
  LangState *state;
  ChatTemplate template;
  ChatCounts n;
} ChatJob;

static weft_status check_options(const Cli *cli, weft_error *e) {
  if (!cli->tokenizer)
    return err_set(e, WEFT_EUSAGE, "tokenize --chat needs --tokenizer DIR");
  if (!ends_in(cli->out, ".bin"))
    return err_set(e, WEFT_EUSAGE, "tokenize needs --out NAME.bin");
  if (cli->eot)
    return err_set(e, WEFT_EUSAGE, "--eot is for texts: templates end a conversation");
  return WEFT_OK;
}

/* ---- the spec of stdlib/chat ---- */

/* --format NAME, or prompt=COLUMN,response=COLUMN */
static void set_format(lua_State *L, const char *format) {
  if (!format || !strchr(format, '=')) {
    set_text(L, "format", format ? format : "messages");
    return;
  }
  lua_newtable(L);
  for (const char *s = format; *s;) {
    size_t n = strcspn(s, ","), key = strcspn(s, "=");
    if (key < n) {
      lua_pushlstring(L, s, key);
      lua_pushlstring(L, s + key + 1, n - key - 1);
      lua_rawset(L, -3);
    }
    s += n + (s[n] == ',');
  }
  lua_setfield(L, -2, "format");
}

static void push_spec(lua_State *L, void *ud) {
  const ChatJob *j = ud;
  lua_newtable(L);
  set_format(L, j->cli->format);
  set_text(L, "train_on", j->cli->train_on ? j->cli->train_on : "assistant");
  chat_options_set(L, j->cli);
}

/* ---- the job ---- */

static weft_status open_template(ChatJob *j, weft_error *e) {
  const Cli *cli = j->cli;
  TRY(chat_state_open(cli, j->arena, &j->options, &j->state, e));
  ChatOpen o = {.path = chat_template_file(cli) ? cli->template : "",
                .push_spec = push_spec,
                .ud = j,
                .config = &j->config,
                .refuse = cli->refuse_special ? j->tokenizer : NULL};
  weft_status st = chat_template_open(j->state, &o, &j->template, e);
  return st == WEFT_EPLAN ? WEFT_EUSAGE : st;
}

static weft_status write_file(ChatJob *j, weft_error *e) {
  const Cli *cli = j->cli;
  ChatFileSpec spec = {.files = cli->arg,
                       .nfiles = cli->narg,
                       .tokenizer = j->tokenizer,
                       .template = &j->template,
                       .out = cli->out,
                       .max_length = MAX(cli->max_length, 0),
                       .drop_bad = cli->drop_bad,
                       .stop = cli->stop};
  heed_ends(cli);
  return chat_file_write(&spec, &j->n, e);
}

static void say(const ChatJob *j) {
  const ChatCounts *n = &j->n;
  printf("%s: %lld conversation%s, %lld token%s, %lld learnt (%.1f %%); %lld truncated, "
         "%lld dropped\n",
         SHOWN(j->cli->out), (long long)n->conversations, plural(n->conversations, "s"),
         (long long)n->tokens, plural(n->tokens, "s"), (long long)n->learnt,
         100 * (double)n->learnt / (double)n->tokens, (long long)n->truncated,
         (long long)(n->bad + n->unlearnt));
  if (n->unreasoned)
    printf("  learnt without the reasoning that the template leaves out: %lld answer%s\n",
           (long long)n->unreasoned, plural(n->unreasoned, "s"));
  if (n->unlearnt)
    printf("  dropped: %lld with nothing that is learnt\n", (long long)n->unlearnt);
  if (n->bad)
    printf("  dropped: %lld that cannot be used, the first: %s\n", (long long)n->bad,
           SHOWN(n->first_bad));
}

int tokenize_chat(Cli *cli, Arena *arena) {
  ChatJob j = {.cli = cli, .arena = arena};
  weft_error e = NO_ERROR;
  weft_status st = check_options(cli, &e);
  if (st == WEFT_OK) st = tokenizer_open(NULL, cli->tokenizer, &j.tokenizer, &e);
  if (st == WEFT_OK) st = tokenizer_config_read(arena, cli->tokenizer, &j.config, &e);
  if (st == WEFT_OK) st = open_template(&j, &e);
  if (st == WEFT_OK) st = write_file(&j, &e);
  if (st == WEFT_OK) say(&j);
  chat_template_close(&j.template);
  state_free(j.state);
  tokenizer_close(j.tokenizer);
  return tokenize_end(cli, st, &e);
}
