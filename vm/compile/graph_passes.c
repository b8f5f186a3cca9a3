/* graph_passes.c - the passes from a logical graph to units:
 *
 *   graph --autodiff--> joint graph --shard--> graph of one rank with collectives
 *     --recompute--> with forward ops again before the backward
 *     --fuse_ops, fuse_projections--> fewer ops --chunked_loss--> no whole logits
 *     --units_make--> Units
 *
 * Runs of equal layers are folded before and unfolded after (fold_layers.h). */
#include "graph_passes.h"

#include "vm/code/unfold_layers.h"
#include "vm/graph/graph_json.h"
#include "vm/rewrite/fp8_linears.h"
#include "vm/rewrite/rewrite_passes.h"
#include "vm/rewrite/recompute.h"
#include "vm/base/budget.h"
#include "vm/base/strict.h"

/* If `dump` has the letter; a capital one asks for JSON. */
static void dump(const CompileInput *in, char letter, const char *pass, const Graph *g) {
  if (!in->dump || !in->dump_out) return;
  if (strchr(in->dump, letter)) {
    text_printf(in->dump_out, "; after %s\n", pass);
    graph_dump(g, in->dump_out);
  } else if (strchr(in->dump, letter - 'a' + 'A')) {
    graph_json(g, NULL, &(Json){.out = in->dump_out, .pretty = true});
  }
}

/* Checks the invariants of the graph between two passes, when strict checking is on. */
static weft_status checked(const Graph *g, weft_error *e) {
  return strict_asked() ? graph_check(g, e) : WEFT_OK;
}

static weft_status checked_places(const CompileInput *in, const Sharded *s,
                                  weft_error *e) {
  return strict_asked() ? shard_check(in->graph, s, !in->context, e) : WEFT_OK;
}

/* ---- sizes ---- */

/* Element counts are limited so that byte counts of single tensors and their sums fit in
 * 64 bits. */
static bool sizes_fit(const CompileInput *in, Diags *d) {
  const Graph *g = in->graph;
  for (int i = 0; i < g->t.n; i++) {
    const Tensor *t = &g->t.at[i];
    double n = dims_size(t->dim, t->ndim);
    if (n <= (double)((uint64_t)1 << ELEMENTS_LOG2)) continue;
    char label[96];
    diag_error(d, "range", t->kind == T_PARAM ? "model" : "batch",
               "%s would have %.3g elements, at most 2^%d can be counted",
               tensor_label(g, i, label), n, ELEMENTS_LOG2);
    return false;
  }
  return true;
}

/* ---- the passes ---- */

/* The passes on one graph; they add to in->graph. */
static weft_status front(const CompileInput *in, bool code, Arena *keep, Units *out,
                         Diags *d, weft_error *e) {
  Sharded sh;
  bool splits = compile_splits(in);
  bool pieces = in->plan->loss_chunks > 1 || in->plan->loss_chunks == LOSS_CHUNKS_AUTO;
  recompute_set(in->graph, in->plan, in->arena);
  if (pieces) chunked_loss_marks(in->graph);
  /* requires a finished graph; establishes gradients and phases */
  if (in->context)
    forward_alone(in->graph);
  else
    TRY(autodiff(in->graph, d));
  TRY(checked(in->graph, e));
  dump(in, 'a', "autodiff", in->graph);
  /* requires phases; establishes placements, local shapes and collectives */
  TRY(shard(in, &sh, d, e));
  TRY(checked(sh.g, e));
  TRY(checked_places(in, &sh, e));
  drop_unread(in->graph, sh.g);
  /* requires a sharded graph; moves cheap weight gradients from W to I where the schedule
   * splits them */
  if (splits) split_wgrads(in->graph, &sh);
  dump(in, 's', "shard", sh.g);
  /* requires ops marked for recomputation; establishes copies of forward ops in I */
  recompute(sh.g, (RecomputeHow){.share = !splits || in->plan->strategy.keep_gathered,
                                 .apart = splits});
  TRY(checked(sh.g, e));
  dump(in, 'r', "recompute", sh.g);
  if (in->plan->fused_ops) fuse_ops(sh.g), fuse_projections(in, &sh);
  /* requires that ce_max and ce_sum are one; gathers of W alone may be read by none then
   */
  if (pieces && !chunked_loss(in->plan, sh.g, d)) return WEFT_EPLAN;
  if (pieces) drop_unread(in->graph, sh.g);
  TRY(checked(sh.g, e));
  dump(in, 'f', "fuse", sh.g);
  /* requires local shapes; establishes bodies with storage for every tensor */
  return units_make(in, &sh, code, in->scratch, keep, out, d) ? WEFT_OK : WEFT_EPLAN;
}

/* The same passes on the graph with equal layers folded. *done is false if nothing can be
 * folded or an error was found: the passes are then run on the whole graph, whose errors
 * name the real layers. */
static weft_status folded(const CompileInput *in, bool code, Arena *keep, Units *out,
                          bool *done, Diags *d, weft_error *e) {
  Fold *f = in->dump ? NULL : fold_layers(in->graph, in->plan, in->arena);
  *done = false;
  if (!f) return WEFT_OK;
  CompileInput here = *in;
  Diags before = *d;
  Units small;
  weft_error why = NO_ERROR;
  here.graph = f->g;
  weft_status st = front(&here, code, keep, &small, d, &why);
  *done = st == WEFT_OK && unfold_layers(f, &small, keep, in->arena, out);
  if (!*done) *d = before;
  if (st != WEFT_EINTERNAL) return WEFT_OK;
  if (e) *e = why;
  return st;
}

/* The model as the plan trains it. What learns is nothing to a decoding program. */
static bool trained(const CompileInput *in, CompileInput *out, Diags *d) {
  const Plan *plan = in->plan;
  *out = *in;
  bool fp8 = plan->fp8.recipe && !in->context;
  if (!plan->adapter.rank && plan->freeze.n + plan->ngroup == 0 && !in->evaluates && !fp8)
    return true;
  out->graph = graph_fork(in->graph, in->arena);
  if (plan->adapter.rank && !adapters(out->graph, plan, d)) return false;
  if (plan->adapter.base == BASE_NF4 && !quantized_base(out->graph, plan, d))
    return false;
  if (fp8 && !fp8_linears(out->graph, plan, d)) return false;
  if (in->evaluates) {
    for (int i = 0; i < out->graph->param.n; i++) out->graph->param.at[i].frozen = true;
    return true;
  }
  return in->context || trainable(out->graph, plan, d);
}

weft_status compile_units(const CompileInput *in, bool code, Arena *keep, Units **out,
                          Diags *d, weft_error *e) {
  CompileInput whole;
  if (!sizes_fit(in, d)) return WEFT_EPLAN;
  budget_part(keep, "the units");
  *out = NEW(keep, Units);
  if (!recompute_patterns(in->graph, in->plan, in->arena, d)) return WEFT_EPLAN;
  if (!in->context && !in->evaluates) recompute_words(in->graph, in->plan, d);
  /* requires the model; establishes adapters, and which parameters learn */
  if (!trained(in, &whole, d)) return WEFT_EPLAN;
  bool done;
  TRY(folded(&whole, code, keep, *out, &done, d, e));
  if (done) return WEFT_OK;
  whole.graph = graph_fork(whole.graph, in->arena);
  return front(&whole, code, keep, *out, d, e);
}
