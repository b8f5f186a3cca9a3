/* sha256.h - SHA-256 and HMAC-SHA-256, by which processes prove that they share a
 * secret. */
#ifndef WEFT_SHA256_H
#define WEFT_SHA256_H

#include <stddef.h>
#include <stdint.h>

enum { SHA256_BYTES = 32, SHA256_BLOCK = 64 };

typedef struct Sha256 {
  uint32_t h[8];
  uint64_t n;                  /* bytes so far */
  uint8_t block[SHA256_BLOCK]; /* the last n % SHA256_BLOCK of them, not yet hashed */
} Sha256;

void sha256_begin(Sha256 *s);
void sha256_add(Sha256 *s, const void *p, size_t n);
void sha256_end(Sha256 *s, uint8_t out[SHA256_BYTES]);
void sha256_hmac(const void *key, size_t nkey, const void *p, size_t n,
                 uint8_t out[SHA256_BYTES]);
/* Constant time. */
int sha256_same(const uint8_t *a, const uint8_t *b);

#endif
