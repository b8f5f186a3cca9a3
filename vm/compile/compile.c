/* compile.c - from a graph and a schedule to proven programs. The order of passes is
 * passes.c; what follows on the order of sends, for each pp rank, is here:
 *
 *   layout --> arena with parameters --actions--> main list --unshard--> with gathers
 *     --lower--> Program; all of them --prove-->
 *
 * Temporaries live in arenas of the compile, the result in the caller's arena. */
#include "compile.h"

#include "passes.h"
#include "vm/base/budget.h"
#include "vm/graph/second_model.h"
#include "vm/lower/unsharded_buckets.h"
#include "vm/plan/optimizer.h"

static void describe_modules(const ModuleNames *from, Compiled *c) {
  ModuleName *at = NEW_N(c->arena, ModuleName, from->n);
  for (int i = 0; i < from->n; i++)
    at[i] = (ModuleName){arena_str(c->arena, from->at[i].files),
                         arena_str(c->arena, from->at[i].memory)};
  c->modules = (ModuleNames){.at = at, .n = from->n, .tensors = from->tensors};
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
        .like = arena_str(c->arena, from->like),
        .ndim = from->ndim,
        .init = from->init,
        .std = from->std,
        .decay = from->decay,
        .frozen = from->frozen,
        .matrix = from->matrix && !from->frozen && optimizer_info[c->optimizer].matrices,
        .factors =
            optimizer_info[c->optimizer].factored && !from->frozen ? from->factors : 0,
        .group = from->group,
        .adapter = from->adapter,
        .alpha = from->alpha,
        .saved = from->saved,
        .quant = from->quant,
        .share = from->share,
        .place = from->place,
        .npp = h->npp,
        .pp = arena_copy(c->arena, h->pp, sizeof(int) * (size_t)h->npp)};
    for (int d = 0; d < from->ndim; d++) {
      p->dim[d] = from->dim[d].size;
      p->parts[d] = from->dim[d].parts;
    }
    uint64_t weights = (uint64_t)param_weights(p);
    c->params_total += weights;
    if (second_prefix(p->name, strlen(p->name))) c->params_second += weights;
  }
}

static void describe_buffers(const Graph *g, Compiled *c) {
  Buffer *to = NEW_N(c->arena, Buffer, g->buffer.n + 1);
  for (int i = 0; i < g->buffer.n; i++)
    to[i] = (Buffer){arena_str(c->arena, g->buffer.at[i].name), g->buffer.at[i].value};
  c->buffer = to;
  c->nbuffer = g->buffer.n;
}

typedef struct Work {
  CompileInput in; /* with arenas of its own */
  Arena *result;
  Compiled *c;
  Comms comms;
  bool gathers; /* some rank gathers sharded parameters */
  Diags *d;
  weft_status st;
  weft_error *e;
} Work;

/* requires units and stages; establishes the program of pp rank `r` in `c` */
static weft_status rank_program(Work *w, const Transfers *tr, ActionsInput *list, int r,
                                Compiled *c) {
  const CompileInput *in = &w->in;
  const Stages *st = tr->st;
  Layout l;
  UnshardedList unsharded;
  arena_reset(in->scratch);
  layout(st, in->plan, &c->mesh, r, c->microbatches, c->arena, in->scratch, &l);
  TRY(layout_check(st, r, &l, w->e));
  TRY(matrix_check(&c->mesh, st->u, &l, w->e));
  TRY(factored_check(in->plan, &c->mesh, st->u, &l, w->e));
  unsharded_buckets(st, &l, r, in->scratch, &unsharded);
  w->gathers |= unsharded.bytes[FULL_PARAM] > 0;
  MainList t = {.steps = unsharded.n > 0};
  actions(list, r, &l, &t);
  /* requires the main list; establishes when buckets are gathered, freed and reduced */
  unshard(&in->plan->strategy, tr->s->ranks > 1, &unsharded, in->scratch, &t);
  /* requires bodies, layout and main list; establishes the program */
  Emit emit = {.plan = in->plan,
               .mesh = &c->mesh,
               .st = st,
               .u = st->u,
               .microbatches = c->microbatches,
               .comms = &w->comms,
               .scratch = in->scratch,
               .p = &c->prog[r],
               .l = &l,
               .unsharded = &unsharded};
  c->prog[r].pp = r;
  lower(&emit, &t, c);
  return WEFT_OK;
}

/* Of all pp ranks. */
static weft_status programs(Work *w, const Transfers *tr, Compiled *c) {
  c->prog = NEW_N(c->arena, Program, tr->s->ranks);
  ActionsInput list = {.tr = tr,
                       .scratch = w->in.scratch,
                       .d = w->d,
                       .keep_frames = c->context > 0,
                       .overlap = w->in.plan->strategy.overlap_grad_reduce};
  for (int r = 0; r < tr->s->ranks; r++) TRY(rank_program(w, tr, &list, r, c));
  return WEFT_OK;
}

