/* packed_rows.c - whole documents packed into rows of equal length, in order: a document
 * that does not fit into the rest of a row begins the next one, as each does that is to
 * be alone. Rows are counted when the data is opened; the begin of only some of them is
 * kept, so that memory does not grow with the data, and the others are found by walking
 * on from those. A document that is to be alone and has no label gets no row: a loss that
 * is divided by rows or pairs would count it, as one of 0 or as one that is undecided. */
#include "source.h"

enum { MARKS = 1 << 16 };

size_t rows_bytes(void) { return MARKS * sizeof(int64_t); }

/* ---- pieces ---- documents, or row-sized parts of longer ones */

/* n: at most a row; 0 at the end of the data. */
typedef struct Piece {
  int64_t at, n;
  int64_t cut;               /* ids that were left out at its end */
  int64_t ndropped, dropped; /* documents that were left out before it; their ids */
  int64_t nbare, bare;       /* the same, because they have no label */
} Piece;

enum { WINDOW = 8192 }; /* of tokens whose labels are read at once */

typedef struct Pieces {
  Documents w;
  int64_t left; /* ids left of a document that is split */
  Piece second; /* of the pair whose first piece was the last one; n: 0: none is */
  int64_t window, nwindow; /* the tokens of `label`: the first, and how many */
  int32_t label[WINDOW];
} Pieces;

static weft_status too_long(const Data *d, int64_t at, int64_t n, weft_error *e) {
  char name[512];
  TextBuf t = textbuf(name, sizeof name);
  TRY(documents_name(d, at, at, &t, e));
  return err_set(e, WEFT_EPLAN,
                 "%s has %lld %s, more than packed.size = %lld; say packed = { ..., "
                 "too_long = \"split\" }, \"truncate\" or \"drop\"",
                 name, (long long)n, d->source->unit, (long long)d->seq);
}

static weft_status piece_take(Pieces *p, Piece *out, weft_error *e) {
  const Data *d = p->w.data;
  TooLong too = d->packed.too_long;
  int64_t n = p->left;
  *out = (Piece){0};
  while (n == 0) {
    TRY(documents_next(&p->w, &n, e));
    if (n == 0) return WEFT_OK;
    if (n > d->seq && too == TOO_LONG_ERROR) return too_long(d, p->w.at - n, n, e);
    if (n <= d->seq || too != TOO_LONG_DROP) continue;
    out->ndropped++;
    out->dropped += n;
    n = 0;
  }
  out->at = p->w.at - n;
  out->n = MIN(n, d->seq);
  p->left = too == TOO_LONG_TRUNCATE ? 0 : n - out->n;
  out->cut = n - out->n - p->left;
  return WEFT_OK;
}

/* Of an odd number of documents the last one has ended. The other of its pair is not in
 * the next file, whose documents would be taken for other pairs. */
static weft_status check_pair(const Data *d, int64_t end, weft_error *e) {
  const Part *p = stream_part(d, end - 1);
  if (end == d->end || end < p->first + p->n) return WEFT_OK;
  return err_file(e, WEFT_EFILE, p->file.path, 0,
                  "ends with the first document of a pair: a file has an even number of "
                  "documents, as the loss needs pairs");
}

/* Has p->label hold the token. A document of a few tokens lies in the window of the one
 * before: what is read of a mask is read and checked by blocks of many documents. */
static weft_status see_label(Pieces *p, int64_t at, weft_error *e) {
  const Data *d = p->w.data;
  if (at >= p->window && at < p->window + p->nwindow) return WEFT_OK;
  p->nwindow = 0;
  int64_t n = MIN(d->total - at, (int64_t)WINDOW);
  memset(p->label, 0, (size_t)n * sizeof *p->label);
  TRY(source_mask(d, at, n, p->label, e));
  p->window = at;
  p->nwindow = n;
  return WEFT_OK;
}

/* Whether there is a token that is learnt in the row of a piece, if that is alone there.
 */
static weft_status has_label(Pieces *p, const Piece *it, bool *has, weft_error *e) {
  const Data *d = p->w.data;
  int64_t end = it->at + it->n;
  *has = !d->packed.alone || (!d->masked && it->at + 1 < end);
  for (int64_t at = it->at + 1; !*has && d->masked && at < end; at++) {
    TRY(see_label(p, at, e));
    *has = p->label[at - p->window] != LABEL_IGNORED;
  }
  return WEFT_OK;
}

