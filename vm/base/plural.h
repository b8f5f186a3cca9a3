/* plural.h - endings of words behind a number: ("%d rank%s", n, plural(n, "s")). */
#ifndef WEFT_PLURAL_H
#define WEFT_PLURAL_H

#include <stdint.h>

/* The ending, for any number but one. */
static inline const char *plural(int64_t n, const char *ending) {
  return n == 1 ? "" : ending;
}

#endif
