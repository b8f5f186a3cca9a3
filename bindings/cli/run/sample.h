/* sample.h - weft sample: one continuation after the other, or a conversation. */
#ifndef WEFT_CLI_SAMPLE_H
#define WEFT_CLI_SAMPLE_H

#include "sample_end.h"
#include "vm/run/sampler.h"
#include "vm/text/tokenizer.h"

/* Tokens of a continuation where --max-tokens does not say how many. */
enum { SAMPLE_MORE = 100 };

/* A prompt and its continuation. */
typedef struct One {
  int32_t *token;
  int64_t prompt, n, most; /* lengths in tokens; most: the limit */
  int64_t context;         /* of the programs that it is run by */
  Text text;               /* the continuation, if tokens are text */
  const char *ended;       /* "length", "eos" or "stop", */
  bool done;               /* once nothing has failed before it did */
} One;

typedef struct Sample {
  Job job;
  const Cli *cli;
  Plan plan;             /* as it was loaded: that of the job is for one token */
  Run *run;              /* NULL before the first text */
  bool warned;           /* of how it runs */
  int64_t context;       /* that it has room for */
  bool bytes;            /* tokens are bytes */
  Tokenizer *tok;        /* the tokenizer, or NULL: only ids are known */
  const char *tokenizer; /* its file, or NULL */
  const char *weights;   /* the folder of --weights, or NULL */
  One *one;
  int n;
  float *logits;
  int32_t *room;
  int32_t *had; /* the tokens whose keys and values are in the cache */
  int64_t nhad;
  SamplerOptions choice;
  SampleEnd end;
  struct SampleChat *chat;
} Sample;

/* ---- sample.c ---- */
/* The settings with which the plan trains on so many tokens, for messages: "--set
 * batch.seq=N", with more where it must be rounded up, or said twice. */
const char *sample_room(const Sample *s, int64_t tokens);

/* ---- sample_decode.c ---- */
/* Prints the prompt as it was tokenized. */
void sample_print_prompt(const Sample *s, const One *o);
/* Continues it, and prints what comes unless the result is an object. */
weft_status sample_generate(Sample *s, One *o);
void sample_json(Json *out, const Sample *s, const One *o);

/* ---- sample_chat.c ---- */
/* Opens the template, adds what ends an answer to s->end, and says how many tokens the
 * conversation may have. */
weft_status sample_chat_open(Sample *s, int64_t *context);
/* Answers one question after the other. */
weft_status sample_chat(Sample *s);
bool sample_chat_any(const Sample *s);      /* whether a question was answered */
void sample_chat_json(Json *out, void *ud); /* of the Sample */
void sample_chat_close(Sample *s);

#endif
