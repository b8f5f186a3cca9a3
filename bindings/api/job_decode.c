/* job_decode.c - compiles a plan's model for decoding, one token at a time, under its tp.
 */
#include "job.h"
#include "bindings/model/model.h"

#include "vm/rewrite/rewrite_passes.h"
#include "vm/compile/compile.h"

/* Keeps of the plan only the model, its precision, and how tp shards it. */
static void keep_model(Plan *p) {
  p->mesh = (MeshSpec){.tp = MAX(p->mesh.tp, 1), .world = MAX(p->mesh.tp, 1)};
  p->batch = (Batch){.global = 1, .micro = 1, .seq = 1, .rounds = 1};
  p->pp = (PpPlan){.virtual_stages = 1};
  p->recompute = (Recompute){0};
  p->strategy = (Strategy){.kind = STRATEGY_ZERO,
                           .loss_parallel = true,
                           .overlap_tp = p->strategy.overlap_tp,
                           .bucket_bytes = p->strategy.bucket_bytes};
  p->packed = (Packed){0};
  p->loss = (LossPlan){0};
  p->mtp = (MtpPlan){0};
  p->moe.aux = p->moe.z = 0;
  p->moe.sinkhorn_sequences = 0;
  p->eval_every = 0;
  p->opt.post_validation = false;
}

static weft_status make_graph(Job *j, int64_t context) {
  j->graph = graph_new(j->arena, 1, 1);
  j->graph->context = context;
  TRY(lang_build_graph(j->lp, &j->plan, 1, 1, j->graph, &j->d, &j->e));
  return decode_graph(j->graph, context, &j->d) ? WEFT_OK : WEFT_EPLAN;
}

static weft_status compile_steps(Job *j, int64_t context) {
  TRY(make_graph(j, context));
  Action *forward = NEW(j->arena, Action), **list = NEW(j->arena, Action *);
  int *n = NEW(j->arena, int);
  *forward = (Action){.kind = ACT_F};
  *list = forward, *n = 1;
  j->schedule = (Schedule){.ranks = 1,
                           .virtual_stages = 1,
                           .microbatches = 1,
                           .list = list,
                           .n = n,
                           .name = "one token"};
  CompileInput in = {.plan = &j->plan,
                     .mesh = &j->mesh,
                     .graph = j->graph,
                     .schedule = &j->schedule,
                     .context = context,
                     .device = j->device,
                     .arena = j->arena};
  TRY(compile(&in, &j->compiled, &j->d, &j->e));
  j->mesh = j->compiled->mesh;
  return WEFT_OK;
}

/* ---- a model that is another one for longer texts, as with longrope ---- */

/* The model for one token of a context; NULL: it refuses this one, and job_decode says
 * why. */
static const Graph *graph_of(const Job *j, int64_t context) {
  Diags d = {.arena = j->arena};
  weft_error e = NO_ERROR;
  Plan plan = j->plan;
  Graph *g = graph_new(j->arena, 1, 1);
  keep_model(&plan);
  g->context = context;
  return lang_build_graph(j->lp, &plan, 1, 1, g, &d, &e) == WEFT_OK ? g : NULL;
}

static bool alike(const Graph *a, const Graph *b) {
  if (!a || !b) return a == b;
  bool same = a->op.n == b->op.n && a->t.n == b->t.n && a->param.n == b->param.n;
  for (int i = 0; same && i < a->op.n; i++)
    same = a->op.at[i].code == b->op.at[i].code &&
           memcmp(&a->op.at[i].attr, &b->op.at[i].attr, sizeof(OpAttr)) == 0;
  return same;
}

/* What is the same for the least and the most is so for all between. */
void job_decode_contexts(const Job *j, int64_t *context, int n) {
  const Graph **of = NEW_N(j->arena, const Graph *, n);
  int *first = NEW_N(j->arena, int, n); /* the first context with that model */
  int64_t *most = NEW_N(j->arena, int64_t, n), low = context[0], high = context[0];
  for (int i = 1; i < n; i++) low = MIN(low, context[i]), high = MAX(high, context[i]);
  bool differ = low < high && !alike(graph_of(j, low), graph_of(j, high));
  for (int i = 0; i < n; i++) {
    of[i] = differ ? graph_of(j, context[i]) : NULL;
    while (!alike(of[first[i]], of[i])) first[i]++;
    most[first[i]] = MAX(most[first[i]], context[i]);
  }
  for (int i = 0; i < n; i++) context[i] = most[first[i]];
}

weft_status job_decode(Job *j, int64_t context) {
  int64_t trained = j->plan.batch.seq;
  if (context > trained)
    return err_set(&j->e, WEFT_EUSAGE,
                   "%lld positions, but the plan trains on %lld (batch.seq)",
                   (long long)context, (long long)trained);
  keep_model(&j->plan);
  if (!mesh_resolve(&j->plan.mesh, 0, &j->mesh, &j->d)) return WEFT_EPLAN;
  j->microbatches = 1;
  weft_status st = compile_steps(j, context);
  if (j->d.list.n) lang_locate(j->lp, &j->d);
  return st;
}
