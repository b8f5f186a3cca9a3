/* matrix_step.c - the step of an optimizer that needs whole matrices (Muon). What a
 * matrix moves along is its average of gradients made orthogonal by the Newton-Schulz
 * iteration of Keller Jordan: with X = the average over its norm, some times
 *   G = X X^T;  X = a X + (b G + c G^2) X
 * of its shorter side.
 *
 * Averages are stepped where their shards lie. Then blocks of the buffer are gathered
 * over the axes that cut them flat, and over those that cut their matrices: as many at a
 * time as have room where the activations were. Every matrix has an owner among all these
 * ranks, so that they share the work. What an owner has made
 * goes back in sums, to which the others add zeros, and is stepped along in shards. An
 * expert's matrices are its own, and so are a gate and what it multiplies where one
 * parameter holds both: a matrix here is one of a Hugging Face model's files.
 *
 * Programs are the same on all ranks but for pp, so all of them make matrices of equal
 * shape at the same time, each its own: a slot. */
#include "optimizer_step.h"

#include "vm/plan/optimizer.h"

/* ---- instructions ---- */

/* A block that is stepped together with others. */
typedef struct Gathered {
  Whole whole;
  Stretch at;
  Extent shard, box, boxes; /* of averages: the rank's, all of the block, and of all its
                             * pieces */
} Gathered;

/* A matrix of one of them. */
typedef struct Member {
  Matrix of;
  Extent boxes; /* of its block */
  bool done;
} Member;

/* While some blocks are stepped. */
typedef struct Stepping {
  Emit *e;
  const MatrixRoom *at;
  VEC(Gathered) block;
  VEC(Member) matrix;
  AxisSet flat, cut;
  int ways, pieces;
} Stepping;

static uint64_t place(const Stepping *s, uint64_t at) { return s->e->l->end + at; }

/* Adds a matrix as an operand of the last instruction, an input or a result. */
static void operand(const Stepping *s, uint64_t at, int64_t rows, int64_t cols,
                    bool result) {
  Emit *e = s->e;
  Extent all = {.off = place(s, at), .n = rows * cols};
  if (result)
    emit_out(e, all, DT_F32);
  else
    emit_in(e, all, DT_F32);
  Operand *o = &e->operand.at[e->operand.n - 1];
  o->ndim = 2, o->dim[0] = rows, o->dim[1] = cols;
}

/* Starts the kernel's scratch behind its other operands. */
static void scratch(const Stepping *s) { emit_work_at(s->e, place(s, s->at->work)); }

static void scaled(const Stepping *s, uint64_t from, uint64_t to, int64_t rows,
                   int64_t cols, double by, const char *what) {
  emit_kernel(s->e, OP_scale, &(OpAttr){.scale = (float)by}, what);
  operand(s, from, rows, cols, false);
  operand(s, to, rows, cols, true);
}

/* to(r,c) += h(r,r)^T x(r,c) */
static void add_product(const Stepping *s, uint64_t x, uint64_t h, uint64_t to, int64_t r,
                        int64_t c, const char *what) {
  emit_kernel(s->e, OP_linear_dw, NULL, what);
  s->e->code.at[s->e->code.n - 1].acc = ACC_ALWAYS;
  operand(s, x, r, c, false);
  operand(s, h, r, r, false);
  operand(s, to, r, c, true);
  scratch(s);
}

/* One step of the iteration, from x[*now] to the other one. */
static void newton_schulz(const Stepping *s, const Matrix *m, int *now, int64_t step) {
  const double *a = optimizer_ns(&s->e->plan->opt, step);
  const uint64_t *y = s->at->y, from = s->at->x[*now], to = s->at->x[!*now];
  int64_t r = matrix_shorter(m), c = matrix_longer(m);
  emit_kernel(s->e, OP_linear, NULL, m->name);
  operand(s, from, r, c, false);
  operand(s, from, r, c, false);
  operand(s, y[0], r, r, true);
  scratch(s);
  scaled(s, y[0], y[1], r, r, a[1], m->name);
  scaled(s, y[0], y[2], r, r, a[2], m->name);
  add_product(s, y[0], y[2], y[1], r, r, m->name);
  scaled(s, from, to, r, c, a[0], m->name);
  add_product(s, from, y[1], to, r, c, m->name);
  *now = !*now;
}

