/* recompute_policy.c - which forward ops a plan recomputes, by the flags in ops.def:
 * `full` all ops of layers; `selective` products without a parameter but for the sinks of
 * attention (the core of it); `cheap` ops that are bound by memory (norms, activations,
 * ropes, sums). Weights that are stored in 4 bits are always made again.
 *
 * A pattern names a unit, or a module with all modules in it. Ops without a name, such as
 * activation functions, belong to a module if they are between two of its ops. */
#include "recompute.h"
#include "vm/graph/rules.h"

/* ---- policies ---- */

static bool moves_data(const Op *op) { return op_info[op->code].cost == cost_move; }

static bool is_core(const Graph *g, const Op *op) {
  if (!op_info[op->code].cost || moves_data(op)) return false;
  int sinks = op->code == OP_attention ? attention_sinks_operand(g, op) : -1;
  for (int k = 0; k < op->nin; k++)
    if (k != sinks && g->t.at[graph_weight(g, op->in[k])].kind == T_PARAM) return false;
  return true;
}

static bool by_word(const Graph *g, const Recompute *r, const Op *op) {
  if (g->unit.at[op->unit].layer < 0) return false;
  return r->full || (r->selective && is_core(g, op)) || (r->cheap && moves_data(op));
}

/* Ops of the router, whose decisions must not be recomputed. */
static bool is_router(const Op *op) {
  return op->code == OP_router_logits || op->code == OP_route ||
         op->code == OP_sinkhorn || op->code == OP_sequence_bias ||
         op->code == OP_expert_counts || op->code == OP_router_loss;
}

/* ---- patterns ---- */

enum { IN = 1, READS = 2, READ = 4 };

/* The flags of the ops in the same unit that make operands of this one, combined. */
static int operands(const Graph *g, const Op *op, const uint8_t *is) {
  int flags = 0;
  for (int k = 0; k < op->nin; k++) {
    const Tensor *t = &g->t.at[op->in[k]];
    if (t->producer >= 0 && t->unit == op->unit) flags |= is[t->producer];
  }
  return flags;
}

/* Passes an op's flags on to the nameless ops whose results it reads. */
static void tell_operands(const Graph *g, const Op *op, uint8_t *is) {
  for (int k = 0; k < op->nin; k++) {
    const Tensor *t = &g->t.at[op->in[k]];
    if (t->producer >= 0 && t->unit == op->unit && !g->op.at[t->producer].name)
      is[t->producer] |= READ;
  }
}

/* Marks the ops that the pattern matches; returns their number. */
static int by_pattern(const Graph *g, const char *pattern, uint8_t *is, bool *mark) {
  int n = 0;
  for (int i = 0; i < g->op.n; i++) {
    const Op *op = &g->op.at[i];
    const char *unit = g->unit.at[op->unit].name;
    is[i] = (op->name && tp_pattern_holds(pattern, op->name)) ||
            tp_pattern_fits(pattern, unit, strlen(unit));
    if (!op->name && operands(g, op, is) & (IN | READS)) is[i] |= READS;
  }
  for (int i = g->op.n - 1; i >= 0; i--) {
    if (is[i] & (IN | READ)) tell_operands(g, &g->op.at[i], is);
    bool here = is[i] & IN || (is[i] & READS && is[i] & READ);
    mark[i] |= here;
    n += here;
  }
  return n;
}

void recompute_marks(const Graph *g, const Plan *plan, Arena *scratch, bool *mark,
                     int *hits) {
  const Recompute *r = &plan->recompute;
  uint8_t *is = NEW_N(scratch, uint8_t, g->op.n);
  for (int i = 0; i < g->op.n; i++) mark[i] = by_word(g, r, &g->op.at[i]);
  for (int k = 0; k < r->npattern; k++) {
    int n = by_pattern(g, r->pattern[k].text, is, mark);
    if (hits) hits[k] = n;
  }
  for (int i = 0; i < g->op.n && plan->moe.keep_router; i++)
    if (is_router(&g->op.at[i])) mark[i] = false;
  for (int i = 0; i < g->op.n; i++) {
    mark[i] |= g->op.at[i].code == OP_nf4;
    mark[i] &=
        g->op.at[i].code != OP_amax; /* a few bytes, and a collective to have them */
    mark[i] &= g->op.at[i].code != OP_running_counts; /* later ones count in its sums */
  }
}

/* ---- for graph_passes ---- */

/* A pattern of this model that is similar to one that matches nothing. */
static const char *suggestion(const Graph *g, const char *pattern, Diags *d) {
  static const char *const word[] = {"full", "selective", "cheap"};
  PatternList names = {0};
  for (int i = 0; i < LEN(word); i++) *VEC_PUSH(d->arena, names) = word[i];
  for (int i = 0; i < g->unit.n; i++)
    tp_module_patterns(d->arena, g->unit.at[i].name, &names);
  for (int i = 0; i < g->op.n; i++)
    if (g->op.at[i].name) tp_module_patterns(d->arena, g->op.at[i].name, &names);
  const char *near = str_nearest(pattern, names.at, names.n);
  if (near) return arena_printf(d->arena, "did you mean \"%s\"?", near);
  return arena_printf(d->arena, "units are called %s", g->unit.at[g->unit.n / 2].name);
}

bool recompute_patterns(const Graph *g, const Plan *plan, Arena *scratch, Diags *d) {
  const Recompute *r = &plan->recompute;
  if (r->npattern == 0 || r->may_miss) return true;
  bool *mark = NEW_N(scratch, bool, g->op.n), ok = true;
  int *hits = NEW_N(scratch, int, r->npattern);
  recompute_marks(g, plan, scratch, mark, hits);
  for (int k = 0; k < r->npattern; k++) {
    if (hits[k]) continue;
    Diag *x = diag_error(
        d, "recompute", arena_printf(d->arena, "recompute[%d]", r->pattern[k].item),
        "\"%s\" is neither a unit or module of the model nor one of full, "
        "selective, cheap",
        r->pattern[k].text);
    x->suggestion = suggestion(g, r->pattern[k].text, d);
    ok = false;
  }
  return ok;
}

void recompute_words(const Graph *g, const Plan *plan, Diags *d) {
  const Recompute *r = &plan->recompute;
  const struct {
    bool asked;
    Recompute only;
    const char *name, *why;
  } word[] = {
      {r->full, {.full = true}, "full", "the model has no layers"},
      {r->selective,
       {.selective = true},
       "selective",
       "no layer has attention, whose core it is that runs again"},
      {r->cheap,
       {.cheap = true},
       "cheap",
       "no layer has norms, activation functions or other ops that only move data"},
  };
  for (int i = 0; i < LEN(word); i++) {
    bool any = !word[i].asked || r->may_miss;
    for (int k = 0; k < g->op.n && !any; k++)
      any = by_word(g, &word[i].only, &g->op.at[k]);
    if (!any)
      diag_warn(d, "no-effect", "recompute", "\"%s\" has no effect: %s", word[i].name,
                word[i].why);
  }
}

void recompute_set(Graph *g, const Plan *plan, Arena *scratch) {
  bool *mark = NEW_N(scratch, bool, g->op.n);
  recompute_marks(g, plan, scratch, mark, NULL);
  for (int i = 0; i < g->op.n; i++) g->op.at[i].recomputed = mark[i];
}
