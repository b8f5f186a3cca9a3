/* token_mask.c - mask files: a header, the bits of all tokens, and a checksum for each
 * block of them, so that a block is checked when it is read and opening takes no longer
 * for a longer file. */
#include "token_mask.h"

#include <stdio.h>

#include "vm/base/sha256.h"

#define FAIL(path, ...) return err_file(e, WEFT_EFILE, (path), 0, __VA_ARGS__)

enum {
  VERSION = 1,
  HEAD = 64,
  BLOCK = 4096,        /* bytes of bits with one checksum */
  SAMPLES = 64,        /* blocks of the .bin that its hash covers */
  MASK_MOST = 1 << 30, /* blocks: more tokens than any .bin has */
  BLOCK_TOKENS = 8 * BLOCK,
};
static const char magic[9] = "WEFTMASK";

/* The header's integers, little-endian at these offsets; the last is the hash of what is
 * before it. */
enum {
  AT_VERSION = 8,
  AT_TOKENS = 16,
  AT_LEARNT = 24,
  AT_BIN_BYTES = 32,
  AT_BIN_HASH = 40,
  AT_HASH = 56
};

static uint64_t get64(const unsigned char *p) {
  uint64_t x = 0;
  for (int i = 8; i-- > 0;) x = x << 8 | p[i];
  return x;
}

static void put64(unsigned char *p, uint64_t x) {
  for (int i = 0; i < 8; i++, x >>= 8) p[i] = (unsigned char)x;
}

/* The first 8 bytes of a SHA-256. */
static uint64_t hash_end(Sha256 *s) {
  uint8_t all[SHA256_BYTES];
  sha256_end(s, all);
  return get64(all);
}

static uint64_t hash_of(const void *p, size_t n) {
  Sha256 s;
  sha256_begin(&s);
  sha256_add(&s, p, n);
  return hash_end(&s);
}

static uint64_t bytes_of(int64_t tokens) { return ((uint64_t)tokens + 7) / 8; }

static uint64_t blocks_of(int64_t tokens) {
  return (bytes_of(tokens) + BLOCK - 1) / BLOCK;
}

/* Of a whole .bin that has at most SAMPLES blocks; of a longer one, of so many of its
 * blocks at equal distances, the first and the last among them. */
static weft_status hash_bin(const File *bin, uint64_t *hash, weft_error *e) {
  unsigned char block[BLOCK];
  uint64_t n = bin->size, most = (uint64_t)SAMPLES * BLOCK;
  Sha256 s;
  sha256_begin(&s);
  for (uint64_t i = 0; i < SAMPLES; i++) {
    uint64_t at = n <= most ? i * BLOCK : (n - BLOCK) / (SAMPLES - 1) * i;
    if (n > most && i == SAMPLES - 1) at = n - BLOCK;
    if (at >= n) break;
    size_t k = (size_t)MIN(n - at, (uint64_t)BLOCK);
    TRY(file_at(bin, at, block, k, e));
    sha256_add(&s, block, k);
  }
  *hash = hash_end(&s);
  return WEFT_OK;
}

/* ---- writing ---- */

struct TokenMaskOut {
  weft_alloc alloc;
  FileOut out;
  int64_t tokens, learnt;
  uint64_t *hash; /* of the blocks that are written */
  size_t nhash, room;
  unsigned char block[BLOCK]; /* the bits that are not */
};

weft_status token_mask_create(const weft_alloc *a, const Dir *in, const char *name,
                              bool only_new, TokenMaskOut **out, weft_error *e) {
  *out = NULL;
  TokenMaskOut *m = mem_new(a, sizeof *m);
  if (!m) return err_file(e, WEFT_ENOMEM, name, 0, "out of memory");
  if (a) m->alloc = *a;
  weft_status st = only_new ? file_create_new(in, name, &m->out, e)
                            : file_create(in, name, 0, &m->out, e);
  if (st != WEFT_OK)
    mem_free(a, m, sizeof *m);
  else
    *out = m;
  return st;
}

