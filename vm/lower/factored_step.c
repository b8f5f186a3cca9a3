/* factored_step.c - the step of an optimizer that has of a matrix averages of its rows
 * and columns (Adafactor: Shazeer and Stern 2018, as torch.optim.Adafactor). With x the
 * gradient and p the parameter, of every matrix
 *   rows, columns = averages of the means of x^2 over each
 *   u = x / sqrt(rows columns / mean of rows)
 *   p -= rate * max(least, rms of p) / max(1, rms of u / threshold) * u
 * and so of every other parameter, with an average of x^2 in the place of the product.
 *
 * Ranks step their shards. What they need of the others is sums alone: those of x^2 and
 * p^2 over rows and columns, then those of u^2 over rows. Each block of the buffer has
 * them behind each other, summed over the axes that cut it flat and those that cut its
 * matrices, where activations were. A matrix is that of a Hugging Face model's files, as
 * in matrix_step.c. */
#include "optimizer_step.h"
#include "rank_cost.h"

#include "vm/plan/optimizer.h"

/* ---- the parameters of a block ---- */

/* M matrices of (rows, cols), or, with rows 0, a parameter of `cols` elements. */
typedef struct Factored {
  const char *name;
  const Stored *stored;
  int64_t matrices, rows, cols;
  int64_t local;       /* of these elements, on this rank */
  uint64_t first;      /* element of the block */
  int cut, parts;      /* the dimension that is cut, in each of its parts */
  uint64_t sums, norm; /* where its sums are, from the beginning of each */
} Factored;

typedef struct FactoredBlock {
  AxisSet flat, cut; /* axes that cut it flat, and that cut its parameters */
  int ways, pieces;  /* ranks of these */
  VEC(Factored) param;
  int64_t sums, norms; /* f64 of all of them */
} FactoredBlock;

static int64_t widths(const Factored *f) { return f->rows ? 2 * f->rows + f->cols : 1; }
static int64_t heights(const Factored *f) { return MAX(f->rows, 1); }

/* The axes that cut the matrices of a parameter, or what is none. */
static AxisSet inner_cut(const Mesh *m, const UnitParam *p) {
  return p->factors ? matrix_cut(m, p) : mesh_axes(m, place_cuts(p->place));
}

static Factored factored_of(const Mesh *m, const UnitParam *p, const Stored *at,
                            uint64_t first) {
  Factored f = {.name = p->name, .stored = at, .matrices = 1, .first = first};
  if (!p->factors) {
    f.cols = 1, f.local = p->count;
    for (int d = 0; d < p->ndim; d++) f.cols *= p->dim[d].size;
    return f;
  }
  const Dim *rows = &p->dim[p->ndim - 2], *cols = rows + 1;
  int apart = unit_matrices(p);
  f.matrices = (p->ndim > 2 ? p->dim[0].local : 1) * apart;
  f.rows = rows->size / apart, f.cols = cols->size;
  f.cut = matrix_dim_cut(m, p, p->ndim - 1) != 0;
  f.parts = f.cut ? MAX(cols->parts, 1) : apart > 1 ? 1 : MAX(rows->parts, 1);
  return f;
}

static FactoredBlock block_of(const Mesh *m, const Units *u, const Regions *s, int block,
                              Arena *a) {
  const Block *b = &s->block[block];
  const Region *g = regions_find(s, REGION_GRAD, &s->param[b->at]);
  FactoredBlock w = {.flat = g->flat,
                     .cut = inner_cut(m, &u->param[s->param[b->at].param]),
                     .ways = g->ways};
  w.pieces = mesh_size(m, w.cut);
  for (int i = b->at; i < b->at + b->n; i++) {
    const Stored *at = &s->param[i];
    const UnitParam *p = &u->param[at->param];
    Factored f = factored_of(m, p, at, (uint64_t)(at->at - b->first));
    assert(inner_cut(m, p) == w.cut);
    f.sums = sizeof(double) * (uint64_t)w.sums;
    f.norm = sizeof(double) * (uint64_t)w.norms;
    w.sums += f.matrices * widths(&f);
    w.norms += f.matrices * heights(&f);
    *VEC_PUSH(a, w.param) = f;
  }
  return w;
}

static bool in_factors(const Plan *plan, const Units *u, const Stored *p) {
  const UnitParam *of = &u->param[p->param];
  return optimizer_row(&plan->opt)->factored && !of->frozen && !(of->share > 0);
}

