/* move_elements.cu - ops that only move elements: copy, split, concat, slice, pack,
 * unpack. One thread per element of the result, which computes its source. */
#include "kernel.cuh"

/* Calls f with a null pointer to an unsigned type of the element's size. */
template <typename F> static void by_size(DType t, F f) {
  if (t == DT_BF16)
    f((uint16_t *)0);
  else if (t == DT_F64)
    f((uint64_t *)0);
  else
    f((uint32_t *)0);
}

/* ---- copy ---- host memory is mapped, so kernels can access it */

template <typename U>
__global__ void __launch_bounds__(BLOCK) copy_elements(const U *x, U *y, int64_t n) {
  int64_t step = (int64_t)gridDim.x * blockDim.x;
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
    y[i] = x[i];
}

void cuda_copy(Device *d, const KernelArgs *a) {
  int64_t n = cuda_count(&a->out[0]);
  by_size(a->out[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) U;
    LAUNCH((copy_elements<U>), blocks_for(n), BLOCK, cuda_stream(d),
           data<const U>(&a->in[0]), data<U>(&a->out[0]), n);
  });
}

/* ---- split, concat ---- a row of the whole is the rows of its pieces, side by side */

enum { PIECES = KERNEL_MAX_IN > KERNEL_MAX_OUT ? KERNEL_MAX_IN : KERNEL_MAX_OUT };
template <typename U> struct Side {
  U *whole, *piece[PIECES];
  int64_t end[PIECES]; /* column after each piece */
  int n;
};

template <typename U>
__global__ void __launch_bounds__(BLOCK)
    move_rows(Side<U> s, int64_t n, int64_t width, bool join) {
  int64_t step = (int64_t)gridDim.x * blockDim.x;
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
    int64_t r = i / width, c = i % width, from = 0;
    int k = 0;
    while (k + 1 < s.n && c >= s.end[k]) from = s.end[k++];
    U *p = s.piece[k] + r * (s.end[k] - from) + (c - from);
    if (join)
      s.whole[i] = *p;
    else
      *p = s.whole[i];
  }
}

static void side_by_side(Device *d, const KTensor *whole, const KTensor *piece, int n,
                         bool join) {
  assert(n <= PIECES);
  by_size(whole->dtype, [&](auto *p) {
    typedef TYPE_OF(p) U;
    Side<U> s;
    s.whole = data<U>(whole), s.n = n;
    for (int64_t k = 0, end = 0; k < n; k++)
      s.piece[k] = data<U>(&piece[k]), s.end[k] = end += cuda_last(&piece[k]);
    LAUNCH((move_rows<U>), blocks_for(cuda_count(whole)), BLOCK, cuda_stream(d), s,
           cuda_count(whole), cuda_last(whole), join);
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
 * of length `run` of each part, one after the other; what lies past a part's end is 0. */
struct Runs {
  int64_t l0, l, part, run, inner;
  bool mirror; /* runs of the second part count from its end */
};

static Runs runs_of(const KernelArgs *a, int64_t l0, int64_t l, int64_t inner) {
  int64_t parts = a->attr->parts > 1 ? a->attr->parts : 1;
  assert(l0 % parts == 0 && l % parts == 0);
  return Runs{l0, l, l0 / parts, l / parts, inner, a->attr->mirror != 0};
}

/* The index in the whole of element (outer, at, in) of piece p; -1: padding. */
static __device__ int64_t in_whole(Runs c, int64_t p, int64_t outer, int64_t at,
                                   int64_t in) {
  int64_t j = at / c.run;
  if (c.mirror && j % 2) p = c.part / c.run - 1 - p;
  int64_t k = p * c.run + at % c.run;
  return k < c.part ? (outer * c.l0 + j * c.part + k) * c.inner + in : -1;
}

/* Writes pieces [first, first + n / (outer * L * inner)) of the whole, in order. */
template <typename U>
__global__ void __launch_bounds__(BLOCK)
    cut_pieces(const U *whole, U *pieces, int64_t n, int64_t outer, int64_t first,
               Runs c) {
  int64_t step = (int64_t)gridDim.x * blockDim.x, row = c.l * c.inner;
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
    int64_t o = i / row, at = i % row;
    int64_t from = in_whole(c, first + o / outer, o % outer, at / c.inner, at % c.inner);
    pieces[i] = from < 0 ? (U)0 : whole[from];
  }
}

/* The inverse: every element of the whole is in exactly one piece. */
template <typename U>
__global__ void __launch_bounds__(BLOCK)
    join_pieces(U *whole, const U *pieces, int64_t n, int64_t outer, Runs c) {
  int64_t step = (int64_t)gridDim.x * blockDim.x, row = c.l0 * c.inner;
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
    int64_t o = i / row, at = i % row / c.inner, j = at / c.part, k = at % c.part;
    int64_t p = k / c.run;
    if (c.mirror && j % 2) p = c.part / c.run - 1 - p;
    whole[i] =
        pieces[((p * outer + o) * c.l + j * c.run + k % c.run) * c.inner + i % c.inner];
  }
}

static int64_t product(const int64_t *dim, int n) {
  int64_t p = 1;
  for (int i = 0; i < n; i++) p *= dim[i];
  return p;
}

static void cut(Device *d, const KernelArgs *a, int64_t outer, int64_t first, Runs c) {
  int64_t n = cuda_count(&a->out[0]);
  by_size(a->in[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) U;
    LAUNCH((cut_pieces<U>), blocks_for(n), BLOCK, cuda_stream(d),
           data<const U>(&a->in[0]), data<U>(&a->out[0]), n, outer, first, c);
  });
}

void cuda_slice(Device *d, const KernelArgs *a) {
  const KTensor *x = &a->in[0];
  int k = a->attr->dim;
  cut(d, a, product(x->dim, k), a->index,
      runs_of(a, x->dim[k], a->out[0].dim[k], product(x->dim + k + 1, x->ndim - k - 1)));
}

/* (outer, L0, inner) on one side, (n, outer, L, inner) on the other. */
void cuda_pack(Device *d, const KernelArgs *a) {
  const int64_t *whole = a->in[0].dim;
  cut(d, a, whole[0], 0, runs_of(a, whole[1], a->out[0].dim[2], whole[2]));
}

void cuda_unpack(Device *d, const KernelArgs *a) {
  const int64_t *whole = a->out[0].dim;
  int64_t n = cuda_count(&a->out[0]);
  Runs c = runs_of(a, whole[1], a->in[0].dim[2], whole[2]);
  by_size(a->in[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) U;
    LAUNCH((join_pieces<U>), blocks_for(n), BLOCK, cuda_stream(d), data<U>(&a->out[0]),
           data<const U>(&a->in[0]), n, whole[0], c);
  });
}