void token_mask_drop(TokenMaskOut *m) {
  if (!m) return;
  weft_alloc a = m->alloc;
  file_drop(&m->out);
  mem_free(&a, m->hash, m->room * sizeof *m->hash);
  mem_free(&a, m, sizeof *m);
}

static weft_status put_block(TokenMaskOut *m, weft_error *e) {
  size_t n = (size_t)(bytes_of(m->tokens) - m->nhash * BLOCK);
  if (m->nhash == m->room) {
    size_t more = MAX(2 * m->room, (size_t)64);
    uint64_t *hash =
        mem_resize(&m->alloc, m->hash, m->room * sizeof *hash, more * sizeof *hash);
    if (!hash) return err_file(e, WEFT_ENOMEM, m->out.name, 0, "out of memory");
    m->hash = hash;
    m->room = more;
  }
  TRY(file_put(&m->out, HEAD + (uint64_t)m->nhash * BLOCK, m->block, n, e));
  put64((unsigned char *)&m->hash[m->nhash++], hash_of(m->block, n));
  memset(m->block, 0, sizeof m->block);
  return WEFT_OK;
}

weft_status token_mask_add(TokenMaskOut *m, const uint8_t *learnt, size_t n,
                           weft_error *e) {
  for (size_t i = 0; i < n; i++) {
    int64_t at = m->tokens % BLOCK_TOKENS;
    if (learnt[i]) m->block[at / 8] |= (unsigned char)(1 << at % 8);
    m->learnt += learnt[i] != 0;
    if (++m->tokens % BLOCK_TOKENS == 0) TRY(put_block(m, e));
  }
  return WEFT_OK;
}

static weft_status put_end(TokenMaskOut *m, const File *bin, weft_error *e) {
  unsigned char head[HEAD] = {0};
  uint64_t hash;
  if (m->tokens % BLOCK_TOKENS) TRY(put_block(m, e));
  TRY(hash_bin(bin, &hash, e));
  memcpy(head, magic, 8);
  put64(head + AT_VERSION, VERSION);
  put64(head + AT_TOKENS, (uint64_t)m->tokens);
  put64(head + AT_LEARNT, (uint64_t)m->learnt);
  put64(head + AT_BIN_BYTES, bin->size);
  put64(head + AT_BIN_HASH, hash);
  put64(head + AT_HASH, hash_of(head, AT_HASH));
  TRY(file_put(&m->out, 0, head, sizeof head, e));
  return file_put(&m->out, HEAD + bytes_of(m->tokens), m->hash,
                  m->nhash * sizeof *m->hash, e);
}

weft_status token_mask_finish(TokenMaskOut *m, const FileOut *bin, weft_error *e) {
  File read;
  const Dir *in = bin->in ? bin->in : &bin->own;
  weft_status st = file_open_in(in, bin->temporary.s, &read, e);
  if (st == WEFT_OK) {
    st = put_end(m, &read, e);
    file_close(&read);
  }
  if (st == WEFT_OK) st = file_finish(&m->out, e);
  token_mask_drop(m);
  return st;
}

/* ---- reading ---- */

const char *token_mask_of(Arena *a, const char *path) {
  size_t n = strlen(path);
  if (n < 4 || strcmp(path + n - 4, ".bin") != 0) return NULL;
  return arena_printf(a, "%.*s.mask", (int)(n - 4), path);
}

