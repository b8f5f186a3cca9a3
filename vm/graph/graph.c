/* graph.c - building graphs: tensors, parameters, units, ops. */
#include "graph.h"

#include <stdio.h>

/* ---- tensors ---- */

Tid graph_tensor(Graph *g, TensorKind kind, DType dt, const Dim *dim, int ndim) {
  assert(ndim >= 0 && ndim <= MAX_DIM);
  Tensor *t = VEC_PUSH(g->arena, g->t);
  *t = (Tensor){.kind = (uint8_t)kind,
                .dtype = (uint8_t)dt,
                .ndim = (uint8_t)ndim,
                .place = place_whole(),
                .producer = -1,
                .index = -1,
                .unit = -1,
                .grad_of = -1,
                .logical = g->t.n - 1,
                .even = 1};
  for (int d = 0; d < ndim; d++) {
    t->dim[d] = dim[d];
    if (!t->dim[d].parts) t->dim[d].parts = 1;
    if (!t->dim[d].unit) t->dim[d].unit = 1;
    t->dim[d].local = t->dim[d].size;
  }
  return g->t.n - 1;
}

double dims_size(const Dim *dim, int n) {
  double size = 1;
  for (int d = 0; d < n; d++) size *= (double)dim[d].size;
  return size;
}

int64_t tensor_count(const Tensor *t) {
  int64_t n = 1;
  for (int d = 0; d < t->ndim; d++) n *= t->dim[d].local;
  return n;
}

int64_t tensor_bytes(const Tensor *t) { return tensor_count(t) * dtype_size(t->dtype); }

const char *tensor_label(const Graph *g, Tid id, char buf[96]) {
  const Tensor *t = &g->t.at[id];
  if (t->name) {
    snprintf(buf, 96, "%s", t->name);
  } else if (t->producer >= 0) {
    const Op *op = &g->op.at[t->producer];
    snprintf(buf, 96, "%s of %s", op_info[op->code].name,
             op->name ? op->name : "the model");
  } else {
    snprintf(buf, 96, "tensor %d", id);
  }
  return buf;
}

/* ---- graph ---- */

Graph *graph_new(Arena *a, int64_t batch, int64_t seq) {
  Graph *g = NEW(a, Graph);
  g->arena = a;
  g->batch = batch;
  g->seq = seq;
  g->open_unit = -1;
  g->loss = -1;
  g->told = -1;
  for (int i = 0; i < IN_N; i++) g->input[i] = -1;
  return g;
}

Graph *graph_fork(const Graph *g, Arena *a) {
  Graph *f = arena_copy(a, g, sizeof *g);
  f->arena = a;
  f->t.at = arena_copy(a, g->t.at, sizeof *g->t.at * (size_t)g->t.n);
  f->op.at = arena_copy(a, g->op.at, sizeof *g->op.at * (size_t)g->op.n);
  f->param.at = arena_copy(a, g->param.at, sizeof *g->param.at * (size_t)g->param.n);
  f->t.cap = f->t.n, f->op.cap = f->op.n;
  f->param.cap = f->param.n, f->unit.cap = f->unit.n, f->buffer.cap = f->buffer.n;
  f->param_names = names_copy(a, &g->param_names);
  f->unit_names = names_copy(a, &g->unit_names);
  return f;
}

const char *const input_name[IN_N] = {
    [IN_TOKENS] = "tokens",
    [IN_LABELS] = "labels",
    [IN_POSITIONS] = "positions",
    [IN_DOC_STARTS] = "doc_starts",
    [IN_TOKEN_NUMBERS] = "token_numbers",
    [IN_SOURCES] = "sources",
    [IN_REFERENCE] = "reference",
    [IN_NEXT_TOKENS] = "next_tokens_1",
    [IN_NEXT_TOKENS + 1] = "next_tokens_2",
    [IN_NEXT_TOKENS + 2] = "next_tokens_3",
    [IN_NEXT_TOKENS + 3] = "next_tokens_4",
    [IN_NEXT_LABELS] = "next_labels_1",
    [IN_NEXT_LABELS + 1] = "next_labels_2",
    [IN_NEXT_LABELS + 2] = "next_labels_3",
    [IN_NEXT_LABELS + 3] = "next_labels_4",
    [IN_SEED] = "seed",
};

