/* compile.c - the list of passes.
 *
 *   graph --autodiff--> joint graph --shard--> local graph with collectives --units_make-->
 *   units --stages--> stages --transfers--> order of sends; for each pp rank
 *     --layout--> static memory --actions--> main list --lower--> program; all --prove-->
 *
 * A sweep takes the same passes but the last two, one by one: see share.h. Everything
 * temporary lives in arenas of the compile; the result in the arena of the caller. */
#include "autodiff.h"
#include "fold.h"
#include "unit_code.h"
#include "vm/base/budget.h"
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

/* Adds to in->graph. */
static weft_status front(const CompileInput *in, bool code, Arena *keep, Units *out,
                         Diags *d, weft_error *e) {
  Sharded sh;
  /* requires a finished graph; establishes gradients and phases */
  TRY(autodiff(in->graph, d));
  TRY(checked(in->graph, e));
  dump(in, 'a', "autodiff", in->graph);
  /* requires phases; establishes placements, local shapes and collectives */
  TRY(shard(in, &sh, d, e));
  TRY(checked(sh.g, e));
  TRY(checked_places(in->graph, &sh, e));
  dump(in, 's', "shard", sh.g);
  /* requires local shapes; establishes bodies with storage for every tensor */
  return units_make(in, &sh, code, in->scratch, keep, out, d) ? WEFT_OK : WEFT_EPLAN;
}

/* With units that repeat compiled once; false if that cannot be or something is wrong:
 * then the whole graph tells more. */
static bool folded(const CompileInput *in, bool code, Arena *keep, Units *out, Diags *d) {
  Fold *f = in->dump ? NULL : fold(in->graph, in->plan, in->arena);
  if (!f) return false;
  CompileInput here = *in;
  Diags before = *d;
  Units small;
  here.graph = f->g;
  if (front(&here, code, keep, &small, d, NULL) == WEFT_OK &&
      unfold(f, &small, keep, in->arena, out))
    return true;
  *d = before;
  return false;
}

weft_status compile_units(const CompileInput *in, bool code, Arena *keep, Units **out,
                          Diags *d, weft_error *e) {
  CompileInput whole = *in;
  if (!sizes_fit(in, d)) return WEFT_EPLAN;
  budget_part(keep, "the units");
  *out = NEW(keep, Units);
  if (folded(in, code, keep, *out, d)) return WEFT_OK;
  whole.graph = graph_fork(in->graph, in->arena);
  return front(&whole, code, keep, *out, d, e);
}

static void describe_params(const Stages *st, Compiled *c) {
  const Units *u = st->u;
  c->nparam = u->nparam;
  c->param = NEW_N(c->arena, CompiledParam, u->nparam);
  for (int i = 0; i < u->nparam; i++) {
    const UnitParam *from = &u->param[i];
    const Holders *h = &st->holders[i];
    CompiledParam *p = &c->param[i];
    *p = (CompiledParam){
        .name = arena_str(c->arena, from->name),
        .ndim = from->ndim,
        .init = from->init,
        .std = from->std,
        .decay = from->decay,
        .place = from->place,
        .npp = h->npp,
        .pp = arena_copy(c->arena, h->pp, sizeof(int) * (size_t)h->npp)};
    uint64_t n = 1;
    for (int d = 0; d < from->ndim; d++) {
      n *= (uint64_t)(p->dim[d] = from->dim[d].size);
      p->parts[d] = from->dim[d].parts;
    }
    c->params_total += n;
  }
}

