/* graph.c - building graphs: tensors, parameters, units, ops. */
#include "graph.h"

#include <stdio.h>

#include "vm/base/dynamic8.h"

/* ---- small tables ---- */

int dtype_size(DType t) {
  static const int size[] = {[DT_F32] = 4,
                             [DT_BF16] = 2,
                             [DT_F64] = 8,
                             [DT_I32] = 4,
                             [DT_F16] = 2,
                             [DT_U8] = 1,
                             [DT_Q8] = sizeof(Dynamic8),
                             [DT_UQ8] = sizeof(Dynamic8)};
  assert(t < DT_ACT);
  return size[t];
}

int dtype_elements(DType t) { return t == DT_Q8 || t == DT_UQ8 ? DYNAMIC8_BLOCK : 1; }

static const char *const dtypes[] = {"f32", "bf16", "f64", "i32", "f16",
                                     "u8",  "q8",   "uq8", "act", "grad"};

const char *dtype_name(DType t) { return dtypes[t]; }

DType dtype_named(const char *name) {
  int t = 0;
  while (t < DT_ACT && strcmp(dtypes[t], name) != 0) t++;
  return (DType)t;
}

static const char *const tag_names[TAG_N] = {
    [TAG_NONE] = "none",         [TAG_BATCH] = "batch", [TAG_SEQ] = "seq",
    [TAG_HIDDEN] = "hidden",     [TAG_HEAD] = "head",   [TAG_KV_HEAD] = "kv_head",
    [TAG_FFN] = "ffn",           [TAG_VOCAB] = "vocab", [TAG_HEAD_DIM] = "head_dim",
    [TAG_POSITION] = "position", [TAG_TOKEN] = "token", [TAG_RAGGED] = "ragged",
    [TAG_EXPERT] = "expert",     [TAG_GROUP] = "group"};

const char *tag_name(DimTag t) { return tag_names[t]; }

int tag_parse(const char *s) {
  for (int i = 0; i < TAG_N; i++)
    if (strcmp(tag_names[i], s) == 0) return i;
  return -1;
}

#define TAG(tag)        (1u << TAG_##tag)
#define TAGS_OF_EXPERTS (TAG(TOKEN) | TAG(EXPERT) | TAG(RAGGED))
static const struct AxisRow {
  const char *name;
  AxisSet factors;
  uint32_t tags;
} axis_row[AX_N] = {
#define SHARD(id, name, factors, tags) {name, factors, tags},
#include "vm/mesh/axes.def"
};

AxisSet ax_mesh(ShardAxis a) { return axis_row[a].factors; }

AxisSet ax_set_mesh(uint32_t axes) {
  AxisSet s = 0;
  for (int x = 0; x < AX_N; x++)
    if (axes >> x & 1) s |= ax_mesh((ShardAxis)x);
  return axes_join(s);
}

bool ax_of_one_factor(ShardAxis a, ShardAxis b) {
  return axes_whole(ax_mesh(a)) == axes_whole(ax_mesh(b));
}

bool ax_expert(ShardAxis a) { return axes_expert(ax_mesh(a)); }

const char *ax_name(ShardAxis a) { return axis_row[a].name; }
bool ax_may_cut(ShardAxis a, DimTag t) { return axis_row[a].tags >> t & 1; }

bool place_eq(Place a, Place b) {
  for (int x = 0; x < AX_N; x++)
    if (a.on[x] != b.on[x]) return false;
  return true;
}

Place place_whole(void) {
  Place p;
  for (int x = 0; x < AX_N; x++) p.on[x] = PL_R;
  return p;
}

AxisSet place_cuts(Place p) {
  uint32_t axes = 0;
  for (int x = 0; x < AX_N; x++)
    if (p.on[x] >= 0) axes |= 1u << x;
  return ax_set_mesh(axes);
}

AxisSet place_partial(Place p) {
  uint32_t axes = 0;
  for (int x = 0; x < AX_N; x++)
    if (p.on[x] == PL_P) axes |= 1u << x;
  return ax_set_mesh(axes);
}

AxisSet place_next_cut(Place p, int dim, int *x) {
  uint32_t axes = 0;
  while (*x < AX_N && p.on[*x] != dim) ++*x;
  for (int first = *x; *x < AX_N && p.on[*x] == dim; ++*x) {
    if (!ax_of_one_factor((ShardAxis)first, (ShardAxis)*x)) break;
    axes |= 1u << *x;
  }
  return ax_set_mesh(axes);
}

AxisSet place_dim_cuts(Place p, int dim) {
  uint32_t axes = 0;
  for (int x = 0; x < AX_N; x++)
    if (p.on[x] == dim) axes |= 1u << x;
  return ax_set_mesh(axes);
}

bool place_cuts_dim(Place p, int dim) { return place_dim_cuts(p, dim) != 0; }

int64_t place_local(Place p, int dim, int64_t size, const int n[AX_N]) {
  for (int x = 0; x < AX_N; x++)
    if (p.on[x] == dim) size = (size + n[x] - 1) / n[x];
  return size;
}

/* Of the mesh that it speaks of; parts of a factor are named only where they differ. */
const char *place_str(Place p, char buf[PLACE_STR]) {
  char name[64];
  TextBuf t = textbuf(buf, PLACE_STR);
  bool expert = false;
  for (int x = 0; x < AX_N; x++) expert |= ax_expert((ShardAxis)x) && p.on[x] != PL_R;
  for (int x = 0; x < AX_N; x++) {
    ShardAxis a = (ShardAxis)x;
    if (ax_expert(a) != expert) continue;
    if (x && ax_of_one_factor(a, a - 1) && p.on[x] == p.on[x - 1]) continue;
    bool part = x + 1 < AX_N && ax_of_one_factor(a, a + 1) && p.on[x] != p.on[x + 1];
    textbuf_printf(&t, "%s%s:", t.n ? " " : "",
                   part ? axes_name(ax_mesh(a), name) : ax_name(a));
    if (p.on[x] >= 0)
      textbuf_printf(&t, "S(%d)", p.on[x]);
    else
      textbuf_printf(&t, "%s",
                     p.on[x] == PL_R     ? "R"
                     : p.on[x] == PL_P   ? "P"
                     : p.on[x] == PL_OWN ? "own"
                                         : "Pmax");
  }
  return buf;
}

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
                .logical = g->t.n - 1};
  for (int d = 0; d < ndim; d++) {
    t->dim[d] = dim[d];
    if (!t->dim[d].parts) t->dim[d].parts = 1;
    if (!t->dim[d].unit) t->dim[d].unit = 1;
    t->dim[d].local = t->dim[d].size;
  }
  return g->t.n - 1;
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
  f->param.cap = f->param.n, f->unit.cap = f->unit.n;
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