bool factored_in(const Emit *e, const Stretch *r) {
  return in_factors(e->plan, e->u, &e->l->regions.param[r->first]);
}

weft_status factored_check(const Plan *plan, const Mesh *m, const Units *u,
                           const Layout *l, weft_error *e) {
  if (!optimizer_row(&plan->opt)->factored) return WEFT_OK;
  for (int i = 0; i < l->regions.nparam; i++) {
    const UnitParam *p = &u->param[l->regions.param[i].param];
    if (p->factors && !p->frozen)
      TRY(matrix_one_cut(m, p,
                         "averages of rows and columns are of matrices that one axis "
                         "cuts, along one dimension",
                         e));
  }
  return WEFT_OK;
}

/* ---- room and costs ---- */

static FactoredRoom room_of(const FactoredBlock *w) {
  FactoredRoom r = {0};
  r.norms = align_up(sizeof(double) * (uint64_t)w->sums);
  r.work = r.norms + align_up(sizeof(double) * (uint64_t)w->norms);
  r.bytes = r.work;
  return r;
}

/* The largest of each part over all blocks. */
FactoredRoom factored_room(const Plan *plan, const Mesh *m, const Units *u,
                           const Layout *l, Arena *a) {
  const Regions *s = &l->regions;
  uint64_t sums = 0, norms = 0, work = 0;
  for (int i = 0; i < s->nblock; i++) {
    if (!in_factors(plan, u, &s->param[s->block[i].at])) continue;
    FactoredBlock w = block_of(m, u, s, i, a);
    FactoredRoom r = room_of(&w);
    sums = MAX(sums, r.norms), norms = MAX(norms, r.work - r.norms);
    for (int k = 0; k < w.param.n; k++)
      work = MAX(work, sizeof(double[2]) * (uint64_t)w.param.at[k].matrices);
  }
  return (FactoredRoom){.norms = sums,
                        .work = sums + norms,
                        .bytes = sums + norms + (sums ? align_up(work) : 0)};
}

uint64_t factored_bytes(const Plan *plan, const Mesh *m, const Units *u, const Layout *l,
                        Arena *scratch) {
  return factored_room(plan, m, u, l, scratch).bytes;
}

/* A sum over ranks moves each of its bytes twice. */
void factored_cost(const Plan *plan, const Mesh *m, const Units *u, const Layout *l,
                   Arena *scratch, Arena *a, StepMoves *out) {
  const Regions *s = &l->regions;
  for (int i = 0; i < s->nblock; i++) {
    if (!in_factors(plan, u, &s->param[s->block[i].at])) continue;
    FactoredBlock w = block_of(m, u, s, i, scratch);
    uint64_t bytes = 2 * sizeof(double) * (uint64_t)(w.sums + w.norms);
    if (w.ways * w.pieces > 1)
      step_move_add(out, (StepMove){MOVE_WHOLE, w.flat | w.cut, bytes, 0}, a);
  }
}

/* ---- instructions ---- */

/* While the step of a block is emitted. */
typedef struct Stepping {
  Emit *e;
  const FactoredBlock *w;
  const FactoredRoom *room;
  const Stretch *block;
  OpAttr attr; /* of the optimizer */
} Stepping;

static uint64_t place(const Stepping *s, uint64_t at) { return s->e->l->end + at; }

/* Gives the last operand two dimensions. */
static void shape(const Stepping *s, int64_t rows, int64_t cols) {
  Operand *o = &s->e->operand.at[s->e->operand.n - 1];
  o->ndim = 2, o->dim[0] = rows, o->dim[1] = cols;
}

static void sums_of(const Stepping *s, const Factored *f, bool result) {
  Extent at = {.off = place(s, f->sums), .n = f->matrices * widths(f)};
  (result ? emit_out : emit_in)(s->e, at, DT_F64);
  shape(s, f->matrices, widths(f));
}

static void norms_of(const Stepping *s, const Factored *f, bool result) {
  Extent at = {.off = place(s, s->room->norms + f->norm), .n = f->matrices * heights(f)};
  (result ? emit_out : emit_in)(s->e, at, DT_F64);
  shape(s, f->matrices, heights(f));
}

/* The rank's shard of the block in a region. */
static void shard_of(const Stepping *s, const Region *of, bool result) {
  (result ? emit_out : emit_in)(s->e, region_extent(of, s->block), (DType)of->dtype);
}

