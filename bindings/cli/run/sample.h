/* sample.h - weft sample: one continuation after the other, or a conversation. */
#ifndef WEFT_CLI_SAMPLE_H
#define WEFT_CLI_SAMPLE_H

#include "sample_end.h"
#include "vm/run/sampler.h"
#include "vm/text/tokenizer.h"

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
  bool bytes;            /* tokens are bytes */
  Tokenizer *tok;        /* the tokenizer, or NULL: only ids are known */
  const char *tokenizer; /* its file, or NULL */
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
void sample_chat_json(Json *out, void *ud); /* of the Sample */
void sample_chat_close(Sample *s);

#endif