Tid graph_input(Graph *g, InputKind k) {
  if (g->input[k] >= 0) return g->input[k];
  Dim bt[2] = {{.size = g->batch, .tag = TAG_BATCH}, {.size = g->seq, .tag = TAG_SEQ}};
  Dim one[1] = {{.size = 1}};
  DType type = k == IN_SEED || k == IN_REFERENCE ? DT_F32 : DT_I32;
  Tid t = graph_tensor(g, T_INPUT, type, k == IN_SEED ? one : bt, k == IN_SEED ? 1 : 2);
  g->t.at[t].name = input_name[k];
  g->t.at[t].index = k;
  return g->input[k] = t;
}

static bool same_dims(const Tensor *t, const Dim *dim, int ndim) {
  if (t->ndim != ndim) return false;
  for (int d = 0; d < ndim; d++)
    if (t->dim[d].size != dim[d].size || t->dim[d].tag != dim[d].tag ||
        t->dim[d].unit != MAX(dim[d].unit, 1) || t->dim[d].parts != MAX(dim[d].parts, 1))
      return false;
  return true;
}

Tid graph_weight(const Graph *g, Tid t) {
  const Tensor *x = &g->t.at[t];
  bool stored =
      x->kind == T_VALUE && x->producer >= 0 && g->op.at[x->producer].code == OP_nf4;
  return stored ? g->op.at[x->producer].in[0] : t;
}

weft_status graph_param(Graph *g, const char *name, const Dim *dim, int ndim,
                        InitKind init, float std, Tid *out, weft_error *e) {
  if (ndim < 1 || ndim > 3)
    return err_set(e, WEFT_EPLAN, "parameter %s: 1 to 3 dimensions expected, got %d",
                   name, ndim);
  for (int d = 0; d < ndim; d++)
    if (dim[d].size < 1)
      return err_set(e, WEFT_EPLAN, "parameter %s: dimension %d has size %lld", name, d,
                     (long long)dim[d].size);
  const char *like = name;
  bool second = second_open(g) && *g->second->prefix;
  if (second) name = arena_printf(g->arena, "%s%s", g->second->prefix, name);
  int known = names_find(&g->param_names, name);
  if (known >= 0) {
    *out = g->param.at[known].tensor;
    if (!same_dims(&g->t.at[*out], dim, ndim))
      return err_set(e, WEFT_EPLAN, "parameter %s: asked for twice with other dimensions",
                     name);
    return WEFT_OK;
  }
  for (int i = 0; i < g->buffer.n; i++)
    if (str_eq(g->buffer.at[i].name, name))
      return err_set(e, WEFT_EPLAN, "parameter %s: there is a buffer of this name", name);
  Tid t = graph_tensor(g, T_PARAM, DT_ACT, dim, ndim);
  g->t.at[t].name = arena_str(g->arena, name);
  g->t.at[t].index = g->param.n;
  names_add(g->arena, &g->param_names, g->t.at[t].name, g->param.n);
  *VEC_PUSH(g->arena, g->param) = (Param){.name = g->t.at[t].name,
                                          .tensor = t,
                                          .init = (uint8_t)init,
                                          .std = std,
                                          .decay = ndim > 1,
                                          .frozen = second};
  Param *p = &g->param.at[g->param.n - 1];
  p->like = second ? arena_str(g->arena, like) : p->name;
  *out = t;
  return WEFT_OK;
}

weft_status graph_buffer(Graph *g, const char *name, float value, weft_error *e) {
  const char *prefix = second_open(g) ? g->second->prefix : "";
  name = arena_printf(g->arena, "%s%s", prefix, name);
  if (names_find(&g->param_names, name) >= 0)
    return err_set(e, WEFT_EPLAN, "buffer %s: there is a parameter of this name", name);
  for (int i = 0; i < g->buffer.n; i++) {
    const Buffer *b = &g->buffer.at[i];
    if (!str_eq(b->name, name)) continue;
    if (b->value == value) return WEFT_OK;
    return err_set(e, WEFT_EPLAN, "buffer %s: given twice, as %g and as %g", name,
                   (double)b->value, (double)value);
  }
  *VEC_PUSH(g->arena, g->buffer) = (Buffer){name, value};
  return WEFT_OK;
}

