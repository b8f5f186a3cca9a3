/* front.c - runs the passes before the pipeline and keeps what later passes read of their
 * result: edges between units, parameters, frames. Tensors are numbered anew, edges
 * first, so that fronts of equal structure have equal numbers. */
#include "front.h"

/* ---- work of a body ---- */

/* Bytes that a kernel moves. Of a table that is looked up in only the rows that are asked
 * for are read. */
static double operand_traffic(const Operand *o, int n) {
  double bytes = 0;
  for (int i = 0; i < n; i++)
    bytes += (double)operand_bytes(&o[i]);
  return bytes;
}

/* Seconds of a kernel on a GPU that is as fast as its data sheet: bound by arithmetic or
 * by memory. */
static double kernel_seconds(const Cluster *c, DType t, double flops, double bytes) {
  double rate = t == DT_BF16 ? c->bf16 : c->f32;
  return rate > 0 ? MAX(flops / rate, bytes / c->hbm_bandwidth) : 0;
}

static int axis_of(const Build *b, const CodeInstr *x) {
  for (int a = 0; a < AX_N; a++)
    if (b->comm.at[x->i.comm].axes & ax_mesh((ShardAxis)a)) return a;
  return AX_TP;
}

static void add_instr(const Build *b, const CodeInstr *x, UnitWork *w) {
  int n = x->i.nin + x->i.nout;
  if (x->i.code == I_COLL) {
    int a = axis_of(b, x);
    double in = operand_traffic(x->operand, x->i.nin);
    double out = operand_traffic(x->operand + x->i.nin, x->i.nout);
    w->bytes[a][x->i.coll] += MAX(in, out);
    w->count[a][x->i.coll]++;
  } else if (x->i.code == I_KERNEL) {
    double moved = x->i.op == OP_embedding ? 2 * operand_traffic(x->operand + x->i.nin, 1)
                                           : operand_traffic(x->operand, n);
    w->seconds +=
        kernel_seconds(&b->in->plan->cluster, b->in->plan->dtype, x->flops, moved);
  }
}

static void measure(const Build *b, Front *f) {
  int units = b->in->graph->unit.n;
  f->work = (void *)arena_alloc(f->arena, sizeof *f->work * (size_t)units);
  for (int u = 0; u < units; u++)
    for (Phase ph = PH_F; ph <= PH_W; ph++) {
      UnitWork *w = &f->work[u][ph];
      w->flops = b->unit[u].body[ph].flops;
      for (int i = 0; i < b->unit[u].body[ph].n; i++)
        add_instr(b, &b->unit[u].body[ph].at[i], w);
    }
}

/* ---- the parts that stay ---- */

typedef struct Keep {
  const Build *from;
  Front *f;
  Graph *logical, *local;
  Tid *edge; /* sharded tensor -> its number here, -1 */
} Keep;

static void *copy(Arena *a, const void *from, size_t n) {
  void *p = arena_alloc(a, n);
  return n ? memcpy(p, from, n) : p;
}

static Tid keep_tensor(Keep *k, Graph *to, const Tensor *t) {
  Tensor *x = VEC_PUSH(k->f->arena, to->t);
  *x = *t;
  x->name = arena_str(k->f->arena, t->name);
  return to->t.n - 1;
}

static Tid keep_edge(Keep *k, Tid t) {
  if (k->edge[t] < 0) k->edge[t] = keep_tensor(k, k->local, &k->from->sh.g->t.at[t]);
  return k->edge[t];
}

static void keep_units(Keep *k) {
  const Build *b = k->from;
  Arena *a = k->f->arena;
  int units = b->in->graph->unit.n;
  k->f->b.unit = NEW_N(a, UnitCode, units);
  for (int u = 0; u < units; u++) {
    Unit *name = VEC_PUSH(a, k->logical->unit);
    *name = b->in->graph->unit.at[u];
    name->name = arena_str(a, name->name);
    UnitCode *code = &k->f->b.unit[u];
    *code = b->unit[u];
    code->param = copy(a, code->param, sizeof(int) * (size_t)code->nparam);
    code->edge = copy(a, code->edge, sizeof(Tid) * (size_t)code->nedge);
    for (int i = 0; i < code->nedge; i++)
      code->edge[i] = keep_edge(k, code->edge[i]);
    for (int ph = 0; ph < 3; ph++)
      code->body[ph].at = NULL;
  }
  k->local->unit.at = k->logical->unit.at;
  k->local->unit.n = k->local->unit.cap = units;
  k->f->b.cost = copy(a, b->cost, sizeof(double) * (size_t)units);
}

