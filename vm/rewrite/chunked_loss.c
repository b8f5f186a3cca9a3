/* chunked_loss.c - `loss_chunks` of a plan: the head and its loss as the ops linear_ce_*,
 * which compute pieces of the rows one after the other.
 *
 *   logits = linear(x, w)             linear_ce_stats(x, w, labels)
 *   ce_stats(logits, labels)    ->
 *   ce_dx, linear_dx, linear_dw       linear_ce_back(x, w, labels, m, s, g)
 *
 * The backward computes the logits again, piece by piece. What stands between, the
 * reductions of maximum and sum over shards of the vocabulary, stays as it is. All sums
 * over columns are those of whole logits, bit for bit; the gradient of w is a sum of
 * pieces. */
#include "rewrite_passes.h"

#include "rewrite.h"

void chunked_loss_marks(Graph *g) {
  for (int i = 0; i < g->op.n; i++) {
    if (g->op.at[i].code != OP_ce_max) continue;
    Oid by = g->t.at[g->op.at[i].in[0]].producer;
    if (by >= 0 && g->op.at[by].code == OP_linear) g->op.at[by].recomputed = true;
  }
}

/* ---- how many ---- */

static int64_t rows_of(const Graph *g, Tid t) {
  const Tensor *x = &g->t.at[t];
  return tensor_count(x) / x->dim[x->ndim - 1].local;
}

/* "auto": logits of a piece have no more elements than the rows that the head reads, but
 * products of few rows are slow. */
static int chosen(const Graph *g, const Op *linear) {
  enum { ROWS_LEAST = 128 };
  const Tensor *x = &g->t.at[linear->in[0]], *l = &g->t.at[linear->out[0]];
  int64_t rows = rows_of(g, linear->in[0]), n = 1;
  while (l->dim[l->ndim - 1].local > n * x->dim[x->ndim - 1].local &&
         rows % (2 * n) == 0 && rows / (2 * n) >= ROWS_LEAST)
    n *= 2;
  return (int)n;
}

/* Pieces of this head, or 0 if the rows cannot be cut so. */
static int pieces(const Plan *plan, const Graph *g, const Op *linear, Diags *d) {
  int n = plan->loss_chunks > 0 ? plan->loss_chunks : chosen(g, linear);
  int64_t rows = rows_of(g, linear->in[0]);
  if (rows % n == 0) return n;
  int64_t below = n;
  while (rows % below) below--;
  diag_error(d, "divisibility", "loss_chunks",
             "a rank has %lld rows of logits, which %d pieces do not divide",
             (long long)rows, n)
      ->suggestion = arena_printf(d->arena, "loss_chunks = %lld", (long long)below);
  return 0;
}

/* ---- what is written ---- */

/* The op at `at` becomes the one of this code, with these operands and results. */
static void write(Rewriter *r, Oid at, const Op *linear, int n, NewOp x) {
  rewrite_op(r, at, at, x);
  Op *op = &r->g->op.at[at];
  op->attr.layout = linear->attr.layout;
  op->attr.n = n;
  op->name = linear->name;
}

static void write_stats(Rewriter *r, Oid at, const Op *linear, int n) {
  const Op *op = &r->g->op.at[at];
  write(r, at, linear, n,
        (NewOp){.code = OP_linear_ce_stats,
                .nin = 3,
                .nout = 2,
                .in = {linear->in[0], linear->in[1], op->in[1]},
                .out = {op->out[0], op->out[1]}});
}

/* The products that read the gradient of logits, as far as there are any. */
typedef struct Gradients {
  Oid dx, dw;
} Gradients;

/* False if something else reads it. */
static bool find_gradients(const Rewriter *r, const Op *ce_dx, Gradients *x) {
  const Graph *g = r->g;
  Tid dl = ce_dx->out[0];
  *x = (Gradients){-1, -1};
  for (int i = r->first[dl]; i < r->first[dl + 1]; i++) {
    Oid id = r->reader[i];
    const Op *op = &g->op.at[id];
    if (op->code == OP_linear_dx && op->in[0] == dl)
      x->dx = id;
    else if (op->code == OP_linear_dw && op->in[1] == dl)
      x->dw = id;
    else
      return false;
  }
  return true;
}

/* One op gives both, in I. If another op reads dW, which would have to be kept for W,
 * each is computed where it was. */
