/* units.c - collects the code of all units into one table (units.h). Equal bodies and
 * equal units are kept once. */
#include "units.h"

#include "unit_code.h"
#include "vm/plan/cluster_figures.h"

typedef struct Table {
  Units *u;
  Arena *keep, *scratch;
  const CompileInput *in;
  const Sharded *sh;
  bool code;
  const AxisSet *comm;
  BodyClock clock;
  int32_t *edge_of; /* sharded tensor -> its index in Units.edge, -1 */
  VEC(UnitEdge) edge;
  VEC(UnitBody *) body;
  VEC(UnitCode *) kind;
} Table;

/* ---- work of a body ---- */

static int axis_of(AxisSet axes) {
  for (int a = 0; a < AX_N; a++)
    if (axes_split(axes) & ax_mesh((ShardAxis)a)) return a;
  return AX_TP;
}

/* A start or a wait, behind the kernels that were not behind another one. */
static void add_move(const Table *t, UnitMove x, UnitWork *w) {
  x.seconds = w->seconds, w->seconds = 0;
  w->comms = MAX(w->comms, x.comm + 1), w->handles = MAX(w->handles, x.handle + 1);
  *VEC_PUSH(t->keep, w->move) = x;
}

static void add_collective(const Table *t, const CodeInstr *x, UnitWork *w) {
  AxisSet axes = t->comm[x->i.comm];
  int a = axis_of(axes);
  double bytes = (double)coll_bytes(&x->i, x->operand), even = coll_even(x);
  w->bytes[a][x->i.coll] += bytes;
  w->empty[a] += bytes * (1 - even);
  add_move(t,
           (UnitMove){.coll = (CollKind)x->i.coll,
                      .axes = axes,
                      .comm = x->i.comm,
                      .handle = x->i.handle,
                      .bytes = bytes * even},
           w);
}

static UnitWork work_of(Table *t, const UnitBody *b) {
  UnitWork w = {.flops = b->flops, .recomputed = b->recomputed};
  bool timed = !cluster_lacks(t->in->plan, t->in->mesh);
  if (timed) body_even(&t->clock, b, t->keep);
  for (int i = 0; i < b->n; i++) {
    const CodeInstr *x = &b->at[i];
    if (x->i.code == I_COLL)
      add_collective(t, x, &w);
    else if (x->i.code == I_WAIT)
      add_move(t, (UnitMove){.waits = true, .handle = x->i.handle}, &w);
    else if (timed)
      w.seconds += kernel_even_seconds(&t->clock, x);
  }
  return w;
}

/* ---- equal bodies, equal units ---- */

static bool same_instr(const CodeInstr *a, const CodeInstr *b) {
  const Instr *x = &a->i, *y = &b->i;
  if (x->code != y->code || x->coll != y->coll || x->red != y->red || x->acc != y->acc ||
      x->op != y->op || x->comm != y->comm || x->nin != y->nin || x->nout != y->nout ||
      x->nwork != y->nwork || x->handle != y->handle)
    return false;
  return memcmp(&a->attr, &b->attr, sizeof a->attr) == 0 &&
         memcmp(a->operand, b->operand, sizeof *a->operand * (size_t)instr_operands(x)) ==
             0 &&
         strcmp(a->name, b->name) == 0;
}

static bool same_body(const UnitBody *a, const UnitBody *b) {
  if (a->n != b->n || a->nparam != b->nparam || a->nedge != b->nedge ||
      a->sums != b->sums || a->flops != b->flops)
    return false;
  for (int i = 0; i < a->n; i++)
    if (!same_instr(&a->at[i], &b->at[i])) return false;
  return true;
}

static const UnitBody *keep_body(Table *t, const UnitBody *b) {
  for (int i = 0; i < t->body.n; i++)
    if (same_body(t->body.at[i], b)) return t->body.at[i];
  UnitBody *mine = NEW(t->keep, UnitBody);
  *mine = *b;
  mine->at = arena_copy(t->keep, b->at, sizeof *b->at * (size_t)b->n);
  for (int i = 0; i < b->n; i++) mine->at[i].name = arena_str(t->keep, b->at[i].name);
  *VEC_PUSH(t->keep, t->body) = mine;
  return mine;
}

/* memcmp for lists, where an empty one may be NULL. */
static bool same_bytes(const void *a, const void *b, size_t n) {
  return n == 0 || memcmp(a, b, n) == 0;
}

static size_t grad_bit_bytes(int nparam) {
  return BODIES * (size_t)nparam * sizeof(int16_t);
}

