/* adapters.c - writes y = x @ W + scale * (x @ A) @ B for each linear y = x @ W that the
 * plan's adapter targets.
 *
 * A and B are ordinary parameters, and what is added are ordinary ops, so autodiff,
 * strategies and checkpoints need no rule for them, and placements need one: the style of
 * tp is that of the base (shard_param.c). A, (rank, in), is cut where a rowwise base is,
 * and B, (out, rank), where a columnwise one is. A is uniform in +-1/sqrt(in) and B is 0,
 * as PEFT has it (Kaiming's initialisation with a = sqrt(5)), so a run begins at the
 * base.
 *
 * With dropout A reads x with elements dropped (x'), and so does, with magnitudes (DoRA),
 * what these scale: y = x @ W - x' @ W + m / |W + scale * B A| * (x' @ W + scale * (x' @
 * A) @ B), the norms over the inputs of each output feature, which is without dropout the
 * last term alone. Magnitudes begin as the norms of the base. */
#include "adapters.h"

#include "vm/shard/shard.h"

#include <math.h>

typedef struct Adapting {
  Graph *g;
  const Plan *plan;
  const bool *target; /* of each op */
  int linear;         /* its number among the linears of its unit */
  Tid *now;           /* tensor -> what later ops read in its place */
} Adapting;

/* ---- which linears ---- */

/* Whether a pattern is this module, or the end of its name: "q_proj", as PEFT has it. */
static bool names_module(const char *pattern, const char *module) {
  if (tp_pattern_fits(pattern, module, strlen(module))) return true;
  for (const char *s = module; (s = strchr(s, '.'));)
    if (s++, tp_pattern_fits(pattern, s, strlen(s))) return true;
  return false;
}

static bool is_linear(const Graph *g, const Op *op) {
  return op->code == OP_linear && !op->second && op->name &&
         g->t.at[op->in[1]].kind == T_PARAM;
}

/* A reader of the weight of op `id` that is no linear of the same orientation, or -1. */
static Oid other_reader(const Graph *g, Oid id) {
  const Op *op = &g->op.at[id];
  for (int i = 0; i < g->op.n; i++)
    for (int k = 0; k < g->op.at[i].nin; k++) {
      const Op *q = &g->op.at[i];
      bool same = k == 1 && q->code == OP_linear && q->attr.layout == op->attr.layout;
      if (q->in[k] == op->in[1] && !same) return i;
    }
  return -1;
}

static void matches_nothing(const Graph *g, const char *pattern, int item, Diags *d) {
  Arena *a = d->arena;
  PatternList names = {0};
  for (int i = 0; i < g->op.n; i++) {
    if (!is_linear(g, &g->op.at[i])) continue;
    const char *name = tp_as_pattern(a, arena_printf(a, "%s.", g->op.at[i].name));
    const char *last = strrchr(name, '.');
    *VEC_PUSH(a, names) = name;
    if (last) *VEC_PUSH(a, names) = last + 1;
  }
  const char *near = str_nearest(pattern, names.at, names.n);
  Diag *x = diag_error(d, "adapter", arena_printf(a, "adapter.targets[%d]", item + 1),
                       "\"%s\" matches no linear of the model", pattern);
  if (near)
    x->suggestion = arena_printf(a, "did you mean \"%s\"?", near);
  else if (names.n)
    x->suggestion = arena_printf(a, "linears are called %s", names.at[names.n / 2]);
}

/* Who reads a weight in another way would not see its adapter. */
static void cannot_adapt(const Graph *g, Oid id, Oid other, int item, Diags *d) {
  const Op *op = &g->op.at[id], *q = &g->op.at[other];
  diag_error(d, "adapter", arena_printf(d->arena, "adapter.targets[%d]", item + 1),
             "%s is tied: %s of %s reads %s, too, without the adapter", op->name,
             op_info[q->code].name, q->name ? q->name : "the model",
             g->t.at[op->in[1]].name)
      ->suggestion = "tie_word_embeddings = false, or leave it out";
}