static void write_gradients(Rewriter *r, Oid at, const Op *linear, Gradients of, int n) {
  Graph *g = r->g;
  const Op ce = g->op.at[at];
  NewOp x = {.code = OP_linear_ce_dx, .nin = 6, .nout = 1};
  const Tid in[6] = {linear->in[0], linear->in[1], ce.in[1],
                     ce.in[2],      ce.in[3],      ce.in[4]};
  memcpy(x.in, in, sizeof in);
  Tid dx = of.dx < 0 ? -1 : g->op.at[of.dx].out[0];
  Tid dw = of.dw < 0 ? -1 : g->op.at[of.dw].out[0];
  bool apart = dx >= 0 && dw >= 0 && readers_of(r, dw) > 0;
  if (of.dx >= 0) r->gone[of.dx] = true;
  if (of.dw >= 0) r->gone[of.dw] = true;
  x.out[0] = dx;
  if (dx < 0 || (dw >= 0 && !apart)) {
    x.code = dx < 0 ? OP_linear_ce_dw : OP_linear_ce_back;
    x.out[0] = dw, x.out[1] = dx, x.nout = dx < 0 ? 1 : 2;
  }
  Tid rows = apart ? g->op.at[of.dw].in[0] : -1;
  Op own = ce;
  write(r, at, linear, n, x);
  if (!apart) return;
  x.code = OP_linear_ce_dw, x.in[0] = rows, x.out[0] = dw;
  Phase ph = (Phase)g->op.at[of.dw].phase;
  g->op.at[of.dw] = own;
  g->op.at[of.dw].phase = (uint8_t)ph;
  write(r, of.dw, linear, n, x);
}

/* ---- patterns ---- */

/* Whether only cross entropy reads these logits; the products behind it. */
static bool is_head(const Rewriter *r, const Op *op) {
  const Graph *g = r->g;
  if (op->code != OP_linear || g->t.at[op->in[1]].kind != T_PARAM) return false;
  Tid l = op->out[0];
  Gradients x;
  for (int i = r->first[l]; i < r->first[l + 1]; i++) {
    const Op *by = &g->op.at[r->reader[i]];
    bool stats = by->code == OP_ce_stats;
    bool back = by->code == OP_ce_dx && by->in[0] == l && find_gradients(r, by, &x);
    if (!stats && !back) return false;
  }
  return readers_of(r, l) > 0;
}

static bool replace(const Plan *plan, Rewriter *r, Oid i, Diags *d) {
  const Op linear = r->g->op.at[i];
  int n = pieces(plan, r->g, &linear, d);
  if (!n) return false;
  for (int k = r->first[linear.out[0]]; k < r->first[linear.out[0] + 1]; k++) {
    Oid at = r->reader[k];
    Gradients of;
    if (r->g->op.at[at].code == OP_ce_stats) {
      write_stats(r, at, &linear, n);
    } else {
      find_gradients(r, &r->g->op.at[at], &of);
      write_gradients(r, at, &linear, of, n);
    }
  }
  r->gone[i] = true;
  return true;
}

/* Cross entropy whose logits are made otherwise. */
static bool refuse(const Graph *g, const Op *stats, Diags *d) {
  Oid by = g->t.at[stats->in[0]].producer;
  const char *what = by < 0 ? "something else" : op_info[g->op.at[by].code].name;
  bool gathered = by >= 0 && g->op.at[by].code == OP_all_gather;
  bool summed = by >= 0 && g->op.at[by].code == OP_all_reduce;
  diag_error(d, "unsupported", "loss_chunks",
             gathered || summed
                 ? "ranks of tp exchange the logits (`%s`) before cross entropy: they "
                   "cannot be made in pieces"
                 : "logits of this model come from `%s`, not from a linear alone: they "
                   "cannot be made in pieces",
             what)
      ->suggestion = gathered ? "strategy.loss_parallel = true leaves them cut"
                     : summed ? "the style \"colwise\" of the head leaves them cut"
                              : "leave loss_chunks out";
  return false;
}

bool chunked_loss(const Plan *plan, Graph *g, Diags *d) {
  Rewriter r = rewrite_begin(g);
  bool ok = true;
  for (int i = 0; i < g->op.n && ok; i++)
    if (!r.gone[i] && is_head(&r, &g->op.at[i])) ok = replace(plan, &r, i, d);
  for (int i = 0; i < g->op.n && ok; i++)
    if (!r.gone[i] && g->op.at[i].code == OP_ce_stats) ok = refuse(g, &g->op.at[i], d);
  rewrite_end(&r);
  return ok;
}
