/* regex_module.c - weft_text.so: Oniguruma and utf8proc behind regex.h. */
#include <oniguruma.h>
#include <stdlib.h>
#include <utf8proc.h>

#include "regex.h"

static void *compile(const char *pattern, char *why) {
  OnigEncoding used[] = {ONIG_ENCODING_UTF8};
  OnigErrorInfo info;
  regex_t *regex = NULL;
  UChar text[ONIG_MAX_ERROR_MESSAGE_LEN]; /* 90 bytes */
  const UChar *p = (const UChar *)pattern;
  onig_initialize(used, 1);
  int rc = onig_new(&regex, p, p + strlen(pattern), ONIG_OPTION_NONE, ONIG_ENCODING_UTF8,
                    ONIG_SYNTAX_DEFAULT, &info);
  if (rc == ONIG_NORMAL) return regex;
  int n = onig_error_code_to_str(text, rc, &info);
  memcpy(why, text, (size_t)n);
  why[n] = 0;
  return NULL;
}

static void release(void *regex) { onig_free(regex); }

static int search(void *regex, const char *s, size_t n, size_t at, size_t *begin,
                  size_t *end) {
  const UChar *p = (const UChar *)s;
  OnigRegion *region = onig_region_new();
  int rc = region ? onig_search(regex, p, p + n, p + at, p + n, region, ONIG_OPTION_NONE)
                  : ONIGERR_MEMORY;
  if (rc >= 0) {
    *begin = (size_t)region->beg[0];
    *end = (size_t)region->end[0];
  }
  if (region) onig_region_free(region, 1);
  return rc >= 0 ? 1 : rc == ONIG_MISMATCH ? 0 : -1;
}

static char *compose(const char *s, size_t n, size_t *length) {
  utf8proc_uint8_t *out = NULL;
  utf8proc_ssize_t m = utf8proc_map((const utf8proc_uint8_t *)s, (utf8proc_ssize_t)n,
                                    &out, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  *length = (size_t)m; /* after an error there is none */
  return (char *)out;
}

static size_t valid(const char *s, size_t n) {
  for (size_t i = 0; i < n;) {
    utf8proc_int32_t c;
    utf8proc_ssize_t m =
        utf8proc_iterate((const utf8proc_uint8_t *)s + i, (utf8proc_ssize_t)(n - i), &c);
    if (m < 1) return i;
    i += (size_t)m;
  }
  return n;
}

__attribute__((visibility("default"))) const RegexApi weft_regex_api = {
    REGEX_API_VERSION, compile, release, search, compose, valid};
