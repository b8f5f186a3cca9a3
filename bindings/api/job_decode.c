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