static weft_status check_head(TokenMask *m, const unsigned char *head, weft_error *e) {
  const char *path = m->file.path;
  uint64_t tokens = get64(head + AT_TOKENS), learnt = get64(head + AT_LEARNT);
  if (memcmp(head, magic, 8) != 0)
    FAIL(path, "is no mask of tokens: it does not begin with %s", magic);
  if (get64(head + AT_VERSION) != VERSION)
    FAIL(path, "mask of version %llu; version %d is supported",
         (unsigned long long)get64(head + AT_VERSION), VERSION);
  if (get64(head + AT_HASH) != hash_of(head, AT_HASH))
    FAIL(path, "is damaged: its header does not have the checksum that it says");
  if (tokens > (uint64_t)MASK_MOST * BLOCK_TOKENS || learnt > tokens)
    FAIL(path, "says %llu tokens, of which %llu are learnt", (unsigned long long)tokens,
         (unsigned long long)learnt);
  m->tokens = (int64_t)tokens;
  m->learnt = (int64_t)learnt;
  uint64_t want = HEAD + bytes_of(m->tokens) + 8 * blocks_of(m->tokens);
  if (m->file.size != want)
    FAIL(path, "has %llu bytes; a mask of %llu tokens has %llu",
         (unsigned long long)m->file.size, (unsigned long long)tokens,
         (unsigned long long)want);
  return WEFT_OK;
}

/* Checks that the mask was made for this .bin. */
static weft_status check_bin(const TokenMask *m, const unsigned char *head,
                             const File *bin, int64_t tokens, weft_error *e) {
  uint64_t hash;
  if (m->tokens != tokens || get64(head + AT_BIN_BYTES) != bin->size)
    FAIL(m->file.path,
         "is the mask of %lld tokens in %llu bytes, but %s has %lld in %llu; make both "
         "again",
         (long long)m->tokens, (unsigned long long)get64(head + AT_BIN_BYTES), bin->path,
         (long long)tokens, (unsigned long long)bin->size);
  TRY(hash_bin(bin, &hash, e));
  if (get64(head + AT_BIN_HASH) != hash)
    FAIL(m->file.path, "is the mask of other tokens than those in %s; make both again",
         bin->path);
  return WEFT_OK;
}

static weft_status open_checked(TokenMask *m, const File *bin, int64_t tokens,
                                weft_error *e) {
  unsigned char head[HEAD];
  if (m->file.size < HEAD)
    FAIL(m->file.path, "has %llu bytes, less than its header",
         (unsigned long long)m->file.size);
  TRY(file_at(&m->file, 0, head, sizeof head, e));
  TRY(check_head(m, head, e));
  return check_bin(m, head, bin, tokens, e);
}

weft_status token_mask_open(const char *path, const File *bin, int64_t tokens,
                            TokenMask *out, weft_error *e) {
  *out = (TokenMask){.file.fd = -1};
  TRY(file_open(path, &out->file, e));
  weft_status st = open_checked(out, bin, tokens, e);
  if (st != WEFT_OK) file_close(&out->file);
  return st;
}

/* Block k, checked; *n is its bytes. */
static weft_status read_block(const TokenMask *m, uint64_t k, unsigned char *block,
                              weft_error *e) {
  unsigned char hash[8];
  uint64_t all = bytes_of(m->tokens);
  size_t n = (size_t)MIN(all - k * BLOCK, (uint64_t)BLOCK);
  TRY(file_at(&m->file, HEAD + k * BLOCK, block, n, e));
  TRY(file_at(&m->file, HEAD + all + 8 * k, hash, sizeof hash, e));
  if (get64(hash) != hash_of(block, n))
    FAIL(m->file.path,
         "is damaged: the bits of tokens %llu to %llu do not have the checksum that it "
         "says",
         (unsigned long long)(k * BLOCK_TOKENS),
         (unsigned long long)(MIN((k + 1) * BLOCK_TOKENS, (uint64_t)m->tokens) - 1));
  return WEFT_OK;
}

weft_status token_mask_read(const TokenMask *m, int64_t at, int64_t n, uint8_t *learnt,
                            weft_error *e) {
  unsigned char block[BLOCK];
  assert(at >= 0 && n >= 0 && n <= m->tokens - at);
  while (n > 0) {
    int64_t first = at % BLOCK_TOKENS, some = MIN(n, BLOCK_TOKENS - first);
    TRY(read_block(m, (uint64_t)(at / BLOCK_TOKENS), block, e));
    for (int64_t i = first; i < first + some; i++) *learnt++ = block[i / 8] >> i % 8 & 1;
    at += some;
    n -= some;
  }
  return WEFT_OK;
}
