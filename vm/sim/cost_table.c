/* cost_table.c - finds rows of a table and what lies between them; see cost_table.h. */
#include "cost_table.h"

#include <math.h>

#include "vm/graph/op_attrs.h"

const char *const cost_from_name[COST_FROM_N] = {"measured", "interpolated",
                                                 "data sheet"};

/* ---- what identifies a kernel ---- */

DType kernel_dtype(const Program *p, const Instr *in) {
  const Operand *o = &p->operand[in->operand];
  for (int i = 0; i < in->nin + in->nout; i++)
    if (o[i].dtype != DT_I32) return (DType)o[i].dtype;
  return DT_I32;
}

static void add_operand(const Operand *o, TextBuf *out) {
  textbuf_printf(out, "%s[", dtype_name((DType)o->dtype));
  for (int i = 0; i < o->ndim; i++)
    textbuf_printf(out, i ? ",%lld" : "%lld", (long long)o->dim[i]);
  textbuf_printf(out, "]");
}

/* Attributes that change how much there is to do, or by which code; not by
 * which library, which is the device's own choice. */
static void add_attr(void *ud, const char *name, double v) {
  static const char *const timed[] = {
      "dim",  "experts", "from",        "head_dim",    "head_part", "inverse",
      "kind", "layout",  "interleaved", "mirror",      "n",         "parts",
      "rate", "red",     "rotary_dim",  "rotary_from", "score",     "soft_cap",
      "step", "topk",    "value_dim",   "window"};
  for (int i = 0; i < LEN(timed); i++)
    if (strcmp(timed[i], name) == 0) textbuf_printf(ud, " %s=%.6g", name, v);
}

void kernel_shape(const Program *p, const Instr *in, char out[KERNEL_SHAPE]) {
  const Operand *o = &p->operand[in->operand];
  TextBuf t = textbuf(out, KERNEL_SHAPE);
  for (int i = 0; i < in->nin + in->nout; i++) {
    textbuf_printf(&t, "%s", i == 0 ? "" : i == in->nin ? " -> " : ", ");
    add_operand(&o[i], &t);
  }
  if (in->acc != ACC_NEVER) textbuf_printf(&t, " accumulate");
  attr_each(&p->attr[in->attr], add_attr, &t);
}

/* ---- kernels ---- */

const KernelRow *table_kernel(const CostTable *t, int op, const char *shape) {
  for (int i = 0; i < t->kernel.n; i++)
    if (t->kernel.at[i].op == op && strcmp(t->kernel.at[i].shape, shape) == 0)
      return &t->kernel.at[i];
  return NULL;
}

/* How often one size has to be doubled to come to the other. */
static double doublings(double a, double b) { return a > 0 && b > 0 ? log2(a / b) : 0; }

/* The square of the distance of two kernels: in the sizes of products and attention, in
 * bytes for all others. */
static double distance(const KernelWork *a, const KernelWork *b) {
  if (a->kind == WORK_MOVE || a->kind == WORK_STEP) {
    double d = doublings(a->bytes, b->bytes);
    return d * d;
  }
  double m = doublings(a->m, b->m), n = doublings(a->n, b->n), k = doublings(a->k, b->k);
  double heads = doublings(a->heads, b->heads);
  return m * m + n * n + k * k + heads * heads;
}

static double roofline(const Cluster *k, const KernelWork *w) {
  SheetRates r = sheet_roofline();
  return sheet_kernel(k, &r, w);
}

/* A kernel of experts was measured while all got the same; with others' rows, too, it
 * takes as many times that as its roofline does. */
static double as_filled(const Cluster *k, const KernelWork *w, const KernelRow *r) {
  if (w->flops == r->work.flops && w->bytes == r->work.bytes) return r->seconds;
  KernelWork was = *w;
  was.m = r->work.m, was.n = r->work.n, was.k = r->work.k;
  was.flops = r->work.flops, was.bytes = r->work.bytes;
  double then = roofline(k, &was);
  return then > 0 ? r->seconds * roofline(k, w) / then : r->seconds;
}

/* Doublings beyond which a row says nothing. */
enum { FARTHEST = 3 };

/* Rows of the op weigh by the square of their distance. */
Cost table_kernel_cost(const CostTable *t, const Cluster *k, int op, const char *shape,
                       const KernelWork *w) {
  const double same = 1e-6;
  const KernelRow *exact = table_kernel(t, op, shape);
  if (exact) return (Cost){as_filled(k, w, exact), COST_MEASURED};
  double sum = 0, weights = 0, own = roofline(k, w);
  for (int i = 0; i < t->kernel.n; i++) {
    const KernelRow *r = &t->kernel.at[i];
    double bound = roofline(k, &r->work), d = distance(w, &r->work);
    bool near = r->op == op && r->work.kind == w->kind && r->work.dtype == w->dtype;
    if (!near || d > FARTHEST * FARTHEST || !(bound > 0 && r->seconds > 0)) continue;
    double weight = 1 / (d + same);
    sum += weight * log(r->seconds / bound);
    weights += weight;
  }
  if (!(weights > 0 && own > 0)) return (Cost){0, COST_SHEET};
  return (Cost){own * exp(sum / weights), COST_INTERPOLATED};
}

/* ---- collectives ---- */

static bool alike(const MoveRow *r, CollKind kind, DType dtype, int ranks) {
  return r->kind == kind && r->dtype == dtype && r->ranks == ranks;
}

const MoveRow *table_move(const CostTable *t, CollKind kind, DType dtype, int ranks,
                          double bytes) {
  for (int i = 0; i < t->move.n; i++) {
    const MoveRow *r = &t->move.at[i];
    if (alike(r, kind, dtype, ranks) && r->bytes == bytes) return r;
  }
  return NULL;
}

/* The nearest row with more bytes, or with fewer, than `than`. */
static const MoveRow *next(const CostTable *t, CollKind kind, DType dtype, int ranks,
                           double than, bool more) {
  const MoveRow *best = NULL;
  for (int i = 0; i < t->move.n; i++) {
    const MoveRow *r = &t->move.at[i];
    bool beyond = more ? r->bytes > than : r->bytes < than;
    if (!alike(r, kind, dtype, ranks) || !beyond) continue;
    if (!best || (more ? r->bytes < best->bytes : r->bytes > best->bytes)) best = r;
  }
  return best;
}

/* On the line through the rows on both sides, or, near to them, the last two of one side;
 * never less than the smaller of them, as a line through noise may fall. */
Cost table_move_cost(const CostTable *t, CollKind kind, DType dtype, int ranks,
                     double bytes) {
  const MoveRow *exact = table_move(t, kind, dtype, ranks, bytes);
  if (exact) return (Cost){exact->seconds, COST_MEASURED};
  const MoveRow *a = next(t, kind, dtype, ranks, bytes, false);
  const MoveRow *b = next(t, kind, dtype, ranks, bytes, true);
  bool near = (a && b) || (a && doublings(bytes, a->bytes) <= FARTHEST) ||
              (b && doublings(b->bytes, bytes) <= FARTHEST);
  if (!near) return (Cost){0, COST_SHEET};
  if (!a) return (Cost){b->seconds, COST_INTERPOLATED};
  if (!b && a) b = a, a = next(t, kind, dtype, ranks, a->bytes, false);
  if (!a) return (Cost){0, COST_SHEET};
  double beta = MAX((b->seconds - a->seconds) / (b->bytes - a->bytes), 0);
  return (Cost){a->seconds + beta * (bytes - a->bytes), COST_INTERPOLATED};
}
