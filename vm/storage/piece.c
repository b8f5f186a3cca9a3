/* piece.c - the spans of a piece in the whole parameter, cutting and merging; see
 * piece.h. */
#include "piece.h"

#include <math.h>

#include "vm/base/f16.h"

/* ---- which elements ---- */

/* Axes that shard dimension d do so one after the other. Where a split is uneven the last
 * ranks have less, and the missing elements are padding. */
static PieceDim dim_piece(const Mesh *m, const CompiledParam *p, int d, int rank) {
  int64_t parts = MAX(p->parts[d], 1), size = p->dim[d] / parts, end = size;
  PieceDim c = {.parts = parts, .size = size, .slice = size};
  bool cut = false;
  int x = 0;
  for (AxisSet axes; (axes = place_next_cut(p->place, d, &x)) != 0;) {
    int n = mesh_size(m, axes);
    cut |= n > 1;
    c.slice = (c.slice + n - 1) / n;
    c.first += mesh_index(m, axes, rank) * c.slice;
    end = MIN(end, c.first + c.slice);
  }
  c.valid = MAX(end - c.first, 0);
  if (!cut) c.parts = 1, c.size = c.slice = c.valid = p->dim[d];
  return c;
}

int64_t piece_padded(const Piece *p) {
  int64_t n = 1;
  for (int d = 0; d < p->ndim; d++) n *= p->dim[d].parts * p->dim[d].slice;
  return n;
}

bool piece_disjoint(const Piece *a, const Piece *b) {
  for (int d = 0; d < a->ndim; d++) {
    const PieceDim *x = &a->dim[d], *y = &b->dim[d];
    if (!x->valid || !y->valid) return true;
    if (x->parts != y->parts) continue;
    if (x->first + x->valid <= y->first || y->first + y->valid <= x->first) return true;
  }
  return false;
}

int64_t piece_box(const Mesh *m, const CompiledParam *p) {
  int64_t n = 1;
  for (int d = 0; d < p->ndim; d++) {
    PieceDim c = dim_piece(m, p, d, 0);
    n *= c.parts * c.slice;
  }
  return n;
}

/* Of averages of rows and columns: those of whole matrices, of the rank's experts. */
static Piece factors_piece(const Mesh *m, const CompiledParam *p, const Stored *at,
                           const Region *r, int rank) {
  Piece c = {.region = r, .at = at->factors, .count = p->factors};
  if (p->ndim > 2) {
    c.dim[c.ndim++] = dim_piece(m, p, 0, rank);
    c.count *= c.dim[0].parts * c.dim[0].slice;
  }
  c.dim[c.ndim++] = (PieceDim){1, p->factors, 0, p->factors, p->factors};
  return c;
}

Piece piece_make(const Mesh *m, const CompiledParam *p, const Regions *s,
                 const Stored *at, const Region *r, int rank) {
  if (r->factors) return factors_piece(m, p, at, r, rank);
  Piece c = {.region = r, .ndim = p->ndim};
  for (int d = 0; d < p->ndim; d++) c.dim[d] = dim_piece(m, p, d, rank);
  const Block *b = &s->block[at->block];
  int64_t shard = b->whole / r->ways;
  int64_t here = b->first + (r->flat ? mesh_index(m, r->flat, rank) * shard : 0);
  int64_t from = MAX(at->at, here), to = MIN(at->at + at->count, here + shard);
  if (to <= from) return c;
  /* In the region, earlier blocks' shards (or whole blocks) come first. */
  bool whole = r->count == r->whole;
  c.at = whole ? from - r->first : (b->first - r->first) / r->ways + from - here;
  c.from = from - at->at;
  c.count = to - from;
  return c;
}

AxisSet piece_axes(const CompiledParam *p, const Region *r) {
  if (r->factors) return p->ndim > 2 ? place_dim_cuts(p->place, 0) : 0;
  return place_cuts(p->place) | r->flat;
}

bool piece_gives(const Mesh *m, const CompiledParam *p, const Region *r, int rank) {
  AxisSet copies = axes_rest(piece_axes(p, r)) & ~AXIS_BIT(AXIS_PP);
  return mesh_coord(m, rank, AXIS_PP) == p->pp[0] && mesh_index(m, copies, rank) == 0;
}

/* ---- spans ---- */

/* The last dimension that is sharded, or the first; those after it are whole. */
static int last_cut(const Piece *p) {
  for (int d = p->ndim - 1; d > 0; d--)
    if (p->dim[d].valid < p->dim[d].size || p->dim[d].parts > 1) return d;
  return 0;
}

/* Elements of the box in one span, before the flat cut. */
static int64_t span_length(const Piece *p) {
  int last = last_cut(p);
  int64_t n = p->dim[last].slice;
  for (int d = last + 1; d < p->ndim; d++) n *= p->dim[d].size;
  return n;
}

/* Without the spans that the flat cut leaves empty. */
int64_t piece_spans(const Piece *p) {
  int64_t n = span_length(p);
  return p->count ? (p->from + p->count - 1) / n - p->from / n + 1 : 0;
}

