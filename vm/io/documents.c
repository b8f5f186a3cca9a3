/* documents.c - where documents end: by the index of a part that has one, else at
 * separators. */
#include "source.h"

/* The first document of a part that begins after `at`; p->documents: none. */
static weft_status document_after(const Part *p, int64_t at, int64_t *k, weft_error *e) {
  int64_t lo = 0, hi = p->documents, first;
  while (lo < hi) {
    int64_t mid = lo + (hi - lo) / 2;
    TRY(megatron_documents(p, mid, 1, &first, e));
    if (first > at)
      hi = mid;
    else
      lo = mid + 1;
  }
  *k = lo;
  return WEFT_OK;
}

/* Sets the range in which ends are found the same way: a part with an index, or
 * consecutive parts without one. */
static weft_status enter(Documents *w, weft_error *e) {
  const Data *d = w->data;
  const Part *p = stream_part(d, w->at);
  w->indexed = p->index.path ? p : NULL;
  w->known = w->nknown = 0;
  if (w->indexed) {
    w->limit = MIN(p->first + p->n, d->end);
    return document_after(p, w->at - p->first, &w->next, e);
  }
  const Part *end = d->part + d->nparts;
  while (p < end && !p->index.path) p++;
  w->limit = p < end ? MIN(p->first, d->end) : d->end;
  return WEFT_OK;
}

weft_status documents_begin(Documents *w, const Data *d, int64_t at, weft_error *e) {
  w->data = d;
  w->at = at;
  w->read = w->nread = 0;
  w->limit = 0;
  return at < d->end ? enter(w, e) : WEFT_OK;
}

/* The next document begin in the index. */
static weft_status indexed_end(Documents *w, int64_t *end, weft_error *e) {
  const Part *p = w->indexed;
  for (*end = w->at; *end <= w->at && *end < w->limit;) {
    if (w->known == w->nknown) {
      w->nknown = (int)MIN(p->documents + 1 - w->next, (int64_t)LEN(w->first));
      w->known = 0;
      if (w->nknown == 0) break;
      TRY(megatron_documents(p, w->next, w->nknown, w->first, e));
      w->next += w->nknown;
    }
    *end = p->first + w->first[w->known++];
  }
  if (*end <= w->at || *end > w->limit) *end = w->limit;
  return WEFT_OK;
}

/* After the next separator that ends a document, or at the next one that begins one. */
static weft_status separated_end(Documents *w, int64_t *end, weft_error *e) {
  const Packed *p = &w->data->packed;
  for (int64_t at = w->at; at < w->limit; at++) {
    if (at < w->read || at >= w->read + w->nread) {
      w->read = at;
      w->nread = MIN(w->limit - at, (int64_t)LEN(w->id));
      TRY(w->data->source->ids(w->data, at, w->nread, w->id, e));
    }
    if (w->id[at - w->read] != p->separator || (p->first && at == w->at)) continue;
    *end = p->first ? at : at + 1;
    return WEFT_OK;
  }
  *end = w->limit;
  return WEFT_OK;
}

weft_status documents_next(Documents *w, int64_t *n, weft_error *e) {
  int64_t end;
  *n = 0;
  if (w->at >= w->data->end) return WEFT_OK;
  if (w->at >= w->limit) TRY(enter(w, e));
  TRY(w->indexed ? indexed_end(w, &end, e) : separated_end(w, &end, e));
  *n = end - w->at;
  w->at = end;
  return WEFT_OK;
}

weft_status documents_none_empty(const Data *d, weft_error *e) {
  int64_t first[256];
  for (int i = 0; i < d->nparts; i++) {
    const Part *p = &d->part[i];
    int64_t n = 0, all = p->index.path ? p->documents + 1 : 0;
    for (int64_t k = 0; k + 1 < all; k += n - 1) {
      n = MIN(all - k, (int64_t)LEN(first));
      TRY(megatron_documents(p, k, n, first, e));
      for (int64_t j = 1; j < n; j++)
        if (first[j] <= first[j - 1])
          return err_file(e, WEFT_EFILE, p->index.path, 0,
                          "document %lld is empty, and without it those behind it would "
                          "be other pairs",
                          (long long)(k + j - 1));
    }
  }
  return WEFT_OK;
}

weft_status documents_name(const Data *d, int64_t at, int64_t last, TextBuf *t,
                           weft_error *e) {
  const Part *p = stream_part(d, at);
  int64_t k, end, in = at - p->first;
  if (!p->index.path) {
    textbuf_printf(t, "what begins with %s %lld of %s", d->source->id, (long long)in,
                   p->file.path);
    return WEFT_OK;
  }
  TRY(document_after(p, in, &k, e));
  TRY(document_after(p, MIN(last - p->first, p->n - 1), &end, e));
  if (end > k)
    textbuf_printf(t, "documents %lld to %lld of %s", (long long)k - 1,
                   (long long)end - 1, p->file.path);
  else
    textbuf_printf(t, "document %lld of %s", (long long)k - 1, p->file.path);
  return WEFT_OK;
}