/* What matrix_take and matrix_put say of a matrix, whose owner has this number. */
static OpAttr attr_of(const Stepping *s, const Matrix *m, int owner) {
  return (OpAttr){.from = owner,
                  .cut = s->flat | s->cut,
                  .dim = m->cut,
                  .parts = m->parts,
                  .inverse = m->rows > m->cols,
                  .first = m->first};
}

/* The gathered block of a matrix, as an operand. */
static void boxes(const Stepping *s, const Member *x, bool result) {
  int64_t box = x->boxes.n / s->pieces;
  operand(s, x->boxes.off - s->e->l->end, s->pieces, box, result);
}

static void emit_take(const Stepping *s, const Member *x, int owner, uint64_t to) {
  const Matrix *m = &x->of;
  OpAttr attr = attr_of(s, m, owner);
  emit_kernel(s->e, OP_matrix_take, &attr, m->name);
  boxes(s, x, false);
  operand(s, to, matrix_shorter(m), matrix_longer(m), false);
  operand(s, to, matrix_shorter(m), matrix_longer(m), true);
}

static void emit_put(const Stepping *s, const Member *x, int owner, uint64_t from) {
  const Matrix *m = &x->of;
  OpAttr attr = attr_of(s, m, owner);
  attr.scale = (float)optimizer_adjusts(&s->e->plan->opt, m->rows, m->cols);
  emit_kernel(s->e, OP_matrix_put, &attr, m->name);
  operand(s, from, matrix_shorter(m), matrix_longer(m), false);
  boxes(s, x, false);
  boxes(s, x, true);
}

/* A slot: n matrices of one shape, each of which its owner makes orthogonal. Who owns
 * none works on zeros. */
static void emit_slot(const Stepping *s, const Member *const *x, int n, int owners) {
  const Optimizer *o = &s->e->plan->opt;
  const Matrix *m = &x[0]->of;
  int64_t r = matrix_shorter(m), c = matrix_longer(m);
  int now = 0;
  if (n < owners) emit_zeros(s->e, DT_F32, place(s, s->at->x[1]), r * c, m->name);
  for (int i = 0; i < n; i++) emit_take(s, x[i], i, s->at->x[1]);
  emit_kernel(s->e, OP_unit_norm, &(OpAttr){.eps = (float)o->ns_eps}, m->name);
  operand(s, s->at->x[1], r, c, false);
  operand(s, s->at->x[0], r, c, true);
  scratch(s);
  for (int64_t i = 0; i < o->ns_steps; i++) newton_schulz(s, m, &now, i);
  for (int i = 0; i < n; i++) emit_put(s, x[i], i, s->at->x[now]);
}

static bool alike(const Matrix *a, const Matrix *b) {
  return matrix_shorter(a) == matrix_shorter(b) && matrix_longer(a) == matrix_longer(b);
}

/* All matrices, as many at a time as there are owners. */
static void emit_slots(Stepping *s) {
  int owners = s->ways * s->pieces, all = s->matrix.n;
  const Member **slot = (void *)arena_alloc(s->e->scratch, sizeof *slot * (size_t)owners);
  for (int i = 0; i < all; i++) {
    int n = 0;
    if (s->matrix.at[i].done) continue;
    for (int k = i; k < all && n < owners; k++) {
      Member *x = &s->matrix.at[k];
      if (x->done || !alike(&s->matrix.at[i].of, &x->of)) continue;
      slot[n++] = x;
      x->done = true;
    }
    emit_slot(s, slot, n, owners);
  }
}

/* A collective between a rank's shard of averages and the whole of them. */
static void exchange(const Stepping *s, CollKind coll, AxisSet axes, Extent in,
                     Extent out) {
  emit_coll(s->e, coll, axes, SCALAR_HANDLE, "averages of gradients");
  emit_in(s->e, in, DT_F32);
  emit_out(s->e, out, DT_F32);
  emit_wait(s->e, SCALAR_HANDLE, "averages of gradients");
}

/* What the scalars and a region have for the ops over a block. */
static Extent scalars_of(const Emit *e) {
  return (Extent){.off = e->l->scalars, .n = SC_ZERO_FROM};
}

static void in_region(Emit *e, RegionKind kind, const Stretch *r, bool result) {
  const Regions *s = &e->l->regions;
  const Stored *p = &s->param[r->first];
  const Region *of =
      kind == REGION_MASTER ? regions_value(s, p) : regions_find(s, kind, p);
  if (result)
    emit_out(e, region_extent(of, r), (DType)of->dtype);
  else
    emit_in(e, region_extent(of, r), (DType)of->dtype);
}