static weft_status passes(const CompileInput *in, const Timeline *when, Compiled *c,
                          Diags *d, weft_error *e) {
  Arena *a = in->arena;
  Units *u;
  Stages st;
  Transfers tr;
  Comms comms = {.arena = a, .mesh = in->mesh};
  TRY(compile_units(in, true, a, &u, d, e));
  c->seq = u->seq, c->vocab = u->vocab;
  for (int i = 0; i < u->ncomm; i++)
    comm_for(&comms, u->comm[i], NULL, 0);
  budget_part(a, "the programs");
  /* requires units; establishes a stage for each and what crosses between them */
  if (!stages(u, &in->plan->pp, in->schedule, a, &st, d)) return WEFT_EPLAN;
  describe_params(&st, c);
  /* requires stages and the schedule; establishes the order of sends of all ranks */
  transfers(&st, in->schedule, when, c->microbatches, a, &tr);
  int ranks = in->mesh->size[AXIS_PP];
  c->prog = NEW_N(c->arena, Program, ranks);
  ActionsInput list = {.tr = &tr,
                       .scratch = in->scratch,
                       .d = d,
                       .overlap = in->plan->strategy.overlap_grad_reduce};
  for (int r = 0; r < ranks; r++) {
    Layout l;
    MainList t = {0};
    arena_reset(in->scratch);
    layout(&st, in->plan, r, c->microbatches, c->arena, in->scratch, &l);
    actions(&list, r, &l, &t);
    /* requires bodies, layout and main list; establishes the program */
    Emit emit = {.plan = in->plan,
                 .mesh = in->mesh,
                 .st = &st,
                 .u = u,
                 .microbatches = c->microbatches,
                 .comms = &comms,
                 .scratch = in->scratch,
                 .p = &c->prog[r],
                 .l = &l};
    c->prog[r].pp = r;
    lower(&emit, &t, c);
  }
  CommDesc *comm = NEW_N(c->arena, CommDesc, comms.list.n);
  for (int i = 0; i < comms.list.n; i++) {
    comm[i] = comms.list.at[i];
    comm[i].name = arena_str(c->arena, comm[i].name);
    comm[i].pp = comm[i].npp ? arena_copy(c->arena, comm[i].pp,
                                          sizeof(int) * (size_t)comm[i].npp)
                             : NULL;
  }
  for (int r = 0; r < ranks; r++)
    c->prog[r].comm = comm, c->prog[r].ncomm = comms.list.n;
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
  CompileInput in; /* with arenas of its own */
  Arena *result;
  Compiled *c;
  Diags *d;
  weft_status st;
  weft_error *e;
} Work;

static void run_passes(void *ud) {
  Work *w = ud;
  const CompileInput *in = &w->in;
  Timeline when;
  int rounds = (int)MAX(in->plan->batch.rounds, 1);
  Compiled *c = w->c = NEW(w->result, Compiled);
  *c = (Compiled){.arena = w->result,
                  .mesh = *in->mesh,
                  .microbatches = in->schedule->microbatches * rounds,
                  .micro = (int)in->plan->batch.micro,
                  .dtype = in->plan->dtype,
                  .device = compile_device(in)};
  bool ready = schedule_ready(in->schedule, w->d, in->arena, &when);
  w->st = ready ? passes(in, &when, c, w->d, w->e) : WEFT_EPLAN;
  if (w->st == WEFT_OK) c->schedule = schedule_copy(in->schedule, c->arena);
}

/* Any of the three arenas may run out, and none may be lost then. */
static void run_in_scratch(void *ud) {
  Work *w = ud;
  if (!arena_try(w->in.scratch, run_passes, w)) w->st = WEFT_ENOMEM;
}

static void run_guarded(void *ud) {
  Work *w = ud;
  if (!arena_try(w->in.arena, run_in_scratch, w)) w->st = WEFT_ENOMEM;
}

weft_status compile(const CompileInput *in, Compiled **out, Diags *d, weft_error *e) {
  const weft_alloc *alloc = arena_allocator(in->arena);
  Arena *temp = arena_new(alloc), *scratch = arena_new(alloc);
  Work w = {.in = *in, .result = in->arena, .d = d, .e = e};
  w.in.arena = temp, w.in.scratch = scratch;
  if (!temp || !scratch || !arena_try(in->arena, run_guarded, &w)) w.st = WEFT_ENOMEM;
  if (w.st == WEFT_ENOMEM) err_set(e, WEFT_ENOMEM, "out of memory while compiling");
  arena_free(scratch);
  arena_free(temp);
  if (w.st != WEFT_OK) return w.st;
  budget_part(w.c->arena, "the proof");
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