static int add_unit(Graph *g, const char *name, int layer) {
  *VEC_PUSH(g->arena, g->unit) = (Unit){name, layer};
  if (names_find(&g->unit_names, name) < 0)
    names_add(g->arena, &g->unit_names, name, g->unit.n - 1);
  return g->unit.n - 1;
}

weft_status graph_open_unit(Graph *g, const char *name, int layer, weft_error *e) {
  if (g->open_unit >= 0)
    return err_set(e, WEFT_EPLAN, "unit %s is opened inside unit %s; units do not nest",
                   name, g->unit.at[g->open_unit].name);
  if (names_find(&g->unit_names, name) >= 0)
    return err_set(e, WEFT_EPLAN, "unit %s is opened twice", name);
  g->open_unit = add_unit(g, arena_str(g->arena, name), layer);
  return WEFT_OK;
}

const char *unit_relative_name(const Unit *u, const char *name) {
  int layer = u->layer;
  if (!name || layer < 0) return name ? name : "";
  char key[16];
  int n = 0, digits[12], k = 0;
  do digits[k++] = layer % 10, layer /= 10;
  while (layer);
  key[n++] = '.';
  while (k) key[n++] = (char)('0' + digits[--k]);
  key[n++] = '.';
  key[n] = 0;
  const char *at = strstr(name, key);
  return at ? at + n : name;
}

void graph_close_unit(Graph *g) { g->open_unit = -1; }

/* Ops outside any unit form units of their own, one for each run of such ops. */
static int unit_for_op(Graph *g) {
  if (g->open_unit >= 0) return g->open_unit;
  if (g->op.n > 0) {
    int last = g->op.at[g->op.n - 1].unit;
    if (last == g->unit.n - 1 && strncmp(g->unit.at[last].name, "ops.", 4) == 0)
      return last;
  }
  return add_unit(g, arena_printf(g->arena, "ops.%d", g->unit.n), -1);
}

Oid graph_add(Graph *g, int code, int nin, int nout, int unit, Phase ph) {
  assert(nin + nout <= KERNEL_OPERANDS);
  Op *op = VEC_PUSH(g->arena, g->op);
  *op = (Op){.code = (uint16_t)code,
             .phase = (uint8_t)ph,
             .nin = (int16_t)nin,
             .nout = (uint8_t)nout,
             .in = NEW_N(g->arena, Tid, nin),
             .out = NEW_N(g->arena, Tid, nout),
             .unit = unit,
             .fwd = -1};
  return g->op.n - 1;
}

/* "model.layers.3.mlp.down_proj.weight" -> "model.layers.3.mlp.down_proj" */
static const char *module_of(Graph *g, const Tid *in, int nin) {
  for (int i = 0; i < nin; i++) {
    const Tensor *t = &g->t.at[in[i]];
    const char *dot = t->kind == T_PARAM ? strrchr(t->name, '.') : NULL;
    if (dot) return arena_strn(g->arena, t->name, (size_t)(dot - t->name));
    if (t->kind == T_PARAM) return t->name;
  }
  return NULL;
}

weft_status graph_op(Graph *g, int code, const Tid *in, int nin, const OpAttr *attr,
                     const char *name, int line, Tid *out, weft_error *e) {
  const OpInfo *info = &op_info[code];
  if (!info->infer)
    return err_set(e, WEFT_EPLAN, "%s is not an op for models", info->name);
  if (info->nin >= 0 && nin != info->nin)
    return err_set(e, WEFT_EPLAN, "%s takes %d tensors, got %d (%s)", info->name,
                   info->nin, nin, info->doc);
  int nout = info->nout < 0 ? (attr ? attr->n : 0) : info->nout;
  if (nout < 1 || nout > 8)
    return err_set(e, WEFT_EPLAN, "%s: n must be between 1 and 8, got %d", info->name,
                   nout);
  int ops = g->op.n;
  Oid id = graph_add(g, code, nin, nout, unit_for_op(g), PH_F);
  Op *op = &g->op.at[id];
  memcpy(op->in, in, sizeof(Tid) * (size_t)nin);
  if (attr) op->attr = *attr;
  op->name = name ? arena_str(g->arena, name) : module_of(g, in, nin);
  op->line = line;
  op->second = second_open(g);
  weft_status st = info->infer(g, op, e);
  if (st != WEFT_OK) {
    g->op.n = ops;
    return st;
  }
  op = &g->op.at[id];
  for (int i = 0; i < nout; i++) {
    g->t.at[op->out[i]].producer = id;
    g->t.at[op->out[i]].unit = op->unit;
    out[i] = op->out[i];
  }
  return WEFT_OK;
}