/* The other piece of a pair, which is left out if either has no label. */
static weft_status take_second(Pieces *p, bool *has, weft_error *e) {
  const Data *d = p->w.data;
  bool both;
  TRY(check_pair(d, p->w.at, e));
  TRY(piece_take(p, &p->second, e));
  if (p->second.n == 0) return WEFT_OK;
  TRY(has_label(p, &p->second, &both, e));
  *has &= both;
  return WEFT_OK;
}

static void leave_out(Piece *it, Piece *sum) {
  sum->nbare += it->n > 0;
  sum->bare += it->n + it->cut;
  it->n = it->cut = 0;
}

static weft_status piece_next(Pieces *p, Piece *out, weft_error *e) {
  const Data *d = p->w.data;
  Piece sum = {0};
  bool has = true;
  if (p->second.n) {
    *out = p->second;
    p->second = (Piece){0};
    return WEFT_OK;
  }
  for (;; leave_out(out, &sum), leave_out(&p->second, &sum)) {
    TRY(piece_take(p, out, e));
    sum.ndropped += out->ndropped;
    sum.dropped += out->dropped;
    if (out->n == 0) break;
    TRY(has_label(p, out, &has, e));
    if (d->packed.pairs) TRY(take_second(p, &has, e));
    if (has) break;
  }
  out->ndropped = sum.ndropped, out->dropped = sum.dropped;
  out->nbare = sum.nbare, out->bare = sum.bare;
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
  Piece it;
  int64_t room = 0;
  Rows *r = d->rows = NEW(d->arena, Rows);
  r->stride = 1;
  r->mark = mem_new(&d->alloc, rows_bytes());
  if (!r->mark) return err_set(e, WEFT_ENOMEM, "out of memory");
  if (d->packed.pairs) TRY(documents_none_empty(d, e));
  TRY(documents_begin(&p.w, d, d->begin, e));
  for (;;) {
    TRY(piece_next(&p, &it, e));
    r->ndropped += it.ndropped;
    r->dropped += it.dropped;
    r->nbare += it.nbare;
    r->bare += it.bare;
    r->ncut += it.cut > 0;
    r->cut += it.cut;
    if (it.n == 0) break;
    if (it.n > room || d->packed.alone) {
      add_row(r, it.at);
      room = d->seq;
    }
    room -= it.n;
    r->filled += it.n;
  }
  if (r->n) return WEFT_OK;
  if (r->nbare)
    return err_set(e, WEFT_EPLAN,
                   "no document of the data has a token that is learnt in its first %lld",
                   (long long)d->seq);
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
  return source_mask(d, at + 1, n - 1, labels + t, e);
}

/* Documents that are dropped count for the row that is filled when they come, those
 * before all rows for the first. */
weft_status rows_sample(const Data *d, int64_t k, int32_t *tokens, int32_t *labels,
                        DataCounts *counts, weft_error *e) {
  const Rows *r = d->rows;
  Pieces p = {.left = 0};
  Piece it;
  int64_t row = k / r->stride * r->stride, room = 0;
  DataCounts c = {0};
  if (d->packed.pairs) row -= row % 2;
  TRY(documents_begin(&p.w, d, row ? r->mark[row / r->stride] : d->begin, e));
  row--;
  for (;;) {
    TRY(piece_next(&p, &it, e));
    if (MAX(row, (int64_t)0) == k) c.dropped += it.dropped + it.bare;
    bool next = it.n > room || d->packed.alone;
    if (it.n == 0 || (next && row == k)) break;
    if (next) {
      row++;
      room = d->seq;
    }
    if (row == k && tokens) TRY(put(d, it.at, it.n, d->seq - room, tokens, labels, e));
    if (row == k && room == d->seq) c.first = it.at;
    if (row == k) c.last = it.at + it.n - 1;
    if (row == k) c.dropped += it.cut;
    room -= it.n;
  }
  c.padded = room;
  if (counts) *counts = c;
  for (int64_t t = d->seq - room; tokens && t < d->seq; t++) {
    tokens[t] = d->packed.separated ? d->packed.separator : 0;
    labels[t] = LABEL_DOCUMENT_END;
  }
  return WEFT_OK;
}