/* Training and evaluation of a rank share one arena, of the larger size. */
static void share_arena(Arena *a, Program *p, Program *eval) {
  if (eval->arena_bytes > p->arena_bytes) {
    MemClass *mem = NEW_N(a, MemClass, p->nmem + 1);
    memcpy(mem, p->mem, sizeof *mem * (size_t)p->nmem);
    mem[p->nmem] = (MemClass){.name = "evaluation",
                              .bytes = eval->arena_bytes - p->arena_bytes,
                              .note = "in addition to training"};
    p->mem = mem, p->nmem++;
  }
  p->arena_bytes = eval->arena_bytes = MAX(p->arena_bytes, eval->arena_bytes);
  p->nhandle = eval->nhandle = MAX(p->nhandle, eval->nhandle);
  eval->mem = p->mem, eval->nmem = p->nmem;
}

/* requires the training programs; establishes the evaluation programs */
static weft_status evaluation(Work *w, const Transfers *tr) {
  Compiled *c = w->c, *v = c->eval = NEW(c->arena, Compiled);
  *v = *c;
  v->eval = NULL;
  v->forward = true;
  v->schedule = schedule_copy(tr->s, c->arena);
  TRY(programs(w, tr, v));
  for (int r = 0; r < v->schedule.ranks; r++)
    share_arena(c->arena, &c->prog[r], &v->prog[r]);
  return WEFT_OK;
}

/* What passes_ranks() is to make. */
static weft_status all_programs(Passes *p, const Transfers *tr, bool eval,
                                PassResult *x) {
  Work *w = p->ud;
  return eval ? evaluation(w, tr) : programs(w, tr, w->c);
}

/* All programs use one table of communicators. */
static void share_comms(const Comms *comms, Compiled *c) {
  CommDesc *comm = NEW_N(c->arena, CommDesc, comms->list.n);
  for (int i = 0; i < comms->list.n; i++) {
    comm[i] = comms->list.at[i];
    comm[i].name = arena_str(c->arena, comm[i].name);
    comm[i].pp = comm[i].npp
                     ? arena_copy(c->arena, comm[i].pp, sizeof(int) * (size_t)comm[i].npp)
                     : NULL;
  }
  for (Compiled *x = c; x; x = x->eval) {
    for (int r = 0; r < c->mesh.size[AXIS_PP]; r++)
      x->prog[r].comm = comm, x->prog[r].ncomm = comms->list.n;
    x->flow = NEW_N(c->arena, Flow, flow_room(x)); /* filled by prove() */
  }
}

/* requires units and stages; establishes all of the result but programs */
static void describe(Work *w, const Passes *p) {
  const Plan *plan = p->in.plan;
  const Units *u = p->units->u;
  Compiled *c = w->c = NEW(w->result, Compiled);
  *c = (Compiled){.arena = w->result,
                  .mesh = p->mesh,
                  .microbatches = p->microbatches,
                  .micro = (int)plan->batch.micro,
                  .dtype = plan->dtype,
                  .optimizer = optimizer_kind(&plan->opt),
                  .context = p->in.context,
                  .forward = p->in.context > 0,
                  .device = compile_device(&p->in),
                  .seq = u->seq,
                  .tokens = u->tokens,
                  .vocab = u->vocab,
                  .zigzag = p->mesh.size[AXIS_CP] > 1 && !plan->cp.in_order,
                  .documents = plan_cuts_documents(plan, p->mesh.size[AXIS_CP]),
                  .logits = u->logits,
                  .logits_cut = u->logits_cut,
                  .sources = u->sources};
  w->comms = (Comms){.arena = p->in.arena, .mesh = &c->mesh};
  for (int i = 0; i < u->ncomm; i++) comm_for(&w->comms, u->comm[i], NULL, 0);
  describe_modules(&p->in.plan->adapter.modules, c);
  describe_params(&p->costs->st, c);
  describe_buffers(p->in.graph, c);
}

static weft_status compile_passes(Work *w) {
  Passes p = {.in = w->in,
              .mesh = *w->in.mesh,
              .ranks = all_programs,
              .ud = w,
              .d = w->d,
              .e = w->e};
  TRY(passes_stages(&p));
  describe(w, &p);
  budget_part(w->in.arena, "the programs");
  TRY(passes_ranks(&p));
  if (!w->gathers) schedule_warn_of_parameters(w->in.schedule, w->d);
  share_comms(&w->comms, w->c);
  w->c->schedule = schedule_copy(w->in.schedule, w->result);
  return WEFT_OK;
}

static void run_passes(void *ud) {
  Work *w = ud;
  w->st = compile_passes(w);
}

/* Runs the passes with a guard against running out of memory: any of the three arenas
 * may, and all of them are freed then. */
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
  weft_error why = NO_ERROR;
  weft_status st = prove(w.c, &w.c->proof, &why);
  if (st == WEFT_OK && w.c->eval) st = prove(w.c->eval, &w.c->eval->proof, &why);
  if (st == WEFT_EPLAN) {
    Diag *x = diag_error(d, "deadlock", "schedule", "%s", why.text);
    if (why.line > 0) x->file = in->schedule->file, x->line = why.line;
  } else if (st != WEFT_OK && e) {
    *e = why;
  }
  if (st == WEFT_OK) *out = w.c;
  return st;
}
