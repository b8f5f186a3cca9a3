/* matrix_step.c - the step of an optimizer that needs whole matrices (Muon). What a
 * matrix moves along is its average of gradients made orthogonal by the Newton-Schulz
 * iteration of Keller Jordan: with X = the average over its norm, some times
 *   G = X X^T;  X = a X + (b G + c G^2) X
 * of its shorter side.
 *
 * Averages are stepped where their shards lie. Then each block of the buffer is gathered
 * over the axes that cut it flat, and over those that cut its matrices. Every matrix has
 * an owner among all these ranks, so that they share the work. What an owner has made
 * goes back in sums, to which the others add zeros, and is stepped along in shards. An
 * expert's matrices are its own, and so are a gate and what it multiplies where one
 * parameter holds both: a matrix here is one of a Hugging Face model's files.
 *
 * Programs are the same on all ranks but for pp, so all of them make matrices of equal
 * shape at the same time, each its own: a slot. */
#include "optimizer_step.h"
#include "rank_cost.h"

#include "vm/plan/optimizer.h"

/* ---- which matrices ---- */

typedef struct Matrix {
  const char *name;
  int64_t rows, cols;
  uint64_t first; /* element of the block */
  int cut, parts; /* the dimension that is cut, in each of its parts */
} Matrix;

typedef struct Whole {
  AxisSet flat, cut; /* axes over which the block is gathered */
  int ways, pieces;  /* ranks of these */
  int64_t box;       /* elements of the block */
  VEC(Matrix) matrix;
} Whole;

/* Of expert weights the first dimension counts matrices. */
static int rows_dim(const UnitParam *p) { return p->ndim - 2; }

static AxisSet cut_axes(const Mesh *m, const UnitParam *p, int dim) {
  return mesh_axes(m, place_dim_cuts(p->place, dim));
}

static AxisSet matrix_cut(const Mesh *m, const UnitParam *p) {
  return cut_axes(m, p, rows_dim(p)) | cut_axes(m, p, rows_dim(p) + 1);
}

static void add_matrices(Whole *w, const Mesh *m, const UnitParam *p, uint64_t first,
                         Arena *a) {
  const Dim *rows = &p->dim[rows_dim(p)], *cols = rows + 1;
  bool experts = p->ndim > 2;
  int apart = experts ? MAX(rows->parts, 1) : 1;
  int64_t n = (experts ? p->dim[0].local : 1) * apart;
  bool by_cols = cut_axes(m, p, rows_dim(p) + 1) != 0;
  for (int64_t i = 0; i < n; i++)
    *VEC_PUSH(a, w->matrix) =
        (Matrix){.name = p->name,
                 .rows = rows->size / apart,
                 .cols = cols->size,
                 .first = first + (uint64_t)(i * (rows->local / apart) * cols->local),
                 .cut = by_cols,
                 .parts = by_cols     ? MAX(cols->parts, 1)
                          : apart > 1 ? 1
                                      : MAX(rows->parts, 1)};
}

static Whole whole_of(const Mesh *m, const Units *u, const Regions *s, int block,
                      Arena *a) {
  const Block *b = &s->block[block];
  const Region *state = regions_find(s, REGION_STATE1, &s->param[b->at]);
  Whole w = {.flat = state->flat,
             .cut = matrix_cut(m, &u->param[s->param[b->at].param]),
             .ways = state->ways,
             .box = b->whole};
  w.pieces = mesh_size(m, w.cut);
  for (int i = b->at; i < b->at + b->n; i++) {
    const UnitParam *p = &u->param[s->param[i].param];
    assert(matrix_cut(m, p) == w.cut);
    add_matrices(&w, m, p, (uint64_t)(s->param[i].at - b->first), a);
  }
  return w;
}

static bool is_matrix(const Units *u, const Stored *p, const Regions *s) {
  const UnitParam *of = &u->param[p->param];
  return of->matrix && !of->frozen && regions_find(s, REGION_STATE1, p);
}

bool matrices_in(const Emit *e, const Stretch *r) {
  const Regions *s = &e->l->regions;
  return optimizer_row(&e->plan->opt)->matrices &&
         is_matrix(e->u, &s->param[r->first], s);
}

weft_status matrix_check(const Mesh *m, const Units *u, const Layout *l, weft_error *e) {
  for (int i = 0; i < l->regions.nparam; i++) {
    const UnitParam *p = &u->param[l->regions.param[i].param];
    if (!is_matrix(u, &l->regions.param[i], &l->regions)) continue;
    int cuts = 0;
    for (int d = rows_dim(p); d < p->ndim; d++)
      for (int x = 0; (x < AX_N);) {
        AxisSet axes = place_next_cut(p->place, d, &x);
        cuts += mesh_axes(m, axes) != 0;
      }
    if (cuts < 2) continue;
    char place[PLACE_STR];
    return err_set(e, WEFT_EPLAN,
                   "%s is cut as %s: an optimizer of whole matrices puts those together "
                   "that one axis cuts, along one dimension",
                   p->name, place_str(p->place, place));
  }
  return WEFT_OK;
}

