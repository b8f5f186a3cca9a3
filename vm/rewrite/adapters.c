/* adapters.c - writes y = x @ W + scale * (x @ A) @ B for each linear y = x @ W that the
 * plan's adapter targets, and for each product of the rows of experts with their weights.
 *
 * Where the model's files have several linears as one module, as Phi-3's, that module has
 * one adapter: the linears read one A, and each has its rows of B.
 *
 * A and B are ordinary parameters, and what is added are ordinary ops, so autodiff,
 * strategies and checkpoints need no rule for them, and placements need one: the style of
 * tp is that of the base (shard_param.c). A, (rank, in), is cut where a rowwise base is,
 * and B, (out, rank), where a columnwise one is; those of experts are cut by expert, too,
 * where their base is. A is uniform in +-1/sqrt(in) and B is 0,
 * as PEFT has it (Kaiming's initialisation with a = sqrt(5)), so a run begins at the
 * base.
 *
 * With dropout A reads x with elements dropped (x'), and so does, with magnitudes (DoRA),
 * what these scale: y = x @ W - x' @ W + m / |W + scale * B A| * (x' @ W + scale * (x' @
 * A) @ B), the norms over the inputs of each output feature, which is without dropout the
 * last term alone. Magnitudes begin as the norms of the base. Where the plan drops what
 * an adapter adds, in the place of what it reads, that is (x @ A) @ B. */
#include "rewrite_passes.h"

#include "adapter_targets.h"
#include "rewrite.h"
#include "vm/graph/packed_modules.h"

#include <math.h>

typedef struct Adapting {
  Graph *g;
  const Plan *plan;
  const AdapterTarget *target; /* of each op */
  int linear;                  /* its number among the linears of its unit */
  Tid *now;                    /* tensor -> what later ops read in its place */
} Adapting;

/* ---- what is written ---- */

/* "model.layers.0.mlp.up_proj.weight", ".lora_A.weight" -> "...up_proj.lora_A.weight" */
static const char *part_name(Arena *a, const char *base, const char *suffix) {
  size_t n = strlen(base), end = strlen(".weight");
  if (n > end && strcmp(base + n - end, ".weight") == 0) n -= end;
  return arena_printf(a, "%.*s%s", (int)n, base, suffix);
}

/* Ops of one adapter. */
typedef struct Pen {
  Adapting *x;
  Op op; /* the linear */
  AdapterTarget as;
  float scale;
} Pen;

/* The weight that a part is called after: of a head that reads the embeddings' table its
 * module's, and A of a part of a module is the module's. */
static const char *named_after(const Pen *pen, const char *weight, AdapterPart part) {
  PackedName found;
  char name[PACKED_NAME];
  const char *module = pen->op.name;
  if (module && pen->op.code == OP_linear && strncmp(weight, module, strlen(module)) != 0)
    return arena_printf(pen->x->g->arena, "%s.weight", module);
  if (part != ADAPTER_A || !pen->as.packed || !packed_find(weight, NULL, &found))
    return weight;
  packed_rename(weight, &found, found.of->whole, name);
  return arena_str(pen->x->g->arena, name);
}

static weft_status add_part(const Pen *pen, AdapterPart part, Tid *out, weft_error *e) {
  Graph *g = pen->x->g;
  const Op *op = &pen->op;
  const Tensor w = g->t.at[op->in[1]];
  int expert = w.ndim - 2; /* 1: a matrix for each */
  bool in_out = op->attr.layout != 0;
  Dim in = w.dim[expert + (in_out ? 0 : 1)], rank = {.size = pen->as.rank};
  Dim features = w.dim[expert + (in_out ? 1 : 0)];
  float reach = (float)(1 / sqrt((double)in.size));
  InitKind norms = in_out ? INIT_COLUMN_NORMS : INIT_ROW_NORMS;
  const char *after = named_after(pen, w.name, part);
  const char *name = part_name(g->arena, after, adapter_suffix(part));
  Dim a[] = {w.dim[0], rank, in}, b[] = {w.dim[0], features, rank};
  int skip = 1 - expert;
  switch (part) {
  case ADAPTER_A:
    TRY(graph_param(g, name, a + skip, w.ndim, INIT_UNIFORM, reach, out, e));
    break;
  case ADAPTER_B:
    TRY(graph_param(g, name, b + skip, w.ndim, INIT_ZEROS, 0, out, e));
    break;
  default: TRY(graph_param(g, name, &features, 1, norms, 0, out, e));
  }
  Param *p = &g->param.at[g->t.at[*out].index];
  if (p->adapter) return WEFT_OK; /* of another part of the module */
  p->adapter = (uint8_t)part;
  p->alpha = pen->as.alpha;
  p->base = w.name;
  p->line = op->line;
  return WEFT_OK;
}

