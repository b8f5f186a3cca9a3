/* cudnn_plan.c - builds cuDNN's plans of attention when a program is loaded, and runs
 * them: the descriptors are in the kernel's state, the handle belongs to the device. */
#include "cudnn_plan.h"

#include <stdio.h>

#include "cudnn_attention.h"

typedef cudnnBackendDescriptor_t Desc;

typedef struct Prepared {
  CudnnPlan plan;
  int op;
} Prepared;
_Static_assert(sizeof(Prepared) <= CUDNN_STATE, "what cudnn_attention.h says");

/* CudaContext.cudnn */
typedef struct Cudnn {
  CudnnLib lib;
  cudnnHandle_t handle;
  char failed[200]; /* the first plan that failed to run, or "" */
} Cudnn;

static Cudnn *of(const Device *d) {
  const CudaContext *c = d->ctx;
  return c ? c->cudnn : NULL;
}

/* ---- making a plan ---- */

static weft_status failed(const CudnnLib *lib, cudnnStatus_t r, const char *what,
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
  if (m->status != CUDNN_STATUS_SUCCESS) return failed(lib, m->status, m->what, e);
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
  weft_status st = m.status == CUDNN_STATUS_SUCCESS ? choose(&m, graph, work, e)
                                                    : failed(t->lib, m.status, m.what, e);
  if (st != WEFT_OK) cudnn_plan_free(t->lib, p);
  return st;
}

void cudnn_plan_free(const CudnnLib *lib, CudnnPlan *p) {
  if (p->plan) (void)lib->BackendDestroyDescriptor(p->plan);
  for (int i = p->n - 1; i >= 0; i--) (void)lib->BackendDestroyDescriptor(p->made[i]);
  *p = (CudnnPlan){0};
}

/* ---- the device's handle ---- */

static weft_status open_library(Device *d, weft_error *e) {
  CudaContext *ctx = d->ctx;
  if (ctx->cudnn) return WEFT_OK;
  Cudnn *c = mem_new(d->alloc, sizeof *c);
  if (!c) return err_set(e, WEFT_ENOMEM, "out of memory");
  weft_status st = cudnn_lib_open(&c->lib, e);
  if (st == WEFT_OK) {
    cudnnStatus_t r = c->lib.Create(&c->handle);
    if (r == CUDNN_STATUS_SUCCESS)
      r = c->lib.SetStream(c->handle, (cudaStream_t)ctx->stream);
    if (r != CUDNN_STATUS_SUCCESS) st = failed(&c->lib, r, "it cannot be used", e);
  }
  ctx->cudnn = c;
  if (st != WEFT_OK) cudnn_close(d);
  return st;
}

void cudnn_close(Device *d) {
  CudaContext *ctx = d->ctx;
  Cudnn *c = of(d);
  if (!c) return;
  if (c->handle) (void)c->lib.Destroy(c->handle);
  mem_free(d->alloc, c, sizeof *c);
  ctx->cudnn = NULL;
}

const char *cudnn_failure(const Device *d) {
  const Cudnn *c = of(d);
  return c && c->failed[0] ? c->failed : NULL;
}

weft_status cudnn_prepare(Device *d, int op, KernelArgs *a, weft_error *e) {
  Prepared *s = a->state;
  AttentionGraph g;
  if (!s || !d->ctx) return WEFT_OK;
  const char *why = cudnn_refuses(op, a); /* the same check as at compile time */
  if (why) return err_set(e, WEFT_EINTERNAL, "cuDNN: %s", why);
  TRY(open_library(d, e));
  Cudnn *c = of(d);
  CudnnTarget t = {.lib = &c->lib, .handle = c->handle};
  attention_graph(op, a, &g);
  s->op = op;
  return cudnn_plan(&t, &g, cudnn_work(op, a) - (uint64_t)g.scratch, &s->plan, e);
}

void cudnn_release(Device *d, KernelArgs *a) {
  Prepared *s = a->state;
  if (a->attr->backend == BACKEND_CUDNN && s && s->plan.n)
    cudnn_plan_free(&of(d)->lib, &s->plan);
}

/* ---- running ---- */

/* A variant pack: addresses and values of the tensors that have one. */
typedef struct Pack {
  int64_t identity[AG_TENSORS];
  void *at[AG_TENSORS];
  float number[AG_TENSORS];
  int n;
} Pack;

static void pack_of(const AttentionGraph *g, const KernelArgs *a, Pack *p) {
  p->n = 0;
  for (int i = 0; i < g->ntensor; i++) {
    const AgTensor *t = &g->tensor[i];
    if (t->where == AG_BETWEEN) continue;
    p->number[p->n] = t->number;
    p->at[p->n] = t->where == AG_IN        ? a->in[t->index].p
                  : t->where == AG_OUT     ? a->out[t->index].p
                  : t->where == AG_SCRATCH ? (char *)a->work + t->at
                                           : (void *)&p->number[p->n];
    p->identity[p->n++] = i + 1;
  }
}

/* Fingerprint of plan, addresses and values: a variant pack has no more. */
static uint64_t print_of(uint64_t h, const Prepared *s, const AttentionGraph *g,
                         const Pack *p, const KernelArgs *a) {
  h = hash_bytes(h, &s, sizeof s);
  h = hash_bytes(h, &a->work, sizeof a->work);
  for (int i = 0; i < p->n; i++) {
    bool number = g->tensor[p->identity[i] - 1].where == AG_NUMBER;
    const void *what = number ? (const void *)&p->number[i] : &p->at[i];
    h = hash_bytes(h, what, number ? sizeof p->number[i] : sizeof p->at[i]);
  }
  return h;
}

static cudnnStatus_t execute(const Cudnn *c, const Prepared *s, const Pack *p,
                             void *work) {
  const CudnnLib *lib = &c->lib;
  Desc d = NULL;
  cudnnStatus_t r =
      lib->BackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &d);
  if (r == CUDNN_STATUS_SUCCESS)
    r = lib->BackendSetAttribute(d, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64,
                                 p->n, p->identity);
  if (r == CUDNN_STATUS_SUCCESS)
    r = lib->BackendSetAttribute(d, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                                 CUDNN_TYPE_VOID_PTR, p->n, p->at);
  if (r == CUDNN_STATUS_SUCCESS)
    r = lib->BackendSetAttribute(d, CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
                                 CUDNN_TYPE_VOID_PTR, 1, &work);
  if (r == CUDNN_STATUS_SUCCESS) r = lib->BackendFinalize(d);
  if (r == CUDNN_STATUS_SUCCESS) r = lib->BackendExecute(c->handle, s->plan.plan, d);
  if (d) (void)lib->BackendDestroyDescriptor(d);
  return r;
}

bool cudnn_run(Device *d, const KernelArgs *a) {
  const Prepared *s = a->state;
  CudaContext *ctx = d->ctx;
  if (a->attr->backend != BACKEND_CUDNN || !s || !s->plan.plan) return false;
  AttentionGraph g;
  Pack p;
  attention_graph(s->op, a, &g);
  pack_of(&g, a, &p);
  ctx->print = print_of(ctx->print, s, &g, &p, a);
  if (d->dry && !d->loads) return true;
  Cudnn *c = of(d);
  weft_error e = {0};
  cudnnStatus_t r = execute(c, s, &p, (char *)a->work + g.scratch);
  if (r == CUDNN_STATUS_SUCCESS || c->failed[0]) return true;
  (void)failed(&c->lib, r, "attention cannot be run", &e);
  snprintf(c->failed, sizeof c->failed, "%.199s", e.text);
  return true;
}