/* Marks the targets; returns how many there are. */
static int find_targets(const Graph *g, const Adapter *a, bool *target, Diags *d) {
  int n = 0;
  for (int p = 0; p < a->targets.n; p++) {
    int hits = 0;
    for (int i = 0; i < g->op.n; i++) {
      const Op *op = &g->op.at[i];
      if (!is_linear(g, op) || !names_module(a->targets.at[p], op->name)) continue;
      Oid other = other_reader(g, i);
      if (other >= 0 && !hits) cannot_adapt(g, i, other, p, d);
      target[i] = true, hits++;
    }
    if (!hits) matches_nothing(g, a->targets.at[p], p, d);
  }
  for (int i = 0; i < g->op.n && a->all; i++) {
    const Op *op = &g->op.at[i];
    bool layer = g->unit.at[op->unit].layer >= 0;
    target[i] = layer && is_linear(g, op) && other_reader(g, i) < 0;
  }
  for (int i = 0; i < g->op.n; i++) n += target[i];
  return n;
}

/* ---- what is written ---- */

/* "model.layers.0.mlp.up_proj.weight", ".lora_A.weight" -> "...up_proj.lora_A.weight" */
static const char *part_name(Arena *a, const char *base, const char *suffix) {
  size_t n = strlen(base), end = strlen(".weight");
  if (n > end && strcmp(base + n - end, ".weight") == 0) n -= end;
  return arena_printf(a, "%.*s%s", (int)n, base, suffix);
}

static weft_status add_part(Adapting *x, const Op *op, AdapterPart part, Tid *out,
                            weft_error *e) {
  Graph *g = x->g;
  const Tensor w = g->t.at[op->in[1]];
  bool in_out = op->attr.layout != 0;
  Dim in = w.dim[in_out ? 0 : 1], rank = {.size = x->plan->adapter.rank};
  Dim features = w.dim[in_out ? 1 : 0];
  float reach = (float)(1 / sqrt((double)in.size));
  InitKind norms = in_out ? INIT_COLUMN_NORMS : INIT_ROW_NORMS;
  const char *name = part_name(g->arena, w.name, adapter_suffix(part));
  switch (part) {
  case ADAPTER_A:
    TRY(graph_param(g, name, (Dim[]){rank, in}, 2, INIT_UNIFORM, reach, out, e));
    break;
  case ADAPTER_B:
    TRY(graph_param(g, name, (Dim[]){features, rank}, 2, INIT_ZEROS, 0, out, e));
    break;
  default: TRY(graph_param(g, name, &features, 1, norms, 0, out, e));
  }
  Param *p = &g->param.at[g->t.at[*out].index];
  p->adapter = (uint8_t)part;
  p->base = w.name;
  p->line = op->line;
  return WEFT_OK;
}

/* Ops of one adapter. */
typedef struct Pen {
  Adapting *x;
  Op op; /* the linear */
  float scale;
} Pen;

static weft_status write_op(const Pen *p, int code, const Tid *in, int n,
                            const OpAttr *attr, const char *part, Tid *out,
                            weft_error *e) {
  Graph *g = p->x->g;
  const char *name = p->op.name;
  if (part) name = arena_printf(g->arena, "%s.%s", name, part);
  return graph_op(g, code, in, n, attr, name, p->op.line, out, e);
}

/* What A reads. Sites are numbers of linears in the unit, whichever of these are targets,
 * behind those of the model's own dropouts. */
static weft_status write_dropout(const Pen *p, Tid *x, weft_error *e) {
  enum { SITES = 1 << 12 };
  OpAttr drop = {.rate = p->x->plan->adapter.dropout, .site = SITES + p->x->linear};
  *x = p->op.in[0];
  if (drop.rate == 0) return WEFT_OK;
  Tid in[] = {*x, graph_input(p->x->g, IN_TOKEN_NUMBERS)};
  return write_op(p, OP_dropout, in, 2, &drop, "lora_dropout", x, e);
}

/* y = y + (m / |W + scale * B A| * (base + high) - base); base: what W makes of `x`. The
 * difference first: both are nearly the same, so that nothing is rounded there. */
static weft_status write_magnitudes(const Pen *p, Tid x, const Tid ab[2], Tid high,
                                    Tid *y, weft_error *e) {
  Tid base = *y, norms, m, sum, scaled, less;
  bool dropped = x != p->op.in[0];
  OpAttr weight = {.scale = p->scale, .layout = p->op.attr.layout}, minus = {.scale = -1};
  if (dropped)
    TRY(write_op(p, OP_linear, (Tid[]){x, p->op.in[1]}, 2, &p->op.attr, NULL, &base, e));
  TRY(add_part(p->x, &p->op, ADAPTER_M, &m, e));
  TRY(write_op(p, OP_feature_sqnorms, (Tid[]){p->op.in[1], ab[0], ab[1]}, 3, &weight,
               NULL, &norms, e));
  TRY(write_op(p, OP_add, (Tid[]){base, high}, 2, NULL, NULL, &sum, e));
  TRY(write_op(p, OP_feature_scale, (Tid[]){sum, m, norms}, 3, NULL,
               "lora_magnitude_vector", &scaled, e));
  if (!dropped) {
    *y = scaled;
    return WEFT_OK;
  }
  TRY(write_op(p, OP_scale, &base, 1, &minus, NULL, &less, e));
  TRY(write_op(p, OP_add, (Tid[]){scaled, less}, 2, NULL, NULL, &sum, e));
  return write_op(p, OP_add, (Tid[]){*y, sum}, 2, NULL, NULL, y, e);
}