/* ---- room ---- */

static int64_t shorter(const Matrix *x) { return MIN(x->rows, x->cols); }
static int64_t longer(const Matrix *x) { return MAX(x->rows, x->cols); }

static KTensor square(int64_t rows, int64_t cols) {
  return (KTensor){.dtype = DT_F32, .ndim = 2, .dim = {rows, cols}};
}

/* Scratch of the kernels that a matrix takes. */
static uint64_t scratch_of(const DeviceKind *d, const Matrix *x) {
  KTensor wide = square(shorter(x), longer(x)), g = square(shorter(x), shorter(x));
  OpAttr none = {0};
  const struct {
    int op;
    KernelArgs a;
  } call[] = {
      {OP_unit_norm, {.attr = &none, .nin = 1, .nout = 1, .in = {wide}, .out = {wide}}},
      {OP_linear, {.attr = &none, .nin = 2, .nout = 1, .in = {wide, wide}, .out = {g}}},
      {OP_linear_dw, {.attr = &none, .nin = 2, .nout = 1, .in = {g, g}, .out = {g}}},
      {OP_linear_dw,
       {.attr = &none, .nin = 2, .nout = 1, .in = {wide, g}, .out = {wide}}}};
  uint64_t bytes = 0;
  for (int i = 0; i < LEN(call); i++) bytes = MAX(bytes, d->work(call[i].op, &call[i].a));
  return bytes;
}

static uint64_t take(uint64_t *end, uint64_t bytes) {
  uint64_t at = *end;
  *end += align_up(bytes);
  return at;
}

MatrixRoom matrix_room(const Plan *plan, const Mesh *m, const Units *u, const Layout *l,
                       Arena *a) {
  const Regions *s = &l->regions;
  uint64_t box = 0, boxes = 0, wide = 0, square = 0, work = 0;
  if (!optimizer_row(&plan->opt)->matrices) return (MatrixRoom){0};
  for (int i = 0; i < s->nblock; i++) {
    if (!is_matrix(u, &s->param[s->block[i].at], s)) continue;
    Whole w = whole_of(m, u, s, i, a);
    box = MAX(box, (uint64_t)w.box);
    if (w.pieces > 1) boxes = MAX(boxes, (uint64_t)(w.box * w.pieces));
    for (int k = 0; k < w.matrix.n; k++) {
      const Matrix *x = &w.matrix.at[k];
      wide = MAX(wide, (uint64_t)(x->rows * x->cols));
      square = MAX(square, (uint64_t)(shorter(x) * shorter(x)));
      work = MAX(work, scratch_of(u->device, x));
    }
  }
  MatrixRoom room = {0};
  room.box = take(&room.bytes, sizeof(float) * box);
  room.boxes = take(&room.bytes, sizeof(float) * boxes);
  for (int i = 0; i < LEN(room.x); i++)
    room.x[i] = take(&room.bytes, sizeof(float) * wide);
  for (int i = 0; i < LEN(room.y); i++)
    room.y[i] = take(&room.bytes, sizeof(float) * square);
  room.work = take(&room.bytes, work);
  return room;
}

uint64_t matrix_bytes(const Plan *plan, const Mesh *m, const Units *u, const Layout *l,
                      Arena *scratch) {
  return matrix_room(plan, m, u, l, scratch).bytes;
}

/* ---- costs ---- */

static double iteration_flops(const Matrix *x) {
  double r = (double)shorter(x), c = (double)longer(x);
  return 4 * r * r * c + 2 * r * r * r;
}

MatrixCost matrix_cost(const Plan *plan, const Mesh *m, const Units *u, const Layout *l,
                       Arena *a) {
  const Regions *s = &l->regions;
  MatrixCost cost = {0};
  if (!optimizer_row(&plan->opt)->matrices) return cost;
  for (int i = 0; i < s->nblock; i++) {
    if (!is_matrix(u, &s->param[s->block[i].at], s)) continue;
    Whole w = whole_of(m, u, s, i, a);
    uint64_t bytes = 2 * sizeof(float) * (uint64_t)w.box;
    if (w.ways > 1) cost.flat += bytes;
    if (w.pieces > 1) cost.cut += bytes * (uint64_t)w.pieces;
    double flops = 0;
    for (int k = 0; k < w.matrix.n; k++) flops += iteration_flops(&w.matrix.at[k]);
    cost.flops += flops * (double)plan->opt.ns_steps / (w.ways * w.pieces);
  }
  return cost;
}

/* ---- instructions ---- */

/* While the step of a block is emitted. */
typedef struct Stepping {
  Emit *e;
  const Whole *w;
  const MatrixRoom *at;
  uint64_t boxes; /* of MatrixRoom: where the block is whole */
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
  int64_t r = shorter(m), c = longer(m);
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
                  .cut = s->w->flat | s->w->cut,
                  .dim = m->cut,
                  .parts = m->parts,
                  .inverse = m->rows > m->cols,
                  .first = m->first};
}

