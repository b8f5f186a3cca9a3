/* packed_rows.c - whole documents packed into rows of equal length, in order: a document
 * that does not fit into the rest of a row begins the next one. Rows are counted when the
 * data is opened; the begin of only some of them is kept, so that memory does not grow
 * with the data, and the others are found by walking on from those. */
#include "source.h"

enum { MARKS = 1 << 16 };

size_t rows_bytes(void) { return MARKS * sizeof(int64_t); }

/* ---- pieces ---- documents, or row-sized parts of longer ones */

typedef struct Pieces {
  Documents w;
  int64_t left; /* ids left of a document that is split */
} Pieces;

static weft_status too_long(const Data *d, int64_t at, int64_t n, weft_error *e) {
  return err_set(e, WEFT_EPLAN,
                 "the document at offset %lld of the data has %lld %s, more than "
                 "packed.size = %lld; say packed = { ..., too_long = \"split\" } or "
                 "\"drop\"",
                 (long long)at, (long long)n, d->source->unit, (long long)d->seq);
}

/* A piece has at most a row; n = 0 at the end of the data. */
static weft_status piece_next(Pieces *p, int64_t *at, int64_t *n, weft_error *e) {
  const Data *d = p->w.data;
  while (p->left == 0) {
    TRY(documents_next(&p->w, &p->left, e));
    *n = p->left;
    if (*n == 0) return WEFT_OK;
    if (*n > d->seq && d->packed.too_long == TOO_LONG_ERROR)
      return too_long(d, p->w.at - *n, *n, e);
    if (*n > d->seq && d->packed.too_long == TOO_LONG_DROP) p->left = 0;
  }
  *at = p->w.at - p->left;
  *n = MIN(p->left, d->seq);
  p->left -= *n;
  return WEFT_OK;
}

/* ---- marks ---- where every stride-th row begins */

/* Row r->n begins at `at`. When the marks are full, every second one is dropped. */
static void add_row(Rows *r, int64_t at) {
  if (r->n / r->stride == MARKS) {
    for (int i = 0; i < MARKS / 2; i++) r->mark[i] = r->mark[2 * i];
    r->stride *= 2;
  }
  if (r->n % r->stride == 0) r->mark[r->n / r->stride] = at;
  r->n++;
}

weft_status rows_open(Data *d, weft_error *e) {
  Pieces p = {.left = 0};
  int64_t room = 0, at, n;
  Rows *r = d->rows = NEW(d->arena, Rows);
  r->stride = 1;
  r->mark = mem_new(&d->alloc, rows_bytes());
  if (!r->mark) return err_set(e, WEFT_ENOMEM, "out of memory");
  TRY(documents_begin(&p.w, d, d->begin, e));
  for (;;) {
    TRY(piece_next(&p, &at, &n, e));
    if (n == 0) break;
    if (n > room) {
      add_row(r, at);
      room = d->seq;
    }
    room -= n;
    r->filled += n;
  }
  if (r->n) return WEFT_OK;
  return err_set(e, WEFT_EPLAN, "no document of the data fits into packed.size = %lld",
                 (long long)d->seq);
}

void rows_close(const weft_alloc *a, Rows *r) { mem_free(a, r->mark, rows_bytes()); }

/* ---- reading ---- */

/* Copies a document to position t of the row. */
static weft_status put(const Data *d, int64_t at, int64_t n, int64_t t, int32_t *tokens,
                       int32_t *labels, weft_error *e) {
  TRY(d->source->ids(d, at, n, tokens + t, e));
  memcpy(labels + t, tokens + t + 1, (size_t)(n - 1) * sizeof *labels);
  labels[t + n - 1] = LABEL_DOCUMENT_END;
  return WEFT_OK;
}

weft_status rows_sample(const Data *d, int64_t k, int32_t *tokens, int32_t *labels,
                        weft_error *e) {
  const Rows *r = d->rows;
  Pieces p = {.left = 0};
  int64_t row = k / r->stride * r->stride - 1, room = 0, at, n;
  TRY(documents_begin(&p.w, d, r->mark[k / r->stride], e));
  for (;;) {
    TRY(piece_next(&p, &at, &n, e));
    if (n == 0 || (n > room && row == k)) break;
    if (n > room) {
      row++;
      room = d->seq;
    }
    if (row == k) TRY(put(d, at, n, d->seq - room, tokens, labels, e));
    room -= n;
  }
  for (int64_t t = d->seq - room; t < d->seq; t++) {
    tokens[t] = d->packed.separated ? d->packed.separator : 0;
    labels[t] = LABEL_DOCUMENT_END;
  }
  return WEFT_OK;
}
