/* fp8_linears.c - makes linear_fp8 of the linears that a plan computes in fp8, and puts
 * the ops before them that find the largest magnitudes of their operands: one for a
 * tensor, however many linears of a unit read it.
 *
 * All linears of the model with a weight of its own are, but those that the plan's
 * patterns leave out (by itself: lm_head) and those with features that are no multiple of
 * 16, which fp8 units of GPUs do not take, or of 32 for blocks of 32. Embeddings, routers
 * and experts are other ops. Adapters, weights in 4 bits and second models stay as they
 * are: their products are small, or computed as other systems have them. */
#include "fp8_linears.h"

#include "vm/graph/op_fp8.h"
#include "vm/shard/shard.h"

/* Whether a pattern is this module, one that contains it, or the end of its name. */
static bool names_module(const char *pattern, const char *module) {
  if (tp_pattern_holds(pattern, module)) return true;
  for (const char *s = module; (s = strchr(s, '.'));)
    if (s++, tp_pattern_fits(pattern, s, strlen(s))) return true;
  return false;
}

static bool may_be(const Graph *g, const Op *op) {
  if (op->code != OP_linear || op->second || !op->name) return false;
  const Tensor *w = &g->t.at[op->in[1]];
  return w->kind == T_PARAM && g->param.at[w->index].adapter == ADAPTER_NONE &&
         g->param.at[w->index].quant == QUANT_NONE;
}

static bool fits(const Graph *g, const Op *op, const Fp8Plan *p) {
  int64_t multiple = p->recipe == RECIPE_MXFP8 ? 32 : 16;
  const Tensor *w = &g->t.at[op->in[1]];
  return w->dim[0].size % multiple == 0 && w->dim[1].size % multiple == 0;
}

/* Which linears of a graph a plan computes in fp8. */
typedef struct Fp8Linears {
  int all, fp8; /* how many there are */
  bool *of;     /* of each op */
} Fp8Linears;

static Fp8Linears linears_of(const Graph *g, const Plan *plan, Arena *a) {
  const Patterns *but = &plan->fp8.exclude;
  Fp8Linears x = {.of = NEW_N(a, bool, g->op.n + 1)};
  for (int i = 0; i < g->op.n; i++) {
    const Op *op = &g->op.at[i];
    if (!may_be(g, op)) continue;
    bool out = false;
    for (int k = 0; k < but->n; k++) out |= names_module(but->at[k], op->name);
    x.all++;
    x.of[i] = !out && fits(g, op, &plan->fp8);
    x.fp8 += x.of[i];
  }
  return x;
}

/* Adds a name to a list of them, once, with `*` for the numbers of layers. */
static void add_name(PatternList *list, const char *module, Arena *a) {
  const char *name = tp_as_pattern(a, arena_printf(a, "%s.", module));
  for (int i = 0; i < list->n; i++)
    if (str_eq(list->at[i], name)) return;
  *VEC_PUSH(a, *list) = name;
}

const char *fp8_summary(const Graph *g, const Plan *plan, Arena *a) {
  static const char *const recipe[] = {[RECIPE_TENSORWISE] = "tensorwise",
                                       [RECIPE_ROWWISE] = "rowwise",
                                       [RECIPE_MXFP8] = "mxfp8"};
  Fp8Linears x = linears_of(g, plan, a);
  PatternList rest = {0};
  for (int i = 0; i < g->op.n; i++)
    if (may_be(g, &g->op.at[i]) && !x.of[i]) add_name(&rest, g->op.at[i].name, a);
  const char *s =
      arena_printf(a, "%d of %d linears, %s", x.fp8, x.all, recipe[plan->fp8.recipe]);
  for (int i = 0; i < rest.n; i++)
    s = arena_printf(a, "%s%s%s", s, i ? ", " : "; not ", rest.at[i]);
  return s;
}

/* ---- patterns that fit nothing ---- */

static void no_linear(const Graph *g, const char *pattern, int item, Diags *d) {
  PatternList names = {0};
  for (int i = 0; i < g->op.n; i++)
    if (may_be(g, &g->op.at[i])) tp_module_patterns(d->arena, g->op.at[i].name, &names);
  Diag *x =
      diag_error(d, "fp8", arena_printf(d->arena, "precision.exclude[%d]", item + 1),
                 "\"%s\" names no linear of the model", pattern);
  const char *near = str_nearest(pattern, names.at, names.n);
  if (near) x->suggestion = arena_printf(d->arena, "did you mean \"%s\"?", near);
}

static void check_patterns(const Graph *g, const Plan *plan, Diags *d) {
  const Patterns *but = &plan->fp8.exclude;
  for (int k = 0; k < but->n && plan->fp8.excludes; k++) {
    int hits = 0;
    for (int i = 0; i < g->op.n; i++)
      hits += may_be(g, &g->op.at[i]) && names_module(but->at[k], g->op.at[i].name);
    if (!hits) no_linear(g, but->at[k], k, d);
  }
}

/* ---- writing ---- */

typedef struct Found {
  Tid amax;
  int unit;
} Found;

static Tid amax_of(Graph *g, Found *f, const Op *op, int i) {
  Found *x = &f[op->in[i]];
  if (x->amax < 0 || x->unit != op->unit)
    *x = (Found){fp8_add_amax(g, *op, -1, OP_linear_fp8, i, op->in[i]), op->unit};
  return x->amax;
}

static void write_linear(Graph *g, const Plan *plan, Found *f, Op *op) {
  static const int recipe[] = {[RECIPE_TENSORWISE] = FP8_TENSORWISE,
                               [RECIPE_ROWWISE] = FP8_ROWWISE,
                               [RECIPE_MXFP8] = FP8_MX};
  const Fp8Plan *p = &plan->fp8;
  int64_t groups = p->groups ? p->groups : g->batch / MAX(plan->batch.micro, 1);
  op->code = OP_linear_fp8;
  op->attr.fp8 = recipe[p->recipe];
  op->attr.fp8_how =
      (p->format == FORMAT_E4M3 ? FP8_GRADS_E4M3 : 0) | (p->powers ? FP8_POWERS : 0);
  op->attr.groups = (int32_t)MAX(groups, 1);
  if (op->attr.fp8 == FP8_MX) return;
  Tid in[] = {op->in[0], op->in[1], amax_of(g, f, op, 0), amax_of(g, f, op, 1)};
  op->in = arena_copy(g->arena, in, sizeof in);
  op->nin = 4;
}

bool fp8_linears(Graph *g, const Plan *plan, Diags *d) {
  int errors = d->errors, n = g->op.n, tensors = g->t.n;
  check_patterns(g, plan, d);
  if (d->errors > errors) return false;
  Fp8Linears which = linears_of(g, plan, g->arena);
  if (which.fp8 == 0)
    diag_error(d, "fp8", "precision", "none of the model's %d linears would be in fp8",
               which.all)
        ->suggestion = "precision = \"bf16\"";
  if (which.fp8 == 0) return false;
  Found *f = (void *)arena_alloc(g->arena, sizeof *f * (size_t)(tensors + 1));
  for (int i = 0; i < tensors; i++) f[i] = (Found){-1, -1};
  const Op *from = g->op.at;
  g->op.at = NULL, g->op.n = g->op.cap = 0;
  for (int i = 0; i < n; i++) {
    Op op = from[i];
    if (which.of[i]) write_linear(g, plan, f, &op);
    *VEC_PUSH(g->arena, g->op) = op;
    for (int k = 0; k < op.nout; k++) g->t.at[op.out[k]].producer = g->op.n - 1;
  }
  g->forward_ops = g->op.n;
  return true;
}
