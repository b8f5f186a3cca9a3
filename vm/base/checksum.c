/* checksum.c - XXH3 checksums as numbers and as strings. */
#include "checksum.h"

#include <stdio.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t checksum(const void *p, size_t n) { return XXH3_64bits(p, n); }

const char *checksum_text(uint64_t h, char out[CHECKSUM_TEXT]) {
  snprintf(out, CHECKSUM_TEXT, "%016llx", (unsigned long long)h);
  return out;
}

bool checksum_parse(const char *s, uint64_t *h) {
  *h = 0;
  for (int i = 0; i < CHECKSUM_TEXT - 1; i++) {
    char x = s[i];
    if (x >= '0' && x <= '9')
      *h = *h << 4 | (uint64_t)(x - '0');
    else if (x >= 'a' && x <= 'f')
      *h = *h << 4 | (uint64_t)(x - 'a' + 10);
    else
      return false;
  }
  return !s[CHECKSUM_TEXT - 1];
}