/* Where span `i` of the box begins in the whole parameter, in units of what follows the
 * last sharded dimension; false if it lies in an earlier dimension's padding. */
static bool span_place(const Piece *p, int64_t i, int64_t *at) {
  int last = last_cut(p);
  int64_t part = i % p->dim[last].parts, stride = p->dim[last].parts * p->dim[last].size;
  bool valid = true;
  *at = part * p->dim[last].size + p->dim[last].first;
  i /= p->dim[last].parts;
  for (int d = last - 1; d >= 0; d--) {
    const PieceDim *c = &p->dim[d];
    int64_t here = i % (c->parts * c->slice), in_part = here % c->slice;
    valid &= in_part < c->valid;
    *at += (here / c->slice * c->size + c->first + in_part) * stride;
    stride *= c->parts * c->size;
    i /= c->parts * c->slice;
  }
  return valid;
}

Span piece_span(const Piece *p, int64_t i) {
  int64_t length = span_length(p), number = p->from / length + i, place;
  int64_t inner = length / p->dim[last_cut(p)].slice;
  bool valid = span_place(p, number, &place);
  int64_t begin = number * length, full = begin + length;
  int64_t end = begin + (valid ? p->dim[last_cut(p)].valid * inner : 0);
  int64_t lo = MAX(begin, p->from), hi = MIN(full, p->from + p->count);
  int64_t filled = MAX(MIN(hi, end), lo);
  return (Span){.local = lo - p->from,
                .global = place * inner + lo - begin,
                .n = filled - lo,
                .padding = hi - filled};
}

/* A run of whole rows along the dimension before the last sharded one. */
SpanRun piece_run(const Piece *p, int64_t i) {
  int last = last_cut(p);
  int64_t length = span_length(p), number = p->from / length + i;
  SpanRun r = {.first = piece_span(p, i), .count = 1, .local = length};
  bool whole = r.first.n + r.first.padding == length;
  if (!whole || last == 0 || p->dim[last].parts > 1) return r;
  const PieceDim *rows = &p->dim[last - 1];
  int64_t row = number % rows->slice, end = row < rows->valid ? rows->valid : rows->slice;
  r.count = MIN(end - row, (p->from + p->count) / length - number);
  r.global = p->dim[last].size * (length / p->dim[last].slice);
  return r;
}

/* How many elements of the box lie before element `x` of the parameter, with their
 * padding. */
static int64_t box_before(const Piece *p, int64_t x) {
  int64_t n = 0, whole = 1, box = 1;
  for (int d = 0; d < p->ndim; d++) {
    whole *= p->dim[d].parts * p->dim[d].size;
    box *= p->dim[d].parts * p->dim[d].slice;
  }
  for (int d = 0; d < p->ndim; d++) {
    const PieceDim *c = &p->dim[d];
    whole /= c->parts * c->size;
    box /= c->parts * c->slice;
    int64_t at = x / whole, in = at % c->size - c->first;
    n += (at / c->size * c->slice + (in < 0 ? 0 : in < c->valid ? in : c->slice)) * box;
    if (in < 0 || in >= c->valid) break;
    x %= whole;
  }
  return n;
}

Piece piece_within(const Piece *p, int64_t from, int64_t to) {
  int64_t end = p->from + p->count;
  int64_t lo = MIN(MAX(box_before(p, from), p->from), end);
  int64_t hi = MIN(MAX(box_before(p, to), lo), end);
  return piece_part(p, lo - p->from, hi - lo);
}

/* ---- values ---- */

void piece_cut(const Piece *p, const float *global, float *local) {
  for (int64_t i = 0, n = piece_spans(p); i < n; i++) {
    Span s = piece_span(p, i);
    if (s.n) memcpy(local + s.local, global + s.global, (size_t)s.n * sizeof *local);
    if (s.padding) memset(local + s.local + s.n, 0, (size_t)s.padding * sizeof *local);
  }
}

void piece_paste(const Piece *p, const float *local, float *global) {
  for (int64_t i = 0, n = piece_spans(p); i < n; i++) {
    Span s = piece_span(p, i);
    if (s.n) memcpy(global + s.global, local + s.local, (size_t)s.n * sizeof *local);
  }
}

static float rounded(DType t, float x) {
  return t == DT_BF16  ? bf16_to_f32(bf16_from_f32(x))
         : t == DT_F16 ? f16_to_f32(f16_from_f32(x))
                       : x;
}

double piece_distance(const Piece *p, DType t, const float *local, const float *global) {
  double sum = 0;
  for (int64_t i = 0, n = piece_spans(p); i < n; i++) {
    Span s = piece_span(p, i);
    for (int64_t k = 0; k < s.n; k++) {
      float want = rounded(t, global[s.global + k]);
      double d = (double)local[s.local + k] - want;
      sum += d * d;
    }
  }
  return sqrt(sum);
}