/* Writes the adapter of op `id`, which has just been copied. */
static weft_status adapt(Adapting *x, Oid id, weft_error *e) {
  Pen p = {x, x->g->op.at[id], (float)plan_adapter_scale(&x->plan->adapter)};
  Tid in, ab[2], low, high, y = p.op.out[0];
  TRY(write_dropout(&p, &in, e));
  TRY(add_part(x, &p.op, ADAPTER_A, &ab[0], e));
  TRY(add_part(x, &p.op, ADAPTER_B, &ab[1], e));
  TRY(write_op(&p, OP_linear, (Tid[]){in, ab[0]}, 2, NULL, "lora_A", &low, e));
  TRY(write_op(&p, OP_linear, (Tid[]){low, ab[1]}, 2, NULL, "lora_B", &high, e));
  if (p.scale != 1)
    TRY(write_op(&p, OP_scale, &high, 1, &(OpAttr){.scale = p.scale}, "lora_B", &high,
                 e));
  x->now[y] = y;
  if (x->plan->adapter.dora) return write_magnitudes(&p, in, ab, high, &x->now[y], e);
  return write_op(&p, OP_add, (Tid[]){y, high}, 2, NULL, NULL, &x->now[y], e);
}

/* Copies an op of the model behind those that are written so far. */
static Oid copy_op(Adapting *x, const Op *from) {
  Graph *g = x->g;
  Oid id = g->op.n;
  Op *op = VEC_PUSH(g->arena, g->op);
  *op = *from;
  op->in = arena_copy(g->arena, from->in, sizeof *op->in * (size_t)op->nin);
  for (int k = 0; k < op->nin; k++) op->in[k] = x->now[op->in[k]];
  for (int k = 0; k < op->nout; k++) g->t.at[op->out[k]].producer = id;
  return id;
}

/* Names are in a table that the graph shares with the one it is a fork of. */
static void own_names(Graph *g) {
  g->param_names = (Names){0};
  for (int i = 0; i < g->param.n; i++)
    names_add(g->arena, &g->param_names, g->param.at[i].name, i);
}

static weft_status write_all(Adapting *x, weft_error *e) {
  Graph *g = x->g;
  const Op *from = g->op.at;
  int n = g->op.n, unit = g->open_unit;
  g->op.at = NULL, g->op.n = g->op.cap = 0;
  for (int i = 0; i < n; i++) {
    if (i == 0 || g->open_unit != from[i].unit) x->linear = 0;
    g->open_unit = from[i].unit;
    Oid id = copy_op(x, &from[i]);
    if (x->target[i]) TRY(adapt(x, id, e));
    x->linear += from[i].code == OP_linear && !from[i].second;
  }
  g->open_unit = unit;
  g->forward_ops = g->op.n;
  return WEFT_OK;
}

bool adapters(Graph *g, const Plan *plan, Diags *d) {
  bool *target = NEW_N(g->arena, bool, g->op.n);
  int errors = d->errors;
  weft_error e;
  err_clear(&e);
  if (find_targets(g, &plan->adapter, target, d) == 0 && d->errors == errors)
    diag_error(d, "adapter", "adapter.targets", "the model has no linear in a layer")
        ->suggestion = "name those that it has: targets = { patterns }";
  if (d->errors > errors) return false;
  Adapting x = {.g = g, .plan = plan, .target = target};
  x.now = NEW_N(g->arena, Tid, g->t.n);
  for (int i = 0; i < g->t.n; i++) x.now[i] = i;
  for (int i = 0; i < g->param.n; i++) g->param.at[i].frozen = true;
  own_names(g);
  if (write_all(&x, &e) == WEFT_OK) return true;
  diag_error(d, "adapter", "adapter", "%s", e.text);
  return false;
}