static weft_status write_op(const Pen *p, int code, const Tid *in, int n,
                            const OpAttr *attr, const char *part, Tid *out,
                            weft_error *e) {
  Graph *g = p->x->g;
  const char *name = p->op.name;
  if (part) name = arena_printf(g->arena, "%s.%s", name, part);
  return graph_op(g, code, in, n, attr, name, p->op.line, out, e);
}

/* x @ w, for each row that of its expert. */
static weft_status write_product(const Pen *p, Tid x, Tid w, const char *part, Tid *out,
                                 weft_error *e) {
  Tid in[] = {x, w, p->op.nin > 2 ? p->op.in[2] : -1};
  return write_op(p, p->op.code, in, p->op.nin, NULL, part, out, e);
}

/* Drops elements of *x if the plan's adapter drops there. Sites are numbers of linears in
 * the unit, whichever of these are targets, behind those of the model's own dropouts;
 * what the parts of a module read is dropped as what the first one does. */
static weft_status write_dropout(const Pen *p, DropoutPosition here, Tid *x,
                                 weft_error *e) {
  enum { SITES = 1 << 12 };
  const Adapter *adapter = &p->x->plan->adapter;
  PackedName part = {0};
  if (here == DROPS_PRE && p->as.packed) (void)packed_find(p->op.name, NULL, &part);
  OpAttr drop = {.rate = adapter->dropout, .site = SITES + p->x->linear - part.part};
  if (drop.rate == 0 || adapter->drops != here) return WEFT_OK;
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
  TRY(add_part(p, ADAPTER_M, &m, e));
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
static weft_status adapt(Adapting *x, Oid id, AdapterTarget as, weft_error *e) {
  const Adapter *adapter = &x->plan->adapter;
  float scale = (float)plan_adapter_scale(adapter, as.rank, as.alpha);
  Pen p = {x, x->g->op.at[id], as, scale};
  Tid in = p.op.in[0], ab[2], low, high, y = p.op.out[0];
  TRY(write_dropout(&p, DROPS_PRE, &in, e));
  TRY(add_part(&p, ADAPTER_A, &ab[0], e));
  TRY(add_part(&p, ADAPTER_B, &ab[1], e));
  TRY(write_product(&p, in, ab[0], "lora_A", &low, e));
  TRY(write_product(&p, low, ab[1], "lora_B", &high, e));
  TRY(write_dropout(&p, DROPS_POST, &high, e));
  if (p.scale != 1)
    TRY(write_op(&p, OP_scale, &high, 1, &(OpAttr){.scale = p.scale}, "lora_B", &high,
                 e));
  x->now[y] = y;
  if (adapter->dora) return write_magnitudes(&p, in, ab, high, &x->now[y], e);
  return write_op(&p, OP_add, (Tid[]){y, high}, 2, NULL, NULL, &x->now[y], e);
}

static weft_status write_one(void *ud, int i, const Op *from, bool begins,
                             weft_error *e) {
  Adapting *x = ud;
  if (begins) x->linear = 0;
  Oid id = rewrite_copy(x->g, from, x->now);
  if (x->target[i].rank) TRY(adapt(x, id, x->target[i], e));
  x->linear += from->code == OP_linear && !from->second;
  return WEFT_OK;
}

bool adapters(Graph *g, const Plan *plan, Diags *d) {
  int errors = d->errors;
  weft_error e = NO_ERROR;
  const AdapterTarget *target = adapter_targets(g, &plan->adapter, d);
  const bool *saved = adapter_saved(g, &plan->adapter, target, d);
  if (d->errors > errors) return false;
  Adapting x = {.g = g, .plan = plan, .target = target};
  x.now = NEW_N(g->arena, Tid, g->t.n);
  for (int i = 0; i < g->t.n; i++) x.now[i] = i;
  for (int i = 0; i < g->param.n; i++)
    g->param.at[i].saved = saved[i], g->param.at[i].frozen = !saved[i];
  if (rewrite_all(g, write_one, &x, &e) == WEFT_OK) return true;
  diag_error(d, "adapter", "adapter", "%s", e.text);
  return false;
}
