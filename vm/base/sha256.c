/* sha256.c - SHA-256 (FIPS 180-4) and HMAC (RFC 2104). */
#include "sha256.h"

#include <string.h>

static const uint32_t k[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4,
    0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe,
    0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f,
    0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7,
    0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc,
    0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
    0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116,
    0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
    0xc67178f2};

static uint32_t turn(uint32_t x, int n) { return x >> n | x << (32 - n); }

static void expand(const uint8_t *p, uint32_t w[64]) {
  for (int i = 0; i < 16; i++)
    w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 |
           (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
  for (int i = 16; i < 64; i++) {
    uint32_t a = turn(w[i - 15], 7) ^ turn(w[i - 15], 18) ^ w[i - 15] >> 3;
    uint32_t b = turn(w[i - 2], 17) ^ turn(w[i - 2], 19) ^ w[i - 2] >> 10;
    w[i] = w[i - 16] + a + w[i - 7] + b;
  }
}

static void mix(uint32_t h[8], const uint8_t *p) {
  uint32_t w[64], v[8];
  expand(p, w);
  memcpy(v, h, sizeof v);
  for (int i = 0; i < 64; i++) {
    uint32_t a = v[0], e = v[4];
    uint32_t t = v[7] + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) +
                 ((e & v[5]) ^ (~e & v[6])) + k[i] + w[i];
    uint32_t u = (turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) +
                 ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
    memmove(v + 1, v, 7 * sizeof *v);
    v[4] += t;
    v[0] = t + u;
  }
  for (int i = 0; i < 8; i++) h[i] += v[i];
}

void sha256_begin(Sha256 *s) {
  *s = (Sha256){.h = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f,
                      0x9b05688c, 0x1f83d9ab, 0x5be0cd19}};
}

void sha256_add(Sha256 *s, const void *p, size_t n) {
  const uint8_t *from = p;
  while (n > 0) {
    size_t at = s->n % SHA256_BLOCK, some = SHA256_BLOCK - at;
    if (some > n) some = n;
    memcpy(s->block + at, from, some);
    s->n += some;
    from += some;
    n -= some;
    if (at + some == SHA256_BLOCK) mix(s->h, s->block);
  }
}

void sha256_end(Sha256 *s, uint8_t out[SHA256_BYTES]) {
  uint64_t bits = 8 * s->n;
  uint8_t one = 0x80, zero = 0, length[8];
  sha256_add(s, &one, 1);
  while (s->n % SHA256_BLOCK != SHA256_BLOCK - sizeof length) sha256_add(s, &zero, 1);
  for (int i = 0; i < 8; i++) length[i] = (uint8_t)(bits >> (56 - 8 * i));
  sha256_add(s, length, sizeof length);
  for (int i = 0; i < SHA256_BYTES; i++)
    out[i] = (uint8_t)(s->h[i / 4] >> (24 - 8 * (i % 4)));
}

void sha256_hmac(const void *key, size_t nkey, const void *p, size_t n,
                 uint8_t out[SHA256_BYTES]) {
  uint8_t pad[2][SHA256_BLOCK] = {{0}};
  Sha256 s;
  sha256_begin(&s);
  if (nkey > SHA256_BLOCK) {
    sha256_add(&s, key, nkey);
    sha256_end(&s, pad[0]);
  } else if (nkey) {
    memcpy(pad[0], key, nkey);
  }
  for (int i = 0; i < SHA256_BLOCK; i++) {
    pad[1][i] = pad[0][i] ^ 0x5c;
    pad[0][i] ^= 0x36;
  }
  sha256_begin(&s);
  sha256_add(&s, pad[0], SHA256_BLOCK);
  sha256_add(&s, p, n);
  sha256_end(&s, out);
  sha256_begin(&s);
  sha256_add(&s, pad[1], SHA256_BLOCK);
  sha256_add(&s, out, SHA256_BYTES);
  sha256_end(&s, out);
}

int sha256_same(const uint8_t *a, const uint8_t *b) {
  int different = 0;
  for (int i = 0; i < SHA256_BYTES; i++) different |= a[i] ^ b[i];
  return different == 0;
}