static bool same_code(const UnitCode *a, const UnitCode *b) {
  if (a->nparam != b->nparam || a->nedge != b->nedge || a->sums != b->sums ||
      a->temp != b->temp || a->input_mask != b->input_mask || a->handles != b->handles ||
      memcmp(a->frame, b->frame, sizeof a->frame) != 0 ||
      memcmp(a->body, b->body, sizeof a->body) != 0)
    return false;
  for (int ph = 0; ph < 3; ph++)
    if (a->read[ph].n != b->read[ph].n ||
        !same_bytes(a->read[ph].edge, b->read[ph].edge,
                    sizeof(int32_t) * (size_t)a->read[ph].n))
      return false;
  return same_bytes(a->edge_use, b->edge_use, (size_t)a->nedge) &&
         same_bytes(a->grad_use, b->grad_use, (size_t)a->nparam) &&
         same_bytes(a->param_use, b->param_use, (size_t)a->nparam) &&
         same_bytes(a->grad_bit, b->grad_bit, grad_bit_bytes(a->nparam)) &&
         same_bytes(a->joined, b->joined, sizeof *a->joined * (size_t)a->nparam);
}

static UnitCode *keep_code(Table *t, const RawUnit *raw) {
  UnitCode c = {.nparam = raw->param.n,
                .nedge = raw->edge.n,
                .edge_use = raw->edge_use,
                .grad_use = raw->grad_use,
                .param_use = raw->param_use,
                .grad_bit = raw->grad_bit,
                .joined = raw->joined.at,
                .sums = raw->sums,
                .temp = raw->temp,
                .input_mask = raw->input_mask,
                .handles = raw->handles};
  memcpy(c.frame, raw->frame, sizeof c.frame);
  for (int ph = 0; ph < 3; ph++)
    c.read[ph].edge = raw->read[ph].at, c.read[ph].n = raw->read[ph].n;
  for (int ph = 0; ph < BODIES; ph++) c.body[ph] = keep_body(t, &raw->body[ph]);
  for (int i = 0; i < t->kind.n; i++)
    if (same_code(t->kind.at[i], &c)) return t->kind.at[i];
  c.edge_use = arena_copy(t->keep, c.edge_use, (size_t)c.nedge);
  c.grad_use = arena_copy(t->keep, c.grad_use, (size_t)c.nparam);
  c.param_use = arena_copy(t->keep, c.param_use, (size_t)c.nparam);
  c.grad_bit = arena_copy(t->keep, c.grad_bit, grad_bit_bytes(c.nparam));
  c.joined = arena_copy(t->keep, c.joined, sizeof *c.joined * (size_t)c.nparam);
  for (int ph = 0; ph < 3; ph++) {
    c.read[ph].edge =
        arena_copy(t->keep, c.read[ph].edge, sizeof(int32_t) * (size_t)c.read[ph].n);
    c.cost += c.body[ph]->flops;
  }
  for (int ph = 0; ph < BODIES; ph++) c.work[ph] = work_of(t, c.body[ph]);
  UnitCode *mine = arena_copy(t->keep, &c, sizeof c);
  *VEC_PUSH(t->keep, t->kind) = mine;
  return mine;
}

/* ---- edges, parameters ---- */

void edge_label(Arena *a, UnitEdge *e, const char *unit) {
  e->label =
      arena_printf(a, e->gradient ? "gradient before %s" : "activation after %s", unit);
}

static int32_t keep_edge(Table *t, Tid id) {
  if (t->edge_of[id] >= 0) return t->edge_of[id];
  const Tensor *x = &t->sh->g->t.at[id];
  UnitEdge *e = VEC_PUSH(t->keep, t->edge);
  *e = (UnitEdge){.unit = x->unit,
                  .gradient = x->grad_of >= 0,
                  .place = x->place,
                  .dtype = x->dtype,
                  .ndim = x->ndim,
                  .bytes = (uint64_t)tensor_bytes(x)};
  for (int d = 0; d < x->ndim; d++) e->dim[d] = x->dim[d].local;
  edge_label(t->keep, e, t->in->graph->unit.at[x->unit].name);
  return t->edge_of[id] = t->edge.n - 1;
}

static void keep_unit(Table *t, int u, const RawUnit *raw) {
  CompiledUnit *x = &t->u->at[u];
  const Unit *unit = &t->in->graph->unit.at[u];
  int32_t *edge = NEW_N(t->keep, int32_t, raw->edge.n);
  for (int i = 0; i < raw->edge.n; i++) edge[i] = keep_edge(t, raw->edge.at[i]);
  *x = (CompiledUnit){
      .name = arena_str(t->keep, unit->name),
      .layer = unit->layer,
      .code = keep_code(t, raw),
      .param = arena_copy(t->keep, raw->param.at, sizeof(int) * (size_t)raw->param.n),
      .edge = edge};
  t->u->handles = MAX(t->u->handles, raw->handles);
}

static void keep_params(Table *t) {
  const Graph *g = t->in->graph;
  t->u->nparam = g->param.n;
  t->u->param = NEW_N(t->keep, UnitParam, g->param.n);
  for (int i = 0; i < g->param.n; i++) {
    const Param *p = &g->param.at[i];
    const Tensor *x = &t->sh->g->t.at[t->sh->local[p->tensor]];
    t->u->param[i] = (UnitParam){.name = arena_str(t->keep, p->name),
                                 .like = arena_str(t->keep, p->like),
                                 .ndim = x->ndim,
                                 .init = p->init,
                                 .std = p->std,
                                 .decay = p->decay,
                                 .frozen = p->frozen,
                                 .group = p->group,
                                 .adapter = p->adapter,
                                 .alpha = p->alpha,
                                 .saved = p->saved,
                                 .quant = p->quant,
                                 .dtype = x->dtype,
                                 .share = p->share,
                                 .place = t->sh->param_place[i],
                                 .grad = t->sh->grad_place[i],
                                 .count = tensor_count(x)};
    memcpy(t->u->param[i].dim, x->dim, sizeof x->dim);
  }
}

