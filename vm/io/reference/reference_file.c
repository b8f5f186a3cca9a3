/* reference_file.c - see reference_file.h. */
#include "reference_file.h"

#include <math.h>

#include "vm/base/rng.h"
#include "vm/base/sha256.h"

#define FAIL(path, ...) return err_file(e, WEFT_EFILE, (path), 0, __VA_ARGS__)
#define AGAIN           "make it again: weft eval PLAN --reference"

enum { VERSION = 1, HEAD = 64, ROW = 8 };
static const char magic[9] = "WEFTREFL";

/* The header's integers; the last is the hash of what is before it. */
enum { AT_VERSION = 8, AT_MODEL = 16, AT_SEQ = 24, AT_N = 32, AT_HASH = 56 };

static uint64_t get(const unsigned char *p, int bytes) {
  uint64_t x = 0;
  for (int i = bytes; i-- > 0;) x = x << 8 | p[i];
  return x;
}

static void put(unsigned char *p, int bytes, uint64_t x) {
  for (int i = 0; i < bytes; i++, x >>= 8) p[i] = (unsigned char)x;
}

static uint64_t head_hash(const unsigned char *head) {
  uint8_t all[SHA256_BYTES];
  Sha256 s;
  sha256_begin(&s);
  sha256_add(&s, head, AT_HASH);
  sha256_end(&s, all);
  return get(all, 8);
}

static uint32_t row_check(const unsigned char loss[4], const int32_t *tokens,
                          const int32_t *labels, int64_t seq) {
  uint64_t h = hash_bytes(0, loss, 4);
  h = hash_bytes(h, tokens, (size_t)seq * sizeof *tokens);
  h = hash_bytes(h, labels, (size_t)seq * sizeof *labels);
  return (uint32_t)(h ^ h >> 32);
}

/* ---- writing ---- */

weft_status reference_create(const char *path, const ReferenceHead *h, ReferenceOut *out,
                             weft_error *e) {
  unsigned char head[HEAD] = {0};
  *out = (ReferenceOut){.seq = h->seq, .n = {h->n[0], h->n[1]}};
  TRY(file_create(NULL, path, 0, &out->out, e));
  memcpy(head, magic, 8);
  put(head + AT_VERSION, 8, VERSION);
  put(head + AT_MODEL, 8, h->model);
  put(head + AT_SEQ, 8, (uint64_t)h->seq);
  for (int i = 0; i < 2; i++) put(head + AT_N + 8 * i, 8, (uint64_t)h->n[i]);
  put(head + AT_HASH, 8, head_hash(head));
  weft_status st = file_put(&out->out, 0, head, sizeof head, e);
  if (st != WEFT_OK) file_drop(&out->out);
  return st;
}

weft_status reference_put(ReferenceOut *o, float loss, const int32_t *tokens,
                          const int32_t *labels, weft_error *e) {
  unsigned char row[ROW];
  uint32_t bits;
  memcpy(&bits, &loss, sizeof bits);
  put(row, 4, bits);
  put(row + 4, 4, row_check(row, tokens, labels, o->seq));
  return file_put(&o->out, HEAD + ROW * (uint64_t)o->put++, row, sizeof row, e);
}

weft_status reference_finish(ReferenceOut *o, weft_error *e) {
  assert(o->put == o->n[0] + o->n[1]);
  return file_finish(&o->out, e);
}

void reference_drop(ReferenceOut *o) { file_drop(&o->out); }

/* ---- reading ---- */

static weft_status check_head(ReferenceFile *r, weft_error *e) {
  const char *path = r->file.path;
  unsigned char head[HEAD];
  if (r->file.size < HEAD)
    FAIL(path, "has %llu bytes, less than its header; " AGAIN,
         (unsigned long long)r->file.size);
  TRY(file_at(&r->file, 0, head, sizeof head, e));
  if (memcmp(head, magic, 8) != 0)
    FAIL(path, "has no losses of a reference: it does not begin with %s", magic);
  if (get(head + AT_VERSION, 8) != VERSION)
    FAIL(path, "losses of version %llu; version %d is supported",
         (unsigned long long)get(head + AT_VERSION, 8), VERSION);
  if (get(head + AT_HASH, 8) != head_hash(head))
    FAIL(path, "is damaged: its header does not have the checksum that it says");
  r->head.model = get(head + AT_MODEL, 8);
  r->head.seq = (int64_t)get(head + AT_SEQ, 8);
  uint64_t rows = 0;
  for (int i = 0; i < 2; i++) {
    r->head.n[i] = (int64_t)get(head + AT_N + 8 * i, 8);
    if (r->head.n[i] < 0 || r->head.n[i] > INT64_MAX / 64)
      FAIL(path, "says %lld sequences", (long long)r->head.n[i]);
    rows += (uint64_t)r->head.n[i];
  }
  if (r->file.size != HEAD + ROW * rows)
    FAIL(path, "has %llu bytes; losses of %llu sequences have %llu; " AGAIN,
         (unsigned long long)r->file.size, (unsigned long long)rows,
         (unsigned long long)(HEAD + ROW * rows));
  return WEFT_OK;
}

static weft_status check_use(const ReferenceFile *r, uint64_t model, int64_t seq,
                             bool val, int64_t n, weft_error *e) {
  const char *path = r->file.path;
  if (r->head.model != model)
    FAIL(
        path,
        "has the losses of another model than the one that the plan begins with; " AGAIN);
  if (r->head.seq != seq)
    FAIL(path, "is of sequences of %lld tokens, the plan's have %lld; " AGAIN,
         (long long)r->head.seq, (long long)seq);
  if (r->head.n[val] != n)
    FAIL(path, "has the losses of %lld sequences for %s, and the data have %lld; " AGAIN,
         (long long)r->head.n[val], val ? "validation" : "training", (long long)n);
  return WEFT_OK;
}

weft_status reference_open(const char *path, uint64_t model, int64_t seq, bool val,
                           int64_t n, ReferenceFile *out, weft_error *e) {
  *out = (ReferenceFile){.file.fd = -1};
  TRY(file_open(path, &out->file, e));
  weft_status st = check_head(out, e);
  if (st == WEFT_OK) st = check_use(out, model, seq, val, n, e);
  if (st != WEFT_OK) file_close(&out->file), *out = (ReferenceFile){.file.fd = -1};
  return st;
}

weft_status reference_read(const ReferenceFile *r, bool val, int64_t k,
                           const int32_t *tokens, const int32_t *labels, float *loss,
                           weft_error *e) {
  unsigned char row[ROW];
  assert(k >= 0 && k < r->head.n[val]);
  uint64_t at = (uint64_t)(k + (val ? r->head.n[0] : 0));
  TRY(file_at(&r->file, HEAD + ROW * at, row, sizeof row, e));
  if (get(row + 4, 4) != row_check(row, tokens, labels, r->head.seq))
    FAIL(r->file.path,
         "the loss of %s sequence %lld is of other tokens, or damaged; " AGAIN,
         val ? "validation" : "training", (long long)k);
  uint32_t bits = (uint32_t)get(row, 4);
  memcpy(loss, &bits, sizeof *loss);
  return WEFT_OK;
}

float reference_made_up(const int32_t *labels, int64_t seq, int64_t vocab, uint64_t seed,
                        uint64_t number) {
  Rng rng = rng_make(seed, "data.reference");
  double n = 0, part = rng_u32(&rng, number) / 4294967296.0;
  for (int64_t i = 0; i < seq; i++) n += labels[i] >= 0;
  return (float)(n * log((double)vocab) * (0.95 + 0.1 * part));
}
