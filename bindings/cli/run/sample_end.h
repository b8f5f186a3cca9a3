/* sample_end.h - what ends generation before its limit: an end-of-text token or a stop
 * string. */
#ifndef WEFT_CLI_SAMPLE_END_H
#define WEFT_CLI_SAMPLE_END_H

#include "bindings/cli/cli.h"

typedef struct SampleEnd {
  int32_t eos[16]; /* tokens that end a text */
  int neos;
  const char *const *until; /* texts that do, and are no part of it */
  int nuntil;
} SampleEnd;

/* The ids that generation_config.json in a folder says, or else config.json. None if
 * there is no such file, or `folder` is NULL. */
weft_status sample_eos(SampleEnd *x, Arena *a, const char *folder, weft_error *e);
bool sample_is_eos(const SampleEnd *x, int32_t token);
/* Where the first of the texts begins in a text that had `before` bytes a token ago, or
 * -1.
 */
int64_t sample_until(const SampleEnd *x, const Text *t, size_t before);
/* So many bytes at the end of it may be the begin of one of them. */
size_t sample_maybe(const SampleEnd *x, const Text *t);

#endif