/* What reads tensors of other units, in the order of the ops: stage_edges asks for it. */
static void keep_reads(Keep *k) {
  const Graph *g = k->from->sh.g;
  Arena *a = k->f->arena;
  for (int i = 0; i < g->op.n; i++) {
    const Op *op = &g->op.at[i];
    for (int j = 0; j < op->nin; j++) {
      int unit = g->t.at[op->in[j]].unit;
      if (unit < 0 || unit == op->unit) continue;
      Op *read = VEC_PUSH(a, k->local->op);
      *read = (Op){.nin = 1, .in = NEW(a, Tid), .unit = op->unit, .phase = op->phase};
      read->in[0] = keep_edge(k, op->in[j]);
    }
  }
}

static void keep_params(Keep *k) {
  const Build *b = k->from;
  Front *f = k->f;
  int n = b->in->graph->param.n;
  f->b.sh.param_place = copy(f->arena, b->sh.param_place, sizeof(Place) * (size_t)n);
  f->b.sh.grad_place = copy(f->arena, b->sh.grad_place, sizeof(Place) * (size_t)n);
  f->b.sh.local = NEW_N(f->arena, Tid, n);
  for (int i = 0; i < n; i++) {
    const Param *p = &b->in->graph->param.at[i];
    Param *mine = VEC_PUSH(f->arena, k->logical->param);
    *mine = *p;
    mine->name = arena_str(f->arena, p->name);
    mine->tensor = keep_tensor(k, k->logical, &b->in->graph->t.at[p->tensor]);
    f->b.sh.local[mine->tensor] =
        keep_tensor(k, k->local, &b->sh.g->t.at[b->sh.local[p->tensor]]);
  }
}

static int size_number(Front *f, uint64_t bytes) {
  uint64_t size = align_up(bytes);
  if (size == 0) return -1;
  for (int i = 0; i < f->nsize; i++)
    if (f->size[i] == size) return i;
  f->size[f->nsize] = size;
  return f->nsize++;
}

static void keep(const Build *b, Front *f) {
  Keep k = {.from = b, .f = f};
  const Graph *g = b->in->graph;
  k.logical = graph_new(f->arena, g->batch, g->seq);
  k.local = graph_new(f->arena, g->batch, g->seq);
  k.edge = NEW_N(b->arena, Tid, b->sh.g->t.n);
  for (int i = 0; i < b->sh.g->t.n; i++)
    k.edge[i] = -1;
  f->plan = *b->in->plan;
  f->plan.tp = NULL, f->plan.ntp = 0;
  f->plan.pp = (PpPlan){0};
  f->mesh = *b->in->mesh;
  f->in = (CompileInput){
      .plan = &f->plan, .mesh = &f->mesh, .graph = k.logical, .arena = f->arena};
  f->b = (Build){.in = &f->in,
                 .arena = f->arena,
                 .in_handles = b->in_handles,
                 .sh = {.g = k.local, .loss_place = b->sh.loss_place}};
  keep_units(&k);
  keep_reads(&k);
  int edges = k.local->t.n, units = g->unit.n;
  keep_params(&k);
  f->nwhat = 3 * units + edges;
  f->group = NEW_N(f->arena, int, f->nwhat);
  f->size = NEW_N(f->arena, uint64_t, f->nwhat);
  for (int u = 0; u < units; u++)
    for (int i = 0; i < 3; i++)
      f->group[3 * u + i] = size_number(f, f->b.unit[u].frame[i]);
  for (int t = 0; t < edges; t++)
    f->group[3 * units + t] = size_number(f, (uint64_t)tensor_bytes(&k.local->t.at[t]));
}

weft_status front_new(const CompileInput *in, Arena *scratch, Arena *a, Front **out,
                      Diags *d, weft_error *e) {
  CompileInput here = *in;
  here.arena = scratch;
  Build *b = NEW(scratch, Build);
  b->in = &here;
  b->arena = b->scratch = scratch;
  b->d = d;
  TRY(compile_units(b, d, e));
  Front *f = NEW(a, Front);
  f->arena = a;
  measure(b, f);
  keep(b, f);
  *out = f;
  return WEFT_OK;
}

void front_shape(const Front *f, Text *out) {
  const Graph *g = f->b.sh.g;
  for (int u = 0; u < g->unit.n; u++) {
    const UnitCode *code = &f->b.unit[u];
    for (int k = 0; k < 3; k++)
      text_printf(out, "%d%d %llx,", code->body[k].n > 0, code->frame[k] > 0,
                  (unsigned long long)code->edge_used[k]);
    for (int k = 0; k < code->nedge; k++)
      text_printf(out, " %d", code->edge[k]);
    text_add(out, ";");
  }
  for (int i = 0; i < g->op.n; i++)
    text_printf(out, " %d<%d/%d", g->op.at[i].unit, g->op.at[i].in[0],
                g->t.at[g->op.at[i].in[0]].unit);
  for (int i = 0; i < f->nwhat; i++)
    text_printf(out, " %d", f->group[i]);
}
