/* ckpt_hash.c - XXH3 checksums as numbers and as strings. */
#include "ckpt_hash.h"

#include <stdio.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t ckpt_hash(const void *p, size_t n) { return XXH3_64bits(p, n); }

const char *hash_text(uint64_t h, char out[HASH_TEXT]) {
  snprintf(out, HASH_TEXT, "%016llx", (unsigned long long)h);
  return out;
}

bool hash_parse(const char *s, uint64_t *h) {
  *h = 0;
  for (int i = 0; i < HASH_TEXT - 1; i++) {
    char x = s[i];
    if (x >= '0' && x <= '9')
      *h = *h << 4 | (uint64_t)(x - '0');
    else if (x >= 'a' && x <= 'f')
      *h = *h << 4 | (uint64_t)(x - 'a' + 10);
    else
      return false;
  }
  return !s[HASH_TEXT - 1];
}
