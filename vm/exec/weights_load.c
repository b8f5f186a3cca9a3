/* weights_load.c - parameters of a run from files. Every rank reads what it holds and
 * nothing else, in windows of a few hundred KiB: the bytes of a window are read at once
 * and converted into the rank's block.
 *
 * Where a dimension is cut, what a rank has are many short spans. Those that lie close
 * together are read with the gaps between them: a call costs as much as some KiB do. */
#include "run_int.h"
#include "weights.h"

#include "vm/base/nontemporal.h"
#include "vm/io/st_type.h"

enum { GAP = 16384, WIDEST = sizeof(double) };

/* A block of elements of any type. */
static uint64_t window_bytes(const Compiled *c) {
  return (uint64_t)held_block(c) * WIDEST;
}

uint64_t weights_bytes(const Compiled *c) {
  uint64_t sources = sizeof(WeightSource) * (uint64_t)MAX(c->nparam, 1);
  uint64_t windows = window_bytes(c) * (uint64_t)c->mesh.world;
  return MAX(weights_fit_bytes(c), sources + windows);
}

typedef struct Load {
  const Compiled *c;
  const SafeTensors *files;
  const WeightSource *source; /* of each parameter */
  char *windows;              /* of all lanes */
  size_t window;              /* of one */
} Load;

/* Spans [i, i + returned) of a part lie in `bytes` bytes from `at` of the file on. */
static int64_t next_window(const Piece *part, int64_t i, int64_t spans, const Load *l,
                           size_t size, int64_t *at, int64_t *bytes) {
  int64_t begin = i, end = 0;
  for (*at = 0; i < spans; i++) {
    Span s = piece_span(part, i);
    int64_t lo = s.global * (int64_t)size, hi = lo + s.n * (int64_t)size;
    if (s.n == 0) continue;
    if (end == 0)
      *at = lo;
    else if (lo < end || lo - end > GAP || hi - *at > (int64_t)l->window)
      break;
    end = hi;
  }
  *bytes = end - *at;
  return i - begin;
}

/* A span of a window, whose bytes are at `from`. */
static void put_span(const StType *type, const char *from, Span s, PartOut *out) {
  float *local = out->local + s.local;
  size_t n = (size_t)s.n;
  if (n && out->home && type->dtype == DT_BF16)
    nt_widen(local, from, n);
  else if (n)
    type->to_f32((const unsigned char *)from, n, local);
  memset(local + s.n, 0, (size_t)s.padding * sizeof *local);
  if (!out->copied) return;
  if (n) nt_copy(out->copy + s.local, from, n * sizeof *out->copy);
  memset(out->copy + s.local + s.n, 0, (size_t)s.padding * sizeof *out->copy);
}

/* Of what lies in pieces: a span may be in several of them. */
static weft_status read_pieces(const Load *l, int param, const Piece *part, char *window,
                               PartOut *out, weft_error *e) {
  WeightSource from = l->source[param];
  int64_t each = param_count(&l->c->param[param]) / from.pieces, last = -1;
  const SafeTensor *t = NULL;
  for (int64_t i = 0, spans = piece_spans(part); i < spans; i++) {
    Span s = piece_span(part, i), some = s;
    for (int64_t done = 0; done < s.n; done += some.n) {
      int64_t at = s.global + done, piece = at / each;
      if (piece != last) t = weights_piece(l->c, l->files, param, (int)piece, NULL);
      last = piece;
      const StType *type = st_type(t->type);
      uint64_t size = (uint64_t)type->size;
      some =
          (Span){.local = s.local + done, .n = MIN(s.n - done, (piece + 1) * each - at)};
      TRY(file_at(t->in, t->at + (uint64_t)(at % each) * size, window,
                  (size_t)some.n * size, e));
      put_span(type, window, some, out);
    }
    put_span(NULL, NULL, (Span){.local = s.local + s.n, .padding = s.padding}, out);
  }
  return WEFT_OK;
}

static weft_status read_part(const Lane *lane, void *ud, StateKind kind, int param,
                             const Piece *part, PartOut *out, weft_error *e) {
  const Load *l = ud;
  WeightSource from = l->source[param];
  const StType *type = st_type(from.t->type);
  size_t size = (size_t)type->size;
  char *window = l->windows + (size_t)lane->number * l->window;
  uint64_t base = from.t->at + (uint64_t)from.first * size;
  int64_t spans = piece_spans(part), at, bytes;
  out->copied = out->copy && type->dtype == out->copy_type && from.pieces == 1;
  if (from.pieces > 1) return read_pieces(l, param, part, window, out, e);
  for (int64_t i = 0, n; i < spans; i += n) {
    n = next_window(part, i, spans, l, size, &at, &bytes);
    if (bytes) TRY(file_at(from.t->in, base + (uint64_t)at, window, (size_t)bytes, e));
    for (int64_t k = i; k < i + n; k++) {
      Span s = piece_span(part, k);
      put_span(type, window + (s.n ? s.global * (int64_t)size - at : 0), s, out);
    }
  }
  return WEFT_OK;
}

/* Every process reads the files itself. */
weft_status run_load(Run *r, const SafeTensors *s, weft_error *e) {
  const Compiled *c = r->c;
  TRY(weights_fit(c, s, &r->alloc, e));
  TRY(weights_check_tied(c, s, e));
  Load l = {.c = c, .files = s};
  size_t sources = sizeof(WeightSource) * (size_t)MAX(c->nparam, 1);
  size_t windows = window_bytes(c) * (size_t)r->nworker;
  l.window = windows / (size_t)run_lanes(r);
  WeightSource *source = mem_new(&r->alloc, sources);
  l.windows = mem_new(&r->alloc, windows);
  weft_status st = WEFT_ENOMEM;
  if (source && l.windows) {
    for (int i = 0; i < c->nparam; i++)
      source[i] = weights_source(c, s, i);
    l.source = source;
    st =
        run_pieces(r, &(Filling){{STATE_PARAM}, 1, 0, c->nparam, read_part, &l}, true, e);
  } else {
    err_set(e, st, "out of memory");
  }
  mem_free(&r->alloc, l.windows, windows);
  mem_free(&r->alloc, source, sources);
  return st;
}
