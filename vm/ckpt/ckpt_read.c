/* ckpt_read.c - assembles a piece from the pieces in the files, of any meshes. Both are
 * lists of spans in ascending order of the whole tensor, so reading is a merge. */
#include <stdio.h>

#include "ckpt.h"
#include "vm/base/bf16.h"
#include "vm/base/f16.h"

weft_status ckpt_read_begin(const Ckpt *c, CkptRead *r, weft_error *e) {
  *r = (CkptRead){.c = c, .block = mem_new(NULL, CKPT_BLOCK)};
  return r->block ? WEFT_OK : err_set(e, WEFT_ENOMEM, "out of memory");
}

void ckpt_read_end(CkptRead *r) {
  if (r->block) mem_free(NULL, r->block, CKPT_BLOCK);
  *r = (CkptRead){0};
}

/* ---- verified blocks ---- */

/* Reads and verifies the block with byte `at` of the tensor. */
static weft_status load_block(CkptRead *r, const CkptPiece *p, uint64_t at,
                              weft_error *e) {
  uint64_t begin = at / CKPT_BLOCK * CKPT_BLOCK, n = MIN(p->bytes - begin, CKPT_BLOCK);
  const File *f = &r->c->file[p->file];
  char name[200];
  if (r->in == p && r->at == begin) return WEFT_OK;
  if (r->stop && *r->stop) return err_set(e, WEFT_EINTR, "interrupted");
  r->in = NULL;
  TRY(file_at(f, p->at + begin, r->block, (size_t)n, e));
  if (checksum(r->block, (size_t)n) != p->block[begin / CKPT_BLOCK])
    return err_file(
        e, WEFT_EFILE, f->path, 0,
        "tensor \"%s\" is damaged: its bytes %llu to %llu do not match their checksum",
        ckpt_tensor_name(r->c, p, name, sizeof name), (unsigned long long)begin,
        (unsigned long long)(begin + n - 1));
  r->in = p;
  r->at = begin;
  r->read += n;
  return WEFT_OK;
}

static void widen(DType t, const char *from, int64_t n, float *restrict to) {
  const uint16_t *half = (const uint16_t *)from;
  if (t == DT_F32)
    memcpy(to, from, (size_t)n * sizeof *to);
  else if (t == DT_U8)
    for (int64_t i = 0; i < n; i++) to[i] = (unsigned char)from[i];
  else if (t == DT_BF16)
    for (int64_t i = 0; i < n; i++) to[i] = bf16_to_f32(half[i]);
  else
    for (int64_t i = 0; i < n; i++) to[i] = f16_to_f32(half[i]);
}

/* Copies elements [at, at + n) of a piece in a file. */
static weft_status copy_out(CkptRead *r, const CkptPiece *p, int64_t at, int64_t n,
                            float *to, weft_error *e) {
  int64_t size = dtype_size(p->dtype), each = CKPT_BLOCK / size;
  for (int64_t some; n > 0; at += some, to += some, n -= some) {
    some = MIN(n, each - at % each);
    TRY(load_block(r, p, (uint64_t)(at * size), e));
    widen(p->dtype, r->block + at % each * size, some, to);
  }
  return WEFT_OK;
}

/* ---- merging ---- */

/* The first span of a piece that ends past element `at` of the whole tensor. */
static int64_t span_behind(const Piece *p, int64_t at, int64_t spans) {
  int64_t lo = 0, hi = spans;
  while (lo < hi) {
    int64_t mid = lo + (hi - lo) / 2;
    Span s = piece_span(p, mid);
    if (s.global + s.n <= at)
      lo = mid + 1;
    else
      hi = mid;
  }
  return lo;
}

/* Copies what `want` and a piece of a file have in common; adds to *found. */
static weft_status take(CkptRead *r, const CkptPiece *p, const Piece *want, float *local,
                        int64_t *found, weft_error *e) {
  int64_t ni = piece_spans(want), nk = piece_spans(&p->piece), i = 0;
  if (!ni) return WEFT_OK;
  int64_t k = span_behind(&p->piece, piece_span(want, 0).global, nk);
  while (i < ni && k < nk) {
    Span a = piece_span(want, i), b = piece_span(&p->piece, k);
    int64_t lo = MAX(a.global, b.global), hi = MIN(a.global + a.n, b.global + b.n);
    if (a.n && b.n && lo < hi) {
      TRY(copy_out(r, p, b.local + lo - b.global, hi - lo,
                   local + a.local + lo - a.global, e));
      *found += hi - lo;
    }
    bool first = !a.n || (b.n && a.global + a.n <= b.global + b.n);
    if (first)
      i++;
    else
      k++;
  }
  return WEFT_OK;
}

static int64_t wanted(const Piece *p) {
  int64_t n = 0;
  for (int64_t i = 0, spans = piece_spans(p); i < spans; i++) n += piece_span(p, i).n;
  return n;
}

weft_status ckpt_read(CkptRead *r, int kind, int param, const Piece *want, float *local,
                      weft_error *e) {
  const Ckpt *c = r->c;
  int t = kind * c->m.nparam + param;
  int64_t found = 0;
  for (int i = c->first[t]; i < c->first[t + 1]; i++)
    if (!piece_disjoint(want, &c->piece[i].piece))
      TRY(take(r, &c->piece[i], want, local, &found, e));
  if (found == wanted(want)) return WEFT_OK;
  return err_file(e, WEFT_EINTERNAL, c->dir, 0,
                  "%s/%s: only %lld of %lld elements were found",
                  ckpt_kind_name(c->m.optimizer, kind), c->m.param[param].name,
                  (long long)found, (long long)wanted(want));
}

weft_status ckpt_read_part(CkptRead *r, int kind, int param, int64_t from, int64_t n,
                           float *to, weft_error *e) {
  CkptParam p = manifest_shape(&r->c->m, kind, param);
  Piece want = {.from = from, .count = n, .ndim = p.ndim};
  for (int d = 0; d < p.ndim; d++)
    want.dim[d] = (PieceDim){1, p.dim[d], 0, p.dim[d], p.dim[d]};
  return ckpt_read(r, kind, param, &want, to, e);
}

/* ---- reading a piece ---- */

weft_status ckpt_verify(const Ckpt *c, const StopFlag *stop, uint64_t *bytes,
                        weft_error *e) {
  CkptRead r;
  TRY(ckpt_read_begin(c, &r, e));
  r.stop = stop;
  weft_status st = WEFT_OK;
  for (int i = 0; i < c->npiece && st == WEFT_OK; i++)
    for (uint64_t at = 0; at < c->piece[i].bytes && st == WEFT_OK; at += CKPT_BLOCK)
      st = load_block(&r, &c->piece[i], at, e);
  *bytes = r.read;
  ckpt_read_end(&r);
  return st;
}
