/* move_elements.c - ops that only move elements: copy, split, concat, slice, pack,
 * unpack. */
#include "kernel.h"

static size_t element(const KTensor *t) { return (size_t)dtype_size(t->dtype); }

/* ---- copy ---- */

static void copy_part(const KernelArgs *a, int64_t lo, int64_t hi) {
  size_t es = element(&a->out[0]);
  assert(a->in[0].dtype == a->out[0].dtype);
  memcpy((char *)a->out[0].p + (size_t)lo * es, (char *)a->in[0].p + (size_t)lo * es,
         (size_t)(hi - lo) * es);
}
void cpu_copy(Device *dev, const KernelArgs *a) {
  each_part(dev, a, count_of(&a->out[0]), ELEMENT_GRAIN, copy_part);
}

/* The same elements with other dimensions. */
void cpu_flatten(Device *dev, const KernelArgs *a) { cpu_copy(dev, a); }
void cpu_unflatten(Device *dev, const KernelArgs *a) { cpu_copy(dev, a); }

/* ---- split, concat ---- a row of the whole is the rows of its pieces, side by side */

static void move_rows(const KTensor *whole, const KTensor *piece, int n, bool join,
                      int64_t lo, int64_t hi) {
  size_t es = element(whole), row = (size_t)last_dim(whole) * es;
  for (int64_t r = lo; r < hi; r++) {
    char *w = (char *)whole->p + (size_t)r * row;
    for (int k = 0; k < n; k++) {
      size_t bytes = (size_t)last_dim(&piece[k]) * es;
      char *p = (char *)piece[k].p + (size_t)r * bytes;
      memcpy(join ? w : p, join ? p : w, bytes);
      w += bytes;
    }
  }
}

static void split_part(const KernelArgs *a, int64_t lo, int64_t hi) {
  move_rows(&a->in[0], a->out, a->nout, false, lo, hi);
}
static void concat_part(const KernelArgs *a, int64_t lo, int64_t hi) {
  move_rows(&a->out[0], a->in, a->nin, true, lo, hi);
}
void cpu_split(Device *dev, const KernelArgs *a) {
  each_row(dev, a, &a->in[0], split_part);
}
void cpu_concat(Device *dev, const KernelArgs *a) {
  each_row(dev, a, &a->out[0], concat_part);
}

/* ---- slice, pack, unpack ----
 * One dimension of length L0 consists of `parts` equal parts; piece p holds the p-th run
 * of length `run` of each part, one after the other; what lies past a part's end is 0. */
typedef struct Runs {
  char *whole, *piece; /* at one outer index: (L0, inner) and (L, inner) */
  int64_t part, run;   /* elements of the dimension: of a part, of a run */
  int parts;
  bool mirror;  /* of the second part the runs count from its end */
  size_t inner; /* bytes */
} Runs;

static Runs runs_of(const KernelArgs *a, const KTensor *whole, int64_t l0, int64_t l,
                    int64_t inner) {
  int parts = MAX(1, a->attr->parts);
  assert(l0 % parts == 0 && l % parts == 0);
  return (Runs){.part = l0 / parts,
                .run = l / parts,
                .parts = parts,
                .mirror = a->attr->mirror,
                .inner = (size_t)inner * element(whole)};
}

/* Copies piece p at one outer index, out of the whole or (join) back into it. */
static void move_piece(const Runs *c, int64_t p, bool join) {
  int64_t first = MIN(p * c->run, c->part), n = MIN(c->run, c->part - first);
  for (int j = 0; j < c->parts; j++) {
    int64_t at = c->mirror && j % 2 ? c->part - c->run - first : first;
    char *w = c->whole + (size_t)(j * c->part + at) * c->inner;
    char *d = c->piece + (size_t)(j * c->run) * c->inner;
    size_t bytes = (size_t)n * c->inner;
    memcpy(join ? w : d, join ? d : w, bytes);
    if (!join) memset(d + bytes, 0, (size_t)c->run * c->inner - bytes);
  }
}

static int64_t product(const int64_t *dim, int n) {
  int64_t p = 1;
  for (int i = 0; i < n; i++) p *= dim[i];
  return p;
}

static void slice_part(const KernelArgs *a, int64_t lo, int64_t hi) {
  const KTensor *x = &a->in[0], *y = &a->out[0];
  int d = a->attr->dim;
  int64_t inner = product(x->dim + d + 1, x->ndim - d - 1);
  Runs c = runs_of(a, x, x->dim[d], y->dim[d], inner);
  for (int64_t o = lo; o < hi; o++) {
    c.whole = (char *)x->p + (size_t)(o * x->dim[d]) * c.inner;
    c.piece = (char *)y->p + (size_t)(o * y->dim[d]) * c.inner;
    move_piece(&c, a->index, false);
  }
}

void cpu_slice(Device *dev, const KernelArgs *a) {
  const KTensor *y = &a->out[0];
  int d = a->attr->dim;
  int64_t each = product(y->dim + d, y->ndim - d);
  each_part(dev, a, product(y->dim, d), row_grain(each), slice_part);
}

/* (outer, L0, inner) on one side, (n, outer, L, inner) on the other; an item is a pair
 * (piece, outer). */
static void pack_items(const KernelArgs *a, const KTensor *whole, const KTensor *pieces,
                       bool join, int64_t lo, int64_t hi) {
  int64_t outer = whole->dim[0], l0 = whole->dim[1], l = pieces->dim[2];
  Runs c = runs_of(a, whole, l0, l, whole->dim[2]);
  for (int64_t i = lo; i < hi; i++) {
    c.whole = (char *)whole->p + (size_t)(i % outer * l0) * c.inner;
    c.piece = (char *)pieces->p + (size_t)(i * l) * c.inner;
    move_piece(&c, i / outer, join);
  }
}

static void pack_part(const KernelArgs *a, int64_t lo, int64_t hi) {
  pack_items(a, &a->in[0], &a->out[0], false, lo, hi);
}
static void unpack_part(const KernelArgs *a, int64_t lo, int64_t hi) {
  pack_items(a, &a->out[0], &a->in[0], true, lo, hi);
}
void cpu_pack(Device *dev, const KernelArgs *a) {
  const KTensor *p = &a->out[0];
  assert(a->in[0].ndim == 3 && p->ndim == 4);
  each_part(dev, a, p->dim[0] * p->dim[1], row_grain(p->dim[2] * p->dim[3]), pack_part);
}
void cpu_unpack(Device *dev, const KernelArgs *a) {
  const KTensor *p = &a->in[0];
  assert(a->out[0].ndim == 3 && p->ndim == 4);
  each_part(dev, a, p->dim[0] * p->dim[1], row_grain(p->dim[2] * p->dim[3]), unpack_part);
}
