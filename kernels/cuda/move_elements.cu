/* move_elements.cu - ops that only move elements: copy, split, concat, slice, pack,
 * unpack. All are rows of contiguous elements that go from one place to another; they are
 * moved by sixteen bytes a thread where everything is a multiple of that, else by
 * elements. No thread divides: what it moves is where it is in the grid. */
#include "rows.cuh"

typedef Pack<uint32_t, 4> Sixteen;

/* Calls f with a null pointer to the unit that is moved, sixteen bytes or an unsigned
 * type of an element's size, and the number of elements in it. */
template <typename F> static void by_unit(DType t, bool wide, F f) {
  int size = cuda_dtype_size(t);
  if (wide) {
    f((Sixteen *)0, 16 / size);
    return;
  }
  switch (size) {
  case 1: f((uint8_t *)0, 1); break;
  case 2: f((uint16_t *)0, 1); break;
  case 4: f((uint32_t *)0, 1); break;
  case 8: f((uint64_t *)0, 1); break;
  default: assert(!"a type of elements");
  }
}
static bool whole_units(DType t, int64_t n) { return n * cuda_dtype_size(t) % 16 == 0; }

/* ---- copy ---- host memory is mapped, so kernels can access it */

template <typename U>
__global__ void __launch_bounds__(BLOCK) copy_units(const U *x, U *y, int64_t n) {
  UNROLL_BY_4
  EACH_ELEMENT(i, n) y[i] = x[i];
}

/* What does not fill the last sixteen bytes is copied by elements. */
void cuda_copy(Device *d, const KernelArgs *a) {
  int64_t n = cuda_count(&a->out[0]), done = 0;
  DType t = a->out[0].dtype;
  bool wide = aligned(a->in[0].p) && aligned(a->out[0].p);
  auto copy = [&](auto *p, int each) {
    typedef TYPE_OF(p) U;
    int64_t units = (n - done) / each;
    if (units)
      LAUNCH((copy_units<U>), blocks_for(units), BLOCK, cuda_stream(d),
             data<const U>(&a->in[0]) + done / each, data<U>(&a->out[0]) + done / each,
             units);
    done += units * each;
  };
  if (wide) by_unit(t, true, copy);
  if (done < n) by_unit(t, false, copy);
}

/* ---- split, concat ---- a row of the whole is the rows of its pieces, side by side */

enum { PIECES = KERNEL_MAX_IN > KERNEL_MAX_OUT ? KERNEL_MAX_IN : KERNEL_MAX_OUT };
template <typename U> struct Rect {
  const U *from;
  U *to;
  int64_t from_by, to_by, width; /* between rows, and of them */
};
template <typename U> struct Rects { Rect<U> of[PIECES]; };

/* Grid: units of the widest, rows, rectangles. */
template <typename U>
__global__ void __launch_bounds__(BLOCK) copy_rects(Rects<U> all, int64_t rows) {
  const Rect<U> &r = all.of[blockIdx.z];
  int64_t c = column_of(1);
  if (c >= r.width) return;
  for_rows(0, rows,
           [&](int64_t i) { r.to[i * r.to_by + c] = r.from[i * r.from_by + c]; });
}

static void side_by_side(Device *d, const KTensor *whole, const KTensor *piece, int n,
                         bool join) {
  assert(n <= PIECES);
  bool wide = aligned(whole->p) && whole_units(whole->dtype, cuda_last(whole));
  for (int k = 0; k < n; k++)
    wide = wide && aligned(piece[k].p) && whole_units(whole->dtype, cuda_last(&piece[k]));
  by_unit(whole->dtype, wide, [&](auto *p, int each) {
    typedef TYPE_OF(p) U;
    Rects<U> s = {};
    int64_t by = cuda_last(whole) / each, at = 0, widest = 0, rows = cuda_rows(whole);
    for (int k = 0; k < n; k++) {
      U *one = data<U>(&piece[k]), *all = data<U>(whole) + at;
      int64_t width = cuda_last(&piece[k]) / each;
      s.of[k] = join ? Rect<U>{one, all, width, by, width}
                     : Rect<U>{all, one, by, width, width};
      at += width, widest = width > widest ? width : widest;
    }
    RowGrid g = row_grid(widest, rows);
    g.blocks.z = (unsigned)n;
    LAUNCH((copy_rects<U>), g.blocks, g.threads, cuda_stream(d), s, rows);
  });
}