static void emit_take(const Stepping *s, const Matrix *m, int owner, uint64_t to) {
  OpAttr attr = attr_of(s, m, owner);
  emit_kernel(s->e, OP_matrix_take, &attr, m->name);
  operand(s, s->boxes, s->w->pieces, s->w->box, false);
  operand(s, to, shorter(m), longer(m), false);
  operand(s, to, shorter(m), longer(m), true);
}

static void emit_put(const Stepping *s, const Matrix *m, int owner, uint64_t from) {
  OpAttr attr = attr_of(s, m, owner);
  attr.scale = (float)optimizer_adjusts(&s->e->plan->opt, m->rows, m->cols);
  emit_kernel(s->e, OP_matrix_put, &attr, m->name);
  operand(s, from, shorter(m), longer(m), false);
  operand(s, s->boxes, s->w->pieces, s->w->box, false);
  operand(s, s->boxes, s->w->pieces, s->w->box, true);
}

/* A slot: n matrices of one shape, each of which its owner makes orthogonal. Who owns
 * none works on zeros. */
static void emit_slot(const Stepping *s, const Matrix *const *m, int n, int owners) {
  const Optimizer *o = &s->e->plan->opt;
  int64_t r = shorter(m[0]), c = longer(m[0]);
  int now = 0;
  if (n < owners) emit_zeros(s->e, DT_F32, place(s, s->at->x[1]), r * c, m[0]->name);
  for (int i = 0; i < n; i++) emit_take(s, m[i], i, s->at->x[1]);
  emit_kernel(s->e, OP_unit_norm, &(OpAttr){.eps = (float)o->ns_eps}, m[0]->name);
  operand(s, s->at->x[1], r, c, false);
  operand(s, s->at->x[0], r, c, true);
  scratch(s);
  for (int64_t i = 0; i < o->ns_steps; i++) newton_schulz(s, m[0], &now, i);
  for (int i = 0; i < n; i++) emit_put(s, m[i], i, s->at->x[now]);
}

static bool alike(const Matrix *a, const Matrix *b) {
  return shorter(a) == shorter(b) && longer(a) == longer(b);
}

/* All matrices, as many at a time as there are owners. */
static void emit_slots(const Stepping *s) {
  const Whole *w = s->w;
  Arena *a = s->e->scratch;
  int owners = w->ways * w->pieces;
  bool *done = NEW_N(a, bool, w->matrix.n);
  const Matrix **slot = (void *)arena_alloc(a, sizeof *slot * (size_t)owners);
  for (int i = 0; i < w->matrix.n; i++) {
    int n = 0;
    if (done[i]) continue;
    for (int k = i; k < w->matrix.n && n < owners; k++) {
      if (done[k] || !alike(&w->matrix.at[i], &w->matrix.at[k])) continue;
      slot[n++] = &w->matrix.at[k];
      done[k] = true;
    }
    emit_slot(s, slot, n, owners);
  }
}

/* A collective between a rank's shard of what is at `to` and the whole of it. */
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

static void emit_average(Emit *e, const Stretch *r, const OpAttr *attr, Extent u,
                         const char *what) {
  emit_kernel(e, OP_matrix_average, attr, what);
  in_region(e, REGION_GRAD, r, false);
  in_region(e, REGION_STATE1, r, false);
  emit_in(e, scalars_of(e), DT_F64);
  in_region(e, REGION_STATE1, r, true);
  emit_out(e, u, DT_F32);
}

static void emit_step(Emit *e, const Stretch *r, const OpAttr *attr, Extent u,
                      const char *what) {
  emit_kernel(e, OP_matrix_step, attr, what);
  in_region(e, REGION_MASTER, r, false);
  emit_in(e, u, DT_F32);
  emit_in(e, scalars_of(e), DT_F64);
  in_region(e, REGION_MASTER, r, true);
  in_region(e, REGION_WORK, r, true);
}

void matrix_step(Emit *e, const Compiled *c, const MatrixRoom *at, const Stretch *r) {
  const Regions *regions = &e->l->regions;
  Whole w = whole_of(e->mesh, e->u, regions, regions->param[r->first].block, e->scratch);
  Stepping s = {e, &w, at, w.pieces > 1 ? at->boxes : at->box};
  Extent box = {.off = place(&s, at->box), .n = w.box}, shard = box;
  Extent boxes = {.off = place(&s, s.boxes), .n = w.box * w.pieces};
  if (w.ways > 1) shard.n /= w.ways, shard.shard = w.flat;
  OpAttr attr = update_attr(e, &c->param[regions->param[r->first].param]);
  const char *what = update_name(e, c, r);
  emit_average(e, r, &attr, shard, what);
  if (w.ways > 1) exchange(&s, COLL_ALL_GATHER, w.flat, shard, box);
  if (w.pieces > 1) exchange(&s, COLL_ALL_GATHER, w.cut, box, boxes);
  emit_slots(&s);
  if (w.pieces > 1) exchange(&s, COLL_REDUCE_SCATTER, w.cut, boxes, box);
  if (w.ways > 1) exchange(&s, COLL_REDUCE_SCATTER, w.flat, box, shard);
  emit_step(e, r, &attr, shard, what);
}