static const Region *region(const Stepping *s, const Factored *f, RegionKind kind) {
  return regions_find(&s->e->l->regions, kind, f->stored);
}

static void averages_of(const Stepping *s, const Factored *f, bool result) {
  const Region *r = region(s, f, REGION_STATE1);
  if (!f->rows) {
    shard_of(s, r, result);
    return;
  }
  Extent at = {.off = r->off + region_span(r, f->stored->factors),
               .n = f->matrices * (f->rows + f->cols)};
  (result ? emit_out : emit_in)(s->e, at, (DType)r->dtype);
  shape(s, f->matrices, f->rows + f->cols);
}

static void scalars(const Stepping *s) {
  emit_in(s->e, (Extent){.off = s->e->l->scalars, .n = SC_ZERO_FROM}, DT_F64);
}

static void begin(const Stepping *s, const Factored *f, int op) {
  OpAttr attr = s->attr;
  attr.rows = (int32_t)f->rows, attr.cols = (int32_t)f->cols;
  attr.dim = f->cut, attr.parts = f->parts, attr.pieces = s->w->pieces;
  attr.n = (int32_t)f->local;
  attr.first = f->first;
  attr.cut = s->w->pieces > 1 ? s->w->cut : 0;
  attr.flat = s->w->ways > 1 ? s->w->flat : 0;
  emit_kernel(s->e, op, &attr, f->name);
}

static void emit_sums(const Stepping *s, const Factored *f) {
  begin(s, f, OP_factored_sums);
  shard_of(s, regions_value(&s->e->l->regions, f->stored), false);
  shard_of(s, region(s, f, REGION_GRAD), false);
  scalars(s);
  sums_of(s, f, true);
}

static void emit_average(const Stepping *s, const Factored *f) {
  begin(s, f, OP_factored_average);
  shard_of(s, region(s, f, REGION_GRAD), false);
  averages_of(s, f, false);
  sums_of(s, f, false);
  scalars(s);
  averages_of(s, f, true);
}

static void emit_norm(const Stepping *s, const Factored *f) {
  begin(s, f, OP_factored_norm);
  shard_of(s, region(s, f, REGION_GRAD), false);
  averages_of(s, f, false);
  scalars(s);
  norms_of(s, f, true);
  emit_work_at(s->e, place(s, s->room->work));
}

static void emit_step(const Stepping *s, const Factored *f) {
  const Region *value = regions_value(&s->e->l->regions, f->stored);
  begin(s, f, OP_factored_step);
  shard_of(s, value, false);
  shard_of(s, region(s, f, REGION_GRAD), false);
  averages_of(s, f, false);
  sums_of(s, f, false);
  norms_of(s, f, false);
  scalars(s);
  shard_of(s, value, true);
  shard_of(s, region(s, f, REGION_WORK), true);
  emit_work_at(s->e, place(s, s->room->work));
}

/* Adds up what all ranks with parts of the block have. */
static void sum_over(const Stepping *s, uint64_t at, int64_t n, const char *what) {
  AxisSet axes = s->w->flat | s->w->cut;
  if (s->w->ways * s->w->pieces == 1) return;
  Extent all = {.off = place(s, at), .n = n};
  emit_coll(s->e, COLL_ALL_REDUCE, axes, SCALAR_HANDLE, what);
  emit_in(s->e, all, DT_F64);
  emit_out(s->e, all, DT_F64);
  emit_wait(s->e, SCALAR_HANDLE, what);
}

void factored_step(Emit *e, const Compiled *c, const FactoredRoom *room,
                   const Stretch *r) {
  const Regions *regions = &e->l->regions;
  const Stored *first = &regions->param[r->first];
  FactoredBlock w = block_of(e->mesh, e->u, regions, first->block, e->scratch);
  Stepping s = {.e = e,
                .w = &w,
                .room = room,
                .block = r,
                .attr = update_attr(e, &c->param[first->param])};
  for (int i = 0; i < w.param.n; i++) emit_sums(&s, &w.param.at[i]);
  sum_over(&s, 0, w.sums, "sums of squares");
  for (int i = 0; i < w.param.n; i++) emit_average(&s, &w.param.at[i]);
  for (int i = 0; i < w.param.n; i++) emit_norm(&s, &w.param.at[i]);
  sum_over(&s, room->norms, w.norms, "norms of steps");
  for (int i = 0; i < w.param.n; i++) emit_step(&s, &w.param.at[i]);
}
