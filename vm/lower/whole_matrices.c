/* whole_matrices.c - which matrices an optimizer steps as a whole, where their blocks of
 * the buffer are gathered, and what that takes. See matrix_step.c. */
#include "optimizer_step.h"
#include "rank_cost.h"

#include "vm/plan/optimizer.h"

/* ---- which matrices ---- */

static int rows_dim(const UnitParam *p) { return p->ndim - 2; }

AxisSet matrix_dim_cut(const Mesh *m, const UnitParam *p, int dim) {
  return mesh_axes(m, place_dim_cuts(p->place, dim));
}

AxisSet matrix_cut(const Mesh *m, const UnitParam *p) {
  return matrix_dim_cut(m, p, rows_dim(p)) | matrix_dim_cut(m, p, rows_dim(p) + 1);
}

weft_status matrix_one_cut(const Mesh *m, const UnitParam *p, const char *why,
                           weft_error *e) {
  int cuts = 0;
  for (int d = rows_dim(p); d < p->ndim; d++)
    for (int x = 0; (x < AX_N);)
      cuts += mesh_axes(m, place_next_cut(p->place, d, &x)) != 0;
  if (cuts < 2) return WEFT_OK;
  char place[PLACE_STR];
  return err_set(e, WEFT_EPLAN, "%s is cut as %s: %s", p->name,
                 place_str(p->place, place), why);
}

static void add_matrices(Whole *w, const Mesh *m, const UnitParam *p, uint64_t first,
                         Arena *a) {
  const Dim *rows = &p->dim[rows_dim(p)], *cols = rows + 1;
  bool experts = p->ndim > 2;
  int apart = experts ? MAX(rows->parts, 1) : 1;
  int64_t n = (experts ? p->dim[0].local : 1) * apart;
  bool by_cols = matrix_dim_cut(m, p, rows_dim(p) + 1) != 0;
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

Whole whole_of(const Mesh *m, const Units *u, const Regions *s, int block, Arena *a) {
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
    if (is_matrix(u, &l->regions.param[i], &l->regions))
      TRY(matrix_one_cut(m, p,
                         "an optimizer of whole matrices puts those together that one "
                         "axis cuts, along one dimension",
                         e));
  }
  return WEFT_OK;
}

/* ---- room ---- */

static KTensor square(int64_t rows, int64_t cols) {
  return (KTensor){.dtype = DT_F32, .ndim = 2, .dim = {rows, cols}};
}

/* Scratch of the kernels that a matrix takes. */
static uint64_t scratch_of(const DeviceKind *d, const Matrix *x) {
  KTensor wide = square(matrix_shorter(x), matrix_longer(x)),
          g = square(matrix_shorter(x), matrix_shorter(x));
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

uint64_t whole_bytes(const Whole *w) {
  uint64_t box = sizeof(float) * (uint64_t)w->box;
  return align_up(box) + (w->pieces > 1 ? align_up(box * (uint64_t)w->pieces) : 0);
}

MatrixRoom matrix_room(const Plan *plan, const Mesh *m, const Units *u, const Layout *l,
                       Arena *a) {
  const Regions *s = &l->regions;
  uint64_t block = 0, wide = 0, square = 0, work = 0;
  if (!optimizer_row(&plan->opt)->matrices) return (MatrixRoom){0};
  for (int i = 0; i < s->nblock; i++) {
    if (!is_matrix(u, &s->param[s->block[i].at], s)) continue;
    Whole w = whole_of(m, u, s, i, a);
    block = MAX(block, whole_bytes(&w));
    for (int k = 0; k < w.matrix.n; k++) {
      const Matrix *x = &w.matrix.at[k];
      wide = MAX(wide, (uint64_t)(x->rows * x->cols));
      square = MAX(square, (uint64_t)(matrix_shorter(x) * matrix_shorter(x)));
      work = MAX(work, scratch_of(u->device, x));
    }
  }
  MatrixRoom room = {0};
  for (int i = 0; i < LEN(room.x); i++)
    room.x[i] = take(&room.bytes, sizeof(float) * wide);
  for (int i = 0; i < LEN(room.y); i++)
    room.y[i] = take(&room.bytes, sizeof(float) * square);
  room.work = take(&room.bytes, work);
  room.blocks = take(&room.bytes, block);
  return room;
}

uint64_t matrix_bytes(const Plan *plan, const Mesh *m, const Units *u, const Layout *l,
                      Arena *scratch) {
  return matrix_room(plan, m, u, l, scratch).bytes;
}

/* ---- costs ---- */

static double iteration_flops(const Matrix *x) {
  double r = (double)matrix_shorter(x), c = (double)matrix_longer(x);
  return 4 * r * r * c + 2 * r * r * r;
}

/* Averages are gathered and sums of what owners made scattered: each byte twice. */
double matrix_cost(const Plan *plan, const Mesh *m, const Units *u, const Layout *l,
                   Arena *scratch, Arena *a, StepMoves *out) {
  const Regions *s = &l->regions;
  double all = 0;
  if (!optimizer_row(&plan->opt)->matrices) return 0;
  for (int i = 0; i < s->nblock; i++) {
    if (!is_matrix(u, &s->param[s->block[i].at], s)) continue;
    Whole w = whole_of(m, u, s, i, scratch);
    uint64_t bytes = 2 * sizeof(float) * (uint64_t)w.box;
    if (w.ways > 1) step_move_add(out, (StepMove){MOVE_WHOLE, w.flat, bytes, 0}, a);
    if (w.pieces > 1)
      step_move_add(out, (StepMove){MOVE_WHOLE, w.cut, bytes * (uint64_t)w.pieces, 0}, a);
    double flops = 0;
    for (int k = 0; k < w.matrix.n; k++) flops += iteration_flops(&w.matrix.at[k]);
    all += flops * (double)plan->opt.ns_steps / (w.ways * w.pieces);
  }
  return all;
}
