/* quantized_base.c - `adapter.base = "nf4"`: weights of the linears of all layers are
 * stored in 4 bits, and made again before the products that read them.
 *
 * A weight (O, I) becomes its codes, a parameter of bytes (O, I/2) under the same name,
 * and two parameters beside it, its scales; op nf4 makes (O, I) of the three, in the type
 * in which ops compute, once in a unit. So shards, gathers and checkpoints have the bytes
 * that are stored and need no rule for them. Those of the backward are made again
 * (recompute_policy.c). As bitsandbytes does, all linears of layers are stored so, with
 * or without an adapter, and the head and the embedding stay. */
#include "rewrite_passes.h"

#include "rewrite.h"
#include "vm/base/nf4.h"

typedef struct Quantizing {
  Graph *g;
  Tid (*scales)[2]; /* of each tensor that is stored so, its scales; */
  Tid *now;         /* what ops of the open unit read in its place, -1: not yet made */
  bool *stored;
  int tensors; /* of the graph as it was */
} Quantizing;

/* Whether only linears of layers read a weight, and what asks for its norms. */
static bool is_base(const Graph *g, Tid t, const Op **linear) {
  *linear = NULL;
  for (int i = 0; i < g->op.n; i++)
    for (int k = 0; k < g->op.at[i].nin; k++) {
      const Op *op = &g->op.at[i];
      if (op->in[k] != t) continue;
      bool is = k == 1 && op->code == OP_linear && op->name;
      if (is && g->unit.at[op->unit].layer >= 0)
        *linear = op;
      else if (op->code != OP_feature_sqnorms)
        return false;
    }
  return *linear != NULL;
}

static void cannot(Diags *d, const Op *op, const char *why) {
  diag_error(d, "adapter", "adapter.base", "%s cannot be stored in 4 bits: %s", op->name,
             why)
      ->suggestion = "leave base = \"nf4\" out";
}

static int64_t common_multiple(int64_t a, int64_t b) {
  int64_t x = a, y = b;
  while (y) {
    int64_t rest = x % y;
    x = y, y = rest;
  }
  return a / x * b;
}

/* A dimension of `per` weights an element; cuts are between blocks. */
static Dim fewer(Dim d, int64_t per) {
  int64_t unit = common_multiple(MAX(d.unit, 1), NF4_BLOCK);
  d.size /= per, d.local = d.size, d.unit = (int32_t)(unit / per);
  return d;
}

static weft_status add_scales(Quantizing *q, Param base, QuantPart part, Tid *out,
                              weft_error *e) {
  Graph *g = q->g;
  const Tensor w = g->t.at[base.tensor];
  int64_t blocks = w.dim[0].size * w.dim[1].size / NF4_BLOCK;
  Dim all = {.size = (blocks + NF4_GROUP - 1) / NF4_GROUP + 1, .parts = 1, .unit = 1};
  Dim dim[] = {w.dim[0], fewer(w.dim[1], NF4_BLOCK)};
  bool groups = part == QUANT_GROUPS;
  const char *name =
      arena_printf(g->arena, "%s.%s", base.name, groups ? "nested_absmax" : "absmax");
  TRY(graph_param(g, name, groups ? &all : dim, groups ? 1 : 2, INIT_ZEROS, 0, out, e));
  g->t.at[*out].dtype = groups ? DT_F32 : DT_U8;
  Param *p = &g->param.at[g->t.at[*out].index];
  p->quant = (uint8_t)part;
  p->base = base.name;
  p->frozen = true;
  p->line = base.line;
  return WEFT_OK;
}

static weft_status store(Quantizing *q, int param, weft_error *e) {
  Graph *g = q->g;
  const Param base = g->param.at[param];
  Tid scales[2];
  for (int k = 0; k < 2; k++)
    TRY(add_scales(q, base, k ? QUANT_GROUPS : QUANT_SCALES, &scales[k], e));
  memcpy(q->scales[base.tensor], scales, sizeof scales);
  q->stored[base.tensor] = true;
  g->param.at[param].quant = QUANT_CODES;
  Tensor *w = &g->t.at[base.tensor];
  w->dtype = DT_U8;
  w->dim[1] = fewer(w->dim[1], 2);
  return WEFT_OK;
}

/* Makes the weight before its first reader in the unit. */
static weft_status make(Quantizing *q, const Op *reader, Tid t, weft_error *e) {
  if (q->now[t] >= 0) return WEFT_OK;
  Tid in[] = {t, q->scales[t][0], q->scales[t][1]};
  return graph_op(q->g, OP_nf4, in, 3, NULL, reader->name, reader->line, &q->now[t], e);
}

static weft_status write_one(void *ud, int i, const Op *from, bool begins,
                             weft_error *e) {
  Quantizing *q = ud;
  for (int t = 0; t < q->tensors && begins; t++)
    if (q->stored[t]) q->now[t] = -1;
  for (int k = 0; k < from->nin; k++) TRY(make(q, from, from->in[k], e));
  rewrite_copy(q->g, from, q->now);
  return WEFT_OK;
}

/* Stores the weights that can be; says of one that cannot why. */
static weft_status store_all(Quantizing *q, Diags *d, int *found, weft_error *e) {
  Graph *g = q->g;
  int errors = d->errors;
  for (int i = 0, n = g->param.n; i < n; i++) {
    const Param *p = &g->param.at[i];
    const Tensor *w = &g->t.at[p->tensor];
    const Op *op;
    if (!p->frozen || p->adapter || w->ndim != 2 || !is_base(g, p->tensor, &op)) continue;
    ++*found;
    if (op->attr.layout != 0)
      cannot(d, op, "its weight lies as (in, out), and blocks go along the inputs");
    else if (w->dim[1].size % NF4_BLOCK)
      cannot(d, op,
             arena_printf(d->arena,
                          "blocks of %d would go over the ends of its %lld inputs",
                          NF4_BLOCK, (long long)w->dim[1].size));
    else
      TRY(store(q, i, e));
    if (d->errors > errors) return WEFT_OK;
  }
  return WEFT_OK;
}

bool quantized_base(Graph *g, const Plan *plan, Diags *d) {
  int errors = d->errors, found = 0;
  /* each weight makes two parameters, which are read as they are */
  int most = g->t.n + 2 * g->param.n + g->op.n;
  Quantizing q = {.g = g,
                  .scales =
                      (void *)arena_alloc(g->arena, sizeof *q.scales * (size_t)most),
                  .now = NEW_N(g->arena, Tid, most),
                  .stored = NEW_N(g->arena, bool, most),
                  .tensors = g->t.n};
  for (int t = 0; t < q.tensors; t++) q.now[t] = t;
  weft_error e = NO_ERROR;
  weft_status st = store_all(&q, d, &found, &e);
  if (d->errors > errors) return false;
  if (!found) {
    diag_error(d, "adapter", "adapter.base", "the model has no linear in a layer");
    return false;
  }
  if (st == WEFT_OK) st = rewrite_all(g, write_one, &q, &e);
  if (st == WEFT_OK) return true;
  diag_error(d, "adapter", "adapter.base", "%s", e.text);
  return false;
}