void cuda_split(Device *d, const KernelArgs *a) {
  side_by_side(d, &a->in[0], a->out, a->nout, false);
}
void cuda_concat(Device *d, const KernelArgs *a) {
  side_by_side(d, &a->out[0], a->in, a->nin, true);
}

/* ---- slice, pack, unpack ----
 * One dimension of length L0 consists of `parts` equal parts; piece p holds the p-th run
 * of length `run` of each part, one after the other; what lies past a part's end is 0.
 * Lengths are in units: of a run all that lies behind a step of the dimension. */
struct Runs {
  int64_t l0, l, part, run; /* of the whole, of a piece, of a part, of a run */
  int64_t outer, parts;
  int64_t first;  /* piece */
  int64_t mirror; /* runs of odd parts count back from this one; -1: they do not */
};

/* `inner`: elements behind a step. */
static Runs runs_of(const KernelArgs *a, int64_t outer, int64_t l0, int64_t l,
                    int64_t inner, int64_t first) {
  int64_t parts = a->attr->parts > 1 ? a->attr->parts : 1;
  assert(l0 % parts == 0 && l % parts == 0);
  int64_t part = l0 / parts, run = l / parts;
  return Runs{
      l0 * inner, l * inner, part * inner, run * inner,
      outer,      parts,     first,        a->attr->mirror != 0 ? part / run - 1 : -1};
}

/* Grid: units of a run, rows outside of the dimension, pieces. */
template <typename U, bool JOIN>
__global__ void __launch_bounds__(BLOCK) move_runs(U *whole, U *pieces, Runs c) {
  int64_t i = column_of(1), piece = blockIdx.z;
  if (i >= c.run) return;
  for_rows(0, c.outer, [&](int64_t o) {
    for (int64_t j = 0; j < c.parts; j++) {
      int64_t p = c.first + piece;
      if (c.mirror >= 0 && j % 2) p = c.mirror - p;
      bool is = p * c.run + i < c.part;
      U *one = whole + o * c.l0 + j * c.part + p * c.run + i;
      U *other = pieces + (piece * c.outer + o) * c.l + j * c.run + i;
      if (!JOIN)
        *other = is ? *one : U{};
      else if (is)
        *one = *other;
    }
  });
}

/* n pieces. */
template <bool JOIN>
static void move_all(Device *d, const KTensor *whole, const KTensor *pieces, int64_t n,
                     const Runs &all) {
  DType t = whole->dtype;
  bool wide = aligned(whole->p) && aligned(pieces->p) && whole_units(t, all.part) &&
              whole_units(t, all.run);
  by_unit(t, wide, [&](auto *p, int each) {
    typedef TYPE_OF(p) U;
    Runs c = all;
    c.l0 /= each, c.l /= each, c.part /= each, c.run /= each;
    RowGrid g = row_grid(c.run, c.outer);
    g.blocks.z = (unsigned)n;
    assert(n <= 65535);
    LAUNCH((move_runs<U, JOIN>), g.blocks, g.threads, cuda_stream(d), data<U>(whole),
           data<U>(pieces), c);
  });
}

static int64_t product(const int64_t *dim, int n) {
  int64_t p = 1;
  for (int i = 0; i < n; i++) p *= dim[i];
  return p;
}

void cuda_slice(Device *d, const KernelArgs *a) {
  const KTensor *x = &a->in[0];
  int k = a->attr->dim;
  move_all<false>(d, x, &a->out[0], 1,
                  runs_of(a, product(x->dim, k), x->dim[k], a->out[0].dim[k],
                          product(x->dim + k + 1, x->ndim - k - 1), a->index));
}

/* (outer, L0, inner) on one side, (n, outer, L, inner) on the other. */
void cuda_pack(Device *d, const KernelArgs *a) {
  const int64_t *whole = a->in[0].dim, *pieces = a->out[0].dim;
  move_all<false>(d, &a->in[0], &a->out[0], pieces[0],
                  runs_of(a, whole[0], whole[1], pieces[2], whole[2], 0));
}

/* Every element of the whole is in exactly one piece. */
void cuda_unpack(Device *d, const KernelArgs *a) {
  const int64_t *whole = a->out[0].dim, *pieces = a->in[0].dim;
  move_all<true>(d, &a->out[0], &a->in[0], pieces[0],
                 runs_of(a, whole[0], whole[1], pieces[2], whole[2], 0));
}
