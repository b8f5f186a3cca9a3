/* linear_ce_calls.h - how the ops linear_ce_* are made of others, for the kernels of
 * every device: attr.n equal pieces of the rows, one after the other, go through the
 * product that gives their logits, cross entropy, and the products of its gradients. The
 * logits of one piece at a time are in the scratch, in front of what the products need.
 */
#ifndef WEFT_LINEAR_CE_CALLS_H
#define WEFT_LINEAR_CE_CALLS_H

#include "device.h"

/* One launch of an op that is there by itself. */
typedef struct LinearCeCall {
  int op;
  KernelArgs a;
} LinearCeCall;
enum { LINEAR_CE_CALLS = 4, LINEAR_CE_ALIGN = 256 };

/* The ops by the ends of their names; DO is what a file does for each. */
#define LINEAR_CE_OPS(DO) DO(stats) DO(back) DO(dx) DO(dw)

static inline bool linear_ce(int op) {
#define IS(name) op == OP_linear_ce_##name ||
  return LINEAR_CE_OPS(IS) false;
#undef IS
}

/* The rows of a piece. */
static inline int64_t linear_ce_piece(const KernelArgs *a) {
  int64_t rows = 1;
  for (int i = 0; i < a->in[0].ndim - 1; i++) rows *= a->in[0].dim[i];
  return rows / a->attr->n;
}

/* Rows of `width` elements, from row `first` on. */
static inline KTensor linear_ce_rows(const KTensor *t, int64_t first, int64_t rows,
                                     int64_t width) {
  KTensor k = {.dtype = t->dtype, .ndim = 2, .dim = {rows, width}};
  if (t->p) k.p = (char *)t->p + first * width * dtype_size(t->dtype);
  return k;
}

/* One element of each row. */
static inline KTensor linear_ce_column(const KTensor *t, int64_t first, int64_t rows) {
  KTensor k = linear_ce_rows(t, first, rows, 1);
  k.ndim = 1;
  return k;
}

/* The logits of a piece, in the scratch. */
static inline KTensor linear_ce_logits(const KernelArgs *a) {
  return (KTensor){.p = a->work,
                   .dtype = a->in[0].dtype,
                   .ndim = 2,
                   .dim = {linear_ce_piece(a), a->in[1].dim[a->attr->layout ? 1 : 0]}};
}

static inline uint64_t linear_ce_logits_bytes(const KernelArgs *a) {
  KTensor l = linear_ce_logits(a);
  uint64_t bytes = (uint64_t)(l.dim[0] * l.dim[1] * dtype_size(l.dtype));
  return (bytes + LINEAR_CE_ALIGN - 1) / LINEAR_CE_ALIGN * LINEAR_CE_ALIGN;
}

/* A call with these operands and one result; its scratch is behind the logits. */
static inline LinearCeCall linear_ce_call(const KernelArgs *a, int op, int nin,
                                          const KTensor *in, KTensor out) {
  LinearCeCall c = {.op = op,
                    .a = {.attr = a->attr,
                          .nin = nin,
                          .nout = 1,
                          .out = {out},
                          .index = a->index,
                          .unit = a->unit}};
  for (int i = 0; i < nin; i++) c.a.in[i] = in[i];
  if (a->work) c.a.work = (char *)a->work + linear_ce_logits_bytes(a);
  return c;
}

/* The calls of piece number `piece`, in order; returns how many. They have no states. */
static inline int linear_ce_calls(int op, const KernelArgs *a, int64_t piece,
                                  LinearCeCall call[LINEAR_CE_CALLS]) {
  bool forward = op == OP_linear_ce_stats;
  int64_t width = a->in[0].dim[a->in[0].ndim - 1], n = linear_ce_piece(a), k = piece * n;
  KTensor x = linear_ce_rows(&a->in[0], k, n, width), w = a->in[1],
          l = linear_ce_logits(a), labels = linear_ce_column(&a->in[2], k, n);
  KTensor m = linear_ce_column(forward ? &a->out[0] : &a->in[3], k, n),
          s = linear_ce_rows(forward ? &a->out[1] : &a->in[4], k, n, 2);
  int calls = 0;
  call[calls++] = linear_ce_call(a, OP_linear, 2, (KTensor[]){x, w}, l);
  if (forward) {
    call[calls] = linear_ce_call(a, OP_ce_stats, 2, (KTensor[]){l, labels}, m);
    call[calls].a.nout = 2, call[calls].a.out[1] = s;
    return calls + 1;
  }
  call[calls++] =
      linear_ce_call(a, OP_ce_dx, 5, (KTensor[]){l, labels, m, s, a->in[5]}, l);
  if (op != OP_linear_ce_dx) {
    call[calls] = linear_ce_call(a, OP_linear_dw, 2, (KTensor[]){x, l}, a->out[0]);
    call[calls++].a.accumulate = a->accumulate || piece > 0;
  }
  if (op != OP_linear_ce_dw) {
    const KTensor *dx = &a->out[op == OP_linear_ce_back];
    call[calls++] = linear_ce_call(a, OP_linear_dx, 2, (KTensor[]){l, w},
                                   linear_ce_rows(dx, k, n, width));
  }
  return calls;
}

#endif
