/* sample_end.h - what ends generation before its limit: end-of-text tokens and stop
 * strings. */
#ifndef WEFT_CLI_SAMPLE_END_H
#define WEFT_CLI_SAMPLE_END_H

#include "bindings/cli/cli.h"

/* Ids in a file, of which there are those of weights and those of a tokenizer; a
 * conversation adds those of its template and its tokenizer. */
enum { EOS_OF_FILE = 16, EOS_FILES = 2, EOS_OF_CHAT = 3 };

typedef struct SampleEnd {
  int32_t eos[EOS_FILES * EOS_OF_FILE + EOS_OF_CHAT]; /* end-of-text tokens */
  int neos;
  const char *until[CLI_LIST + 1]; /* stop strings, which are not part of the output */
  int nuntil;
} SampleEnd;

/* Adds the ids in generation_config.json of a folder, or else in config.json. `*said`:
 * there are some; there are none without such a file, or if `folder` is NULL. */
weft_status sample_eos(SampleEnd *x, Arena *a, const char *folder, bool *said,
                       weft_error *e);
/* Adds those that the plan's model has; `*said`: the plan says them, or that there are
 * none. */
weft_status sample_eos_of_plan(SampleEnd *x, LangPlan *lp, bool *said, weft_error *e);
/* Adds an id unless it is there or negative. */
void sample_end_at(SampleEnd *x, int32_t token);
bool sample_is_eos(const SampleEnd *x, int32_t token);
/* The position of the first stop string in a text that had `before` bytes one token ago,
 * or -1. */
int64_t sample_until(const SampleEnd *x, const Text *t, size_t before);
/* Number of bytes at the end of the text that may be the beginning of a stop string. */
size_t sample_maybe(const SampleEnd *x, const Text *t);

#endif
