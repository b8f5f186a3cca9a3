/* regex.h - what tokenizers need of libraries: Oniguruma, the regular expressions that
 * Hugging Face's tokenizers use, and utf8proc's normalization. Both are in the module
 * weft_text.so, which is opened with the first tokenizer. */
#ifndef WEFT_TEXT_REGEX_H
#define WEFT_TEXT_REGEX_H

#include "vm/base/base.h"

enum { REGEX_API_VERSION = 1 };

typedef struct RegexApi {
  int version;
  /* NULL, with the library's reason in `why` of 128 bytes. */
  void *(*compile)(const char *pattern, char *why);
  void (*release)(void *regex);
  /* The next match in s[0, n) that begins at or after `at`: 1 and its range, 0 if there
   * is none, -1 if the search exceeded the library's limits. */
  int (*search)(void *regex, const char *s, size_t n, size_t at, size_t *begin,
                size_t *end);
  /* NFC of UTF-8, freed with free(); NULL: out of memory. */
  char *(*compose)(const char *s, size_t n, size_t *length);
  /* The first byte that is not UTF-8; n if all are. */
  size_t (*valid)(const char *s, size_t n);
} RegexApi;

/* The functions of the module, which is never closed; an error names the packages. */
weft_status regex_api(const RegexApi **out, weft_error *e);

#endif
