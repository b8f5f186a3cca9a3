/* compile.c - the list of passes.
 *
 *   graph --autodiff--> joint graph --shard--> local graph with collectives
 *     --stage--> stages --unit_code--> bodies
 *     --layout--> static memory --actions--> timeline --lower--> program --prove-->
 *
 * Everything temporary lives in an arena of the compile; the result is copied to the
 * arena of the caller. */
#include "autodiff.h"
#include "vm/program/lower.h"

static void dump(const CompileInput *in, char letter, const char *pass, const Graph *g) {
  if (!in->dump || !in->dump_out || !strchr(in->dump, letter)) return;
  text_printf(in->dump_out, "; after %s\n", pass);
  graph_dump(g, in->dump_out);
}

static weft_status checked(const Graph *g, weft_error *e) {
#ifndef NDEBUG
  return graph_check(g, e);
#else
  (void)g, (void)e;
  return WEFT_OK;
#endif
}

static weft_status checked_places(const Graph *logical, const Sharded *s, weft_error *e) {
#ifndef NDEBUG
  return shard_check(logical, s, e);
#else
  (void)logical, (void)s, (void)e;
  return WEFT_OK;
#endif
}

/* Data parallelism is "dp" to users, whichever of its two axes has members. */
static const char *comm_name(const Mesh *m, AxisSet axes, char buf[64]) {
  bool whole = true;
  for (int a = 0; a < AXIS_N; a++)
    if (AXES_DP & AXIS_BIT(a)) whole &= m->size[a] == 1 || axes & AXIS_BIT(a);
  return axes_name(axes & AXES_DP && whole ? axes | AXES_DP : axes, buf);
}

int comm_for(Build *b, AxisSet axes, const int *pp, int npp) {
  const Mesh *m = b->in->mesh;
  for (int a = 0; a < AXIS_N; a++)
    if (m->size[a] == 1) axes &= ~AXIS_BIT(a);
  if (npp == 1 || axes == 0) return -1;
  for (int i = 0; i < b->comm.n; i++) {
    const CommDesc *c = &b->comm.at[i];
    if (c->axes == axes && c->npp == npp &&
        (npp == 0 || memcmp(c->pp, pp, sizeof(int) * (size_t)npp) == 0))
      return i;
  }
  char buf[64];
  const char *name = arena_str(b->arena, npp > 0 ? "tie" : comm_name(m, axes, buf));
  for (int i = 0; i < npp; i++)
    name = arena_printf(b->arena, "%s%s%d%s", name, i ? "," : "(", pp[i],
                        i + 1 < npp ? "" : ")");
  *VEC_PUSH(b->arena, b->comm) =
      (CommDesc){.axes = axes, .npp = npp, .name = name, .pp = pp};
  return b->comm.n - 1;
}

/* ---- parameters as a whole ---- */

static void add_pp(CompiledParam *p, int rank, Arena *a, int **list) {
  for (int i = 0; i < p->npp; i++)
    if ((*list)[i] == rank) return;
  if (p->npp % 8 == 0) {
    int *more = NEW_N(a, int, p->npp + 8);
    if (p->npp) memcpy(more, *list, sizeof(int) * (size_t)p->npp);
    *list = more;
  }
  int i = p->npp++;
  for (; i > 0 && (*list)[i - 1] > rank; i--)
    (*list)[i] = (*list)[i - 1];
  (*list)[i] = rank;
}

void describe_params(Build *b, Compiled *c) {
  const Graph *g = b->in->graph;
  c->nparam = g->param.n;
  c->param = NEW_N(c->arena, CompiledParam, g->param.n);
  for (int i = 0; i < g->param.n; i++) {
    const Param *from = &g->param.at[i];
    const Tensor *t = &g->t.at[from->tensor];
    CompiledParam *p = &c->param[i];
    *p = (CompiledParam){.name = arena_str(c->arena, from->name),
                         .ndim = t->ndim,
                         .init = from->init,
                         .std = from->std,
                         .decay = from->decay,
                         .cut = b->sh.param_place[i].on[AX_TP],
                         .parts = 1};
    if (p->cut >= 0) p->parts = t->dim[p->cut].parts;
    uint64_t n = 1;
    for (int d = 0; d < t->ndim; d++)
      n *= (uint64_t)(p->dim[d] = t->dim[d].size);
    c->params_total += n;
  }
  for (int u = 0; u < g->unit.n; u++)
    for (int k = 0; k < b->unit[u].nparam; k++) {
      CompiledParam *p = &c->param[b->unit[u].param[k]];
      add_pp(p, stage_rank(b, b->st.of_unit[u]), c->arena, &p->pp);
    }
}

/* Ids are known to the table that tokens are looked up in and to the loss. */
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

/* ---- sizes ---- */