int unit_matrices(const UnitParam *p) {
  return p->ndim > 2 ? MAX(p->dim[p->ndim - 2].parts, 1) : 1;
}

/* What decays are matrices, and no biases of experts. Embeddings and heads are no
 * matrices of layers, nor is a weight that such a unit shares with a layer. */
static void mark_matrices(Units *u) {
  for (int i = 0; i < u->nparam; i++) {
    UnitParam *p = &u->param[i];
    p->matrix = p->decay;
    if (p->matrix)
      p->factors = p->dim[p->ndim - 2].size + unit_matrices(p) * p->dim[p->ndim - 1].size;
  }
  for (int k = 0; k < u->n; k++)
    for (int i = 0; i < u->at[k].code->nparam && u->at[k].layer < 0; i++)
      u->param[u->at[k].param[i]].matrix = false;
}

AxisSet unit_param_partial(const UnitParam *p) { return place_partial(p->grad); }

/* ---- the model as a whole ---- */

/* The vocabulary size, from the embedding table and the loss: token ids must be below it.
 */
static int64_t vocabulary(const Graph *g) {
  int64_t vocab = INT32_MAX;
  for (int i = 0; i < g->forward_ops; i++) {
    const Op *op = &g->op.at[i];
    if (op->code == OP_embedding && op->in[0] == g->input[IN_TOKENS])
      vocab = MIN(vocab, g->t.at[op->in[1]].dim[0].size);
    if (op->code == OP_ce_sum) vocab = MIN(vocab, op->attr.vocab);
  }
  return vocab;
}

static double widest(const Graph *g) {
  double most = 0;
  for (int i = 0; i < g->t.n; i++) {
    const Tensor *t = &g->t.at[i];
    if (t->kind != T_PARAM) most = MAX(most, dims_size(t->dim, t->ndim));
  }
  return most / (double)g->batch;
}

/* Where the logits are that the host reads: whole, but the last dimension may be sharded.
 */
static void logits_of(Coder *coder, const Sharded *sh, Units *out) {
  const Tensor *x = &sh->g->t.at[sh->g->loss];
  assert(place_cuts(x->place) == place_dim_cuts(x->place, x->ndim - 1) &&
         !place_partial(x->place));
  out->logits_at = coder_result(coder);
  out->logits = x->dim[x->ndim - 1].local;
  out->logits_cut = place_dim_cuts(x->place, x->ndim - 1);
}

bool units_make(const CompileInput *in, const Sharded *sh, bool code, Arena *scratch,
                Arena *keep, Units *out, Diags *d) {
  const Graph *g = in->graph;
  Table t = {.u = out,
             .keep = keep,
             .scratch = scratch,
             .in = in,
             .sh = sh,
             .code = code,
             .clock = body_clock(in, sh->copies)};
  Coder *coder = coder_new(in, sh, &t.clock);
  t.edge_of = NEW_N(in->arena, int32_t, sh->g->t.n);
  memset(t.edge_of, 0xff, sizeof *t.edge_of * (size_t)sh->g->t.n);
  *out = (Units){.n = g->unit.n,
                 .at = NEW_N(keep, CompiledUnit, g->unit.n),
                 .loss = g->t.at[g->loss].unit,
                 .loss_place = sh->loss_place,
                 .sources_place = sh->sources_place,
                 .sources = sh->sources,
                 .experts = graph_has(g, OP_permute),
                 .context = in->context,
                 .tp_copies = sh->copies,
                 .handles = 1, /* handle 0 also serves the optimizer step */
                 .micro = in->plan->batch.micro,
                 .seq = g->seq,
                 .tokens = g->seq / in->mesh->size[AXIS_CP],
                 .vocab = vocabulary(g),
                 .dtype = in->plan->dtype,
                 .device = compile_device(in),
                 .widest = widest(g)};
  for (int u = 0; u < g->unit.n; u++) {
    RawUnit raw;
    arena_reset(scratch);
    if (!code_unit(coder, u, scratch, &raw, d)) return false;
    out->ncomm = coder_comms(coder, &t.comm);
    if (in->context && u == out->loss) logits_of(coder, sh, out);
    keep_unit(&t, u, &raw);
  }
  keep_params(&t);
  mark_matrices(out);
  out->edge = t.edge.at, out->nedge = t.edge.n;
  out->comm = arena_copy(keep, t.comm, sizeof *t.comm * (size_t)out->ncomm);
  for (int i = 0; i < t.body.n && !code; i++) t.body.at[i]->at = NULL;
  return true;
}
