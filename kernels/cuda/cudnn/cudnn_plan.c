/* cudnn_plan.c - makes cuDNN's plans of attention: descriptors of a graph, and the first
 * engine that is content with the scratch there is. */
#include "cudnn_plan.h"

typedef cudnnBackendDescriptor_t Desc;

weft_status cudnn_failed(const CudnnLib *lib, cudnnStatus_t r, const char *what,
                         weft_error *e) {
  char more[200] = "";
  lib->GetLastErrorString(more, sizeof more);
  return err_set(e, WEFT_ERUN, "cuDNN: %s: %s%s%s", what, lib->GetErrorString(r),
                 more[0] ? ": " : "", more);
}

int64_t cudnn_plan_work(const CudnnLib *lib, Desc plan) {
  int64_t n = 0, bytes = -1;
  (void)lib->BackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                 CUDNN_TYPE_INT64, 1, &n, &bytes);
  return bytes;
}

/* Engines taken from cuDNN's heuristic, the best first. */
enum { PROPOSED = 4 };
static int64_t propose(CudnnMaker *m, Desc graph, Desc config[PROPOSED]) {
  cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
  int64_t n = 0;
  Desc rule = cudnn_new(m, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, "a choice of engines");
  cudnn_put(m, rule, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  cudnn_set(m, rule, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  if (m->target->elsewhere)
    cudnn_put(m, rule, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, m->target->elsewhere);
  cudnn_finish(m, rule);
  for (int i = 0; i < PROPOSED; i++)
    config[i] = cudnn_new(m, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, "an engine");
  if (m->status != CUDNN_STATUS_SUCCESS) return 0;
  cudnnStatus_t r = m->target->lib->BackendGetAttribute(
      rule, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, PROPOSED, &n,
      config);
  if (r == CUDNN_STATUS_SUCCESS) return n;
  m->status = r, m->what = "it names no engine";
  return 0;
}

/* NULL if this engine supports no such plan. */
static Desc plan_of(const CudnnTarget *t, Desc config) {
  const CudnnLib *lib = t->lib;
  Desc d = NULL;
  cudnnStatus_t r =
      lib->BackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &d);
  if (r == CUDNN_STATUS_SUCCESS)
    r = lib->BackendSetAttribute(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config);
  if (r == CUDNN_STATUS_SUCCESS && t->handle)
    r = lib->BackendSetAttribute(d, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE,
                                 1, &t->handle);
  if (r == CUDNN_STATUS_SUCCESS && t->elsewhere)
    r = lib->BackendSetAttribute(d, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &t->elsewhere);
  if (r == CUDNN_STATUS_SUCCESS) r = lib->BackendFinalize(d);
  if (r == CUDNN_STATUS_SUCCESS || !d) return d;
  (void)lib->BackendDestroyDescriptor(d);
  return NULL;
}

static weft_status choose(CudnnMaker *m, Desc graph, uint64_t work, weft_error *e) {
  const CudnnLib *lib = m->target->lib;
  Desc config[PROPOSED];
  int64_t n = propose(m, graph, config), least = -1;
  if (m->status != CUDNN_STATUS_SUCCESS) return cudnn_failed(lib, m->status, m->what, e);
  for (int64_t i = 0; i < n; i++) {
    Desc plan = plan_of(m->target, config[i]);
    if (!plan) continue;
    int64_t wants = cudnn_plan_work(lib, plan);
    if (wants >= 0 && (uint64_t)wants <= work) {
      m->plan->plan = plan;
      return WEFT_OK;
    }
    if (least < 0 || wants < least) least = wants;
    (void)lib->BackendDestroyDescriptor(plan);
  }
  if (least < 0)
    return err_set(e, WEFT_ERUN,
                   "cuDNN has no engine for this attention on this GPU; use "
                   "attention_backend = \"native\"");
  return err_set(e, WEFT_ERUN,
                 "cuDNN needs %lld bytes of workspace for this attention, but the plan "
                 "reserves %llu; use attention_backend = \"native\"",
                 (long long)least, (unsigned long long)work);
}

weft_status cudnn_plan(const CudnnTarget *t, const AttentionGraph *g, uint64_t work,
                       CudnnPlan *p, weft_error *e) {
  *p = (CudnnPlan){0};
  CudnnMaker m = {.target = t, .plan = p, .status = CUDNN_STATUS_SUCCESS};
  Desc graph = cudnn_graph(&m, g);
  weft_status st = m.status == CUDNN_STATUS_SUCCESS
                       ? choose(&m, graph, work, e)
                       : cudnn_failed(t->lib, m.status, m.what, e);
  if (st != WEFT_OK) cudnn_plan_free(t->lib, p);
  return st;
}

void cudnn_plan_free(const CudnnLib *lib, CudnnPlan *p) {
  if (p->plan) (void)lib->BackendDestroyDescriptor(p->plan);
  for (int i = p->n - 1; i >= 0; i--) (void)lib->BackendDestroyDescriptor(p->made[i]);
  *p = (CudnnPlan){0};
}