/* Bytes are counted in 64 bits: no tensor may come near, so that no sum goes over. */
static bool sizes_fit(const CompileInput *in, Diags *d) {
  const Graph *g = in->graph;
  for (int i = 0; i < g->t.n; i++) {
    const Tensor *t = &g->t.at[i];
    double n = 1;
    for (int k = 0; k < t->ndim; k++) n *= (double)t->dim[k].size;
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

weft_status compile_units(Build *b, Diags *d, weft_error *e) {
  const CompileInput *in = b->in;
  if (!sizes_fit(in, d)) return WEFT_EPLAN;
  /* requires a finished graph; establishes gradients and phases */
  TRY(autodiff(in->graph, d));
  TRY(checked(in->graph, e));
  dump(in, 'a', "autodiff", in->graph);
  /* requires phases; establishes placements, local shapes and collectives */
  TRY(shard(in, &b->sh, d, e));
  TRY(checked(b->sh.g, e));
  TRY(checked_places(in->graph, &b->sh, e));
  dump(in, 's', "shard", b->sh.g);
  b->cost = unit_costs(b->sh.g, in->graph->unit.n, b->arena);
  /* requires local shapes; establishes bodies with storage for every tensor */
  return unit_code(b, d) ? WEFT_OK : WEFT_EPLAN;
}

static weft_status passes(Build *b, Compiled *c, Diags *d, weft_error *e) {
  const CompileInput *in = b->in;
  TRY(compile_units(b, d, e));
  /* requires units and costs; establishes a stage for each unit and what crosses between
   * them */
  if (!stage(in, b->cost, &b->st, d)) return WEFT_EPLAN;
  stage_edges(b);
  describe_params(b, c);
  /* requires the schedule; establishes the order of transfers between all ranks */
  transfers(b);
  int ranks = in->mesh->size[AXIS_PP];
  c->prog = NEW_N(c->arena, Program, ranks);
  for (int r = 0; r < ranks; r++) {
    Layout l;
    MainList t = {0};
    arena_reset(b->scratch);
    layout(b, r, c, &l);
    actions(b, r, &l, &t);
    /* requires bodies, layout and timeline; establishes the program */
    lower(b, r, &l, &t, c);
  }
  CommDesc *comm = NEW_N(c->arena, CommDesc, b->comm.n);
  for (int i = 0; i < b->comm.n; i++) {
    comm[i] = b->comm.at[i];
    comm[i].name = arena_str(c->arena, comm[i].name);
  }
  for (int r = 0; r < ranks; r++)
    c->prog[r].comm = comm, c->prog[r].ncomm = b->comm.n;
  c->flow = NEW_N(c->arena, Flow, flow_room(c)); /* what prove() fills */
  return WEFT_OK;
}

Schedule schedule_copy(const Schedule *from, Arena *a) {
  Schedule s = *from;
  s.list = NEW_N(a, Action *, s.ranks);
  s.n = arena_copy(a, from->n, sizeof *s.n * (size_t)s.ranks);
  s.name = arena_str(a, s.name);
  s.file = arena_str(a, s.file);
  for (int r = 0; r < s.ranks; r++)
    s.list[r] = arena_copy(a, from->list[r], sizeof(Action) * (size_t)s.n[r]);
  return s;
}

typedef struct Work {
  CompileInput in; /* with `temp` for an arena */
  Arena *result, *scratch;
  Compiled *c;
  Diags *d;
  weft_status st;
  weft_error *e;
} Work;

static void run_passes(void *ud) {
  Work *w = ud;
  const CompileInput *in = &w->in;
  Build *b = NEW(in->arena, Build);
  b->in = in;
  b->arena = in->arena;
  b->scratch = w->scratch;
  b->d = w->d;
  int rounds = (int)MAX(in->plan->batch.rounds, 1);
  b->microbatches = in->schedule->microbatches * rounds;
  Compiled *c = w->c = NEW(w->result, Compiled);
  *c = (Compiled){.arena = w->result,
                  .mesh = *in->mesh,
                  .microbatches = b->microbatches,
                  .micro = (int)in->plan->batch.micro,
                  .seq = in->graph->seq,
                  .vocab = vocabulary(in->graph),
                  .dtype = in->plan->dtype};
  bool ready = schedule_ready(in->schedule, w->d, b->arena, &b->when);
  w->st = ready ? passes(b, c, w->d, w->e) : WEFT_EPLAN;
  if (w->st == WEFT_OK) c->schedule = schedule_copy(in->schedule, c->arena);
}

/* Any of the three arenas may run out, and none may be lost then. */
static void run_in_scratch(void *ud) {
  Work *w = ud;
  if (!arena_try(w->scratch, run_passes, w)) w->st = WEFT_ENOMEM;
}

static void run_guarded(void *ud) {
  Work *w = ud;
  if (!arena_try(w->in.arena, run_in_scratch, w)) w->st = WEFT_ENOMEM;
}

weft_status compile(const CompileInput *in, Compiled **out, Diags *d, weft_error *e) {
  const weft_alloc *alloc = arena_allocator(in->arena);
  Arena *temp = arena_new(alloc), *scratch = arena_new(alloc);
  Work w = {.in = *in, .result = in->arena, .scratch = scratch, .d = d, .e = e};
  w.in.arena = temp;
  if (!temp || !scratch || !arena_try(in->arena, run_guarded, &w)) w.st = WEFT_ENOMEM;
  if (w.st == WEFT_ENOMEM) err_set(e, WEFT_ENOMEM, "out of memory while compiling");
  arena_free(scratch);
  arena_free(temp);
  if (w.st != WEFT_OK) return w.st;
  /* requires all programs; establishes that they cannot block each other */
  weft_error why = {.rank = -1};
  weft_status st = prove(w.c, &w.c->proof, &why);
  if (st == WEFT_EPLAN) {
    Diag *x = diag_error(d, "deadlock", "schedule", "%s", why.text);
    if (why.line > 0) x->file = in->schedule->file, x->line = why.line;
  } else if (st != WEFT_OK && e) {
    *e = why;
  }
  if (st == WEFT_OK) *out = w.c;
  return st;
}