bool graph_has(const Graph *g, int code) {
  for (int i = 0; i < g->op.n; i++)
    if (g->op.at[i].code == code) return true;
  return false;
}

weft_status graph_finish(Graph *g, Tid loss, weft_error *e) {
  if (loss < 0 || loss >= g->t.n || g->t.at[loss].producer < 0)
    return err_set(e, WEFT_EPLAN, "the model must return its loss");
  const Tensor *t = &g->t.at[loss];
  if (t->ndim != 1 || t->dim[0].size != 1 || t->dtype != DT_F32)
    return err_set(
        e, WEFT_EPLAN,
        "the model must return a scalar loss (g:cross_entropy(logits, labels))");
  g->loss = loss;
  g->forward_ops = g->op.n;
  return WEFT_OK;
}

static weft_status check_place(const Graph *g, Tid id, weft_error *e) {
  const Tensor *t = &g->t.at[id];
  char label[96];
  for (int x = 0; x < AX_N; x++) {
    int d = t->place.on[x];
    if (d < 0 || (d < t->ndim && ax_may_cut((ShardAxis)x, (DimTag)t->dim[d].tag)))
      continue;
    return err_set(e, WEFT_EINTERNAL, "%s: %s may not cut dimension %d (%s)",
                   tensor_label(g, id, label), ax_name((ShardAxis)x), d,
                   d < t->ndim ? tag_name((DimTag)t->dim[d].tag) : "none");
  }
  return WEFT_OK;
}

weft_status graph_check(const Graph *g, weft_error *e) {
  for (int i = 0; i < g->t.n; i++) TRY(check_place(g, i, e));
  for (int i = 0; i < g->op.n; i++) {
    const Op *op = &g->op.at[i];
    const char *name = op_info[op->code].name;
    for (int k = 0; k < op->nin; k++) {
      Tid t = op->in[k];
      if (t < 0 || t >= g->t.n)
        return err_set(e, WEFT_EINTERNAL, "op %d (%s): operand %d is no tensor", i, name,
                       k);
      if (g->t.at[t].producer >= i)
        return err_set(e, WEFT_EINTERNAL, "op %d (%s): operand %d is made later", i, name,
                       k);
    }
    for (int k = 0; k < op->nout; k++)
      if (g->t.at[op->out[k]].producer != i)
        return err_set(e, WEFT_EINTERNAL, "op %d (%s): result %d has another producer", i,
                       name, k);
    if (op->unit < 0 || op->unit >= g->unit.n)
      return err_set(e, WEFT_EINTERNAL, "op %d (%s) is in no unit", i, name);
  }
  return WEFT_OK;
}

static void dump_tensor(const Graph *g, Tid id, Text *out) {
  const Tensor *t = &g->t.at[id];
  char place[PLACE_STR];
  text_printf(out, "%%%d", id);
  if (t->name) text_printf(out, "=%s", t->name);
  text_add(out, "(");
  for (int d = 0; d < t->ndim; d++)
    text_printf(out, "%s%lld", d ? "," : "", (long long)t->dim[d].local);
  text_printf(out, ")%s[%s]", dtype_name(t->dtype), place_str(t->place, place));
}

void graph_dump(const Graph *g, Text *out) {
  static const char phase[] = "FIWU";
  for (int i = 0; i < g->op.n; i++) {
    const Op *op = &g->op.at[i];
    text_printf(out, "%4d %c %-14s ", i, phase[op->phase], g->unit.at[op->unit].name);
    for (int k = 0; k < op->nout; k++) {
      if (k) text_add(out, ", ");
      dump_tensor(g, op->out[k], out);
    }
    text_printf(out, " = %s", op_info[op->code].name);
    for (int k = 0; k < op->nin; k++)
      text_printf(out, "%s%%%d", k ? ", " : " ", op->in[k]);
    text_printf(out, "  ; %s%s\n", op->name ? op->name : "",
                op->recomputed && op->phase != PH_F ? " (recomputed)" : "");
  }
}