static void emit_average(Emit *e, const Gathered *b, const OpAttr *attr,
                         const char *what) {
  emit_kernel(e, OP_matrix_average, attr, what);
  in_region(e, REGION_GRAD, &b->at, false);
  in_region(e, REGION_STATE1, &b->at, false);
  emit_in(e, scalars_of(e), DT_F64);
  in_region(e, REGION_STATE1, &b->at, true);
  emit_out(e, b->shard, DT_F32);
}

static void emit_step(Emit *e, const Gathered *b, const OpAttr *attr, const char *what) {
  emit_kernel(e, OP_matrix_step, attr, what);
  in_region(e, REGION_MASTER, &b->at, false);
  emit_in(e, b->shard, DT_F32);
  emit_in(e, scalars_of(e), DT_F64);
  in_region(e, REGION_MASTER, &b->at, true);
  in_region(e, REGION_WORK, &b->at, true);
}

/* ---- blocks ---- */

/* Where a block lies once it is gathered, from `at` of the arena on. */
static Gathered gathered(Emit *e, const Whole *w, int block, uint64_t at) {
  const Regions *s = &e->l->regions;
  const Region *state = regions_find(s, REGION_STATE1, &s->param[s->block[block].at]);
  Gathered g = {.whole = *w, .at = regions_block(s, block, state)};
  g.box = g.shard = g.boxes = (Extent){.off = at, .n = w->box};
  if (w->ways > 1) g.shard.n /= w->ways, g.shard.shard = w->flat;
  if (w->pieces > 1)
    g.boxes = (Extent){.off = at + align_up(sizeof(float) * (uint64_t)w->box),
                       .n = w->box * w->pieces};
  return g;
}

static void add_block(Stepping *s, const Whole *w, int block, uint64_t at) {
  Arena *a = s->e->scratch;
  Gathered g = gathered(s->e, w, block, at);
  *VEC_PUSH(a, s->block) = g;
  for (int i = 0; i < w->matrix.n; i++)
    *VEC_PUSH(a, s->matrix) = (Member){w->matrix.at[i], g.boxes, false};
}

/* Takes blocks from parameter `first` on that the same ranks share, as many as have room:
 * a block alone may have fewer matrices of a shape than there are ranks to make them. */
static int take_blocks(Stepping *s, int first, int end) {
  Emit *e = s->e;
  const Regions *r = &e->l->regions;
  uint64_t at = place(s, s->at->blocks), last = e->l->end + e->dead;
  int i = first;
  for (int n; i < end; i += n) {
    int block = r->param[i].block;
    Whole w = whole_of(e->mesh, e->u, r, block, e->scratch);
    bool shared = w.flat == s->flat && w.cut == s->cut && w.ways * w.pieces > 1;
    if (i > first && (!shared || whole_bytes(&w) > last - at)) break;
    s->flat = w.flat, s->cut = w.cut, s->ways = w.ways, s->pieces = w.pieces;
    add_block(s, &w, block, at);
    at += whole_bytes(&w);
    n = r->block[block].n;
  }
  return i;
}

int matrix_step(Emit *e, const Compiled *c, const MatrixRoom *at, int first, int end) {
  const Regions *regions = &e->l->regions;
  Stepping s = {.e = e, .at = at};
  int next = take_blocks(&s, first, end);
  OpAttr attr = update_attr(e, &c->param[regions->param[first].param]);
  for (int i = 0; i < s.block.n; i++) {
    const Gathered *b = &s.block.at[i];
    emit_average(e, b, &attr, update_name(e, c, &b->at));
    if (s.ways > 1) exchange(&s, COLL_ALL_GATHER, s.flat, b->shard, b->box);
    if (s.pieces > 1) exchange(&s, COLL_ALL_GATHER, s.cut, b->box, b->boxes);
  }
  emit_slots(&s);
  for (int i = 0; i < s.block.n; i++) {
    const Gathered *b = &s.block.at[i];
    if (s.pieces > 1) exchange(&s, COLL_REDUCE_SCATTER, s.cut, b->boxes, b->box);
    if (s.ways > 1) exchange(&s, COLL_REDUCE_SCATTER, s.flat, b->box, b->shard);
    emit_step(e, b, &attr, update_name(e, c, &b->at));
  }
  return next;
}
