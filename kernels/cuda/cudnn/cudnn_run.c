/* cudnn_run.c - attention ops through cuDNN: their plans are made when a program is
 * loaded, tried beside weft's own kernels, and run. The descriptors are in the kernel's
 * state, the handle belongs to the device. */
#include <float.h>
#include <math.h>
#include <stdio.h>

#include "cudnn_attention.h"
#include "cudnn_plan.h"
#include "kernels/cuda/attention/attention_trial.h"
#include "kernels/cuda/launch/failed_before.h"

typedef cudnnBackendDescriptor_t Desc;

typedef struct Prepared {
  CudnnPlan plan[BLOCKS_MOST];
  int op;
  bool ready; /* also where there is no block */
} Prepared;
_Static_assert(sizeof(Prepared) <= CUDNN_STATE, "what cudnn_attention.h says");

/* CudaContext.cudnn */
typedef struct Cudnn {
  CudnnLib lib;
  cudnnHandle_t handle;
  Tried tried;
} Cudnn;

static Cudnn *of(const Device *d) {
  const CudaContext *c = d->ctx;
  return c ? c->cudnn : NULL;
}

int cudnn_version(char why[DEVICE_WAY]) {
  CudnnLib lib = {0};
  weft_error e = NO_ERROR;
  if (cudnn_lib_open(&lib, &e) == WEFT_OK) return (int)lib.GetVersion();
  if (strstr(e.text, "libcudnn.so.9: cannot open"))
    snprintf(why, DEVICE_WAY, "there is no cuDNN 9");
  else /* between the name of the field and what to do */
    snprintf(why, DEVICE_WAY, "%.*s", (int)strcspn(strchr(e.text, ' ') + 1, ":"),
             strchr(e.text, ' ') + 1);
  return LIBRARY_NONE;
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
    if (r != CUDNN_STATUS_SUCCESS) st = cudnn_failed(&c->lib, r, "it cannot be used", e);
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
  attention_forget(d, &c->tried);
  mem_free(d->alloc, c, sizeof *c);
  ctx->cudnn = NULL;
}

/* ---- plans ---- */

/* All that cuDNN's plans depend on. */
static uint64_t hash_op(int op, const KernelArgs *a) {
  const OpAttr *t = a->attr;
  uint64_t h = hash_bytes((uint64_t)op, &t->head_dim, sizeof t->head_dim);
  h = hash_bytes(h, &t->scale, sizeof t->scale);
  h = hash_bytes(h, &t->window, sizeof t->window);
  return attention_hash(attention_hash_blocks(h, op, a), a);
}

static weft_status try_once(Device *d, int op, const KernelArgs *a, bool *differs,
                            weft_error *e) {
  const Contender cudnn = {.name = "cuDNN",
                           .than = "weft's own kernel",
                           .advice = ": use attention_backend = \"native\", or another "
                                     "version of cuDNN",
                           .run = cudnn_run,
                           .scratch = cudnn_work(op, a)};
  return attention_trial(d, &cudnn, &of(d)->tried, hash_op(op, a), op, a, differs, e);
}

static weft_status make_plans(Device *d, int op, KernelArgs *a, weft_error *e) {
  Prepared *s = a->state;
  AttentionGraph g;
  AttentionBlock b[BLOCKS_MOST];
  TRY(open_library(d, e));
  Cudnn *c = of(d);
  CudnnTarget t = {.lib = &c->lib, .handle = c->handle};
  TRY(cudnn_sound(c->lib.GetVersion(), op, a, e));
  int n = attention_blocks(op, a, a->index, b);
  for (int i = 0; i < n; i++) {
    attention_graph(op, a, &b[i], &g);
    TRY(cudnn_plan(&t, &g, (uint64_t)cudnn_own_work(op, a, &b[i]), &s->plan[i], e));
  }
  s->op = op;
  s->ready = true;
  return WEFT_OK;
}

static void free_plans(Device *d, Prepared *s) {
  for (int i = 0; i < BLOCKS_MOST; i++)
    if (s->plan[i].n) cudnn_plan_free(&of(d)->lib, &s->plan[i]);
  s->ready = false;
}

/* Leaves the op to weft's own kernel, whose scratch is smaller; the first reason is kept.
 * What has failed while it ran stays an error. */
static weft_status leave(Device *d, weft_status st, const char *why, weft_error *e) {
  CudaContext *ctx = d->ctx;
  if (cuda_error_of_what_ran(ctx)) return err_set(e, st, "%s", why);
  ctx->refused[0] = 0;
  if (!ctx->instead[0])
    snprintf(ctx->instead, sizeof ctx->instead,
             "weft's own kernels compute attention: %s", why);
  d->instead = ctx->instead;
  return WEFT_OK;
}

/* With "auto" what cuDNN makes no plan of, and what cannot be compared, is weft's. What
 * it computes otherwise is an error. */
weft_status cudnn_prepare(Device *d, int op, KernelArgs *a, weft_error *e) {
  Prepared *s = a->state;
  if (!s || !d->ctx) return WEFT_OK;
  const char *why = cudnn_refuses(op, a); /* the same check as at compile time */
  if (why) return err_set(e, WEFT_EINTERNAL, "cuDNN: %s", why);
  bool differs = false;
  weft_error none = NO_ERROR;
  weft_status st = make_plans(d, op, a, &none);
  if (st == WEFT_OK) st = try_once(d, op, a, &differs, &none);
  if (st == WEFT_OK) return WEFT_OK;
  free_plans(d, s);
  if (a->attr->backend == BACKEND_EITHER && !differs) return leave(d, st, none.text, e);
  return err_set(e, st, "%s", none.text);
}

void cudnn_release(Device *d, KernelArgs *a) {
  Prepared *s = a->state;
  if (attr_of_library(a->attr) && s) free_plans(d, s);
}

/* ---- running ---- */

/* Copies the operands that lie by heads in the scratch. */
static void put_by_heads(Device *d, const AttentionGraph *g, const KernelArgs *a) {
  for (int i = 0; i < g->ntensor; i++) {
    const AgTensor *t = &g->tensor[i];
    if (t->where != AG_BY_HEADS) continue;
    const KTensor *x = &a->in[t->index];
    cuda_by_heads(d, (const float *)x->p + t->from * t->dim[1],
                  (float *)((char *)a->work + t->at), t->dim[0], t->dim[2], t->dim[1],
                  x->dim[1]);
  }
}

/* A variant pack: addresses and values of the tensors that have one. */
typedef struct Pack {
  int64_t identity[AG_TENSORS];
  void *at[AG_TENSORS];
  int32_t number[AG_TENSORS]; /* its bits */
  int n;
} Pack;

/* A masked score: cuDNN's frontend gives the lowest number before 9.10, and -inf since
 * (its score modifiers), which scaling leaves as it is. */
static int32_t bits_of(const AgTensor *t, size_t version) {
  enum { INFINITE = 91000 };
  AgTensor is = *t;
  if (t->type == AG_F32 && t->number == -FLT_MAX && version >= INFINITE)
    is.number = -INFINITY;
  return is.count;
}

static void pack_of(const AttentionGraph *g, const KernelArgs *a, size_t version,
                    Pack *p) {
  p->n = 0;
  for (int i = 0; i < g->ntensor; i++) {
    const AgTensor *t = &g->tensor[i];
    if (t->where == AG_BETWEEN || t->where == AG_NOWHERE) continue;
    char *from = t->where == AG_IN    ? a->in[t->index].p
                 : t->where == AG_OUT ? a->out[t->index].p
                                      : a->work;
    p->number[p->n] = bits_of(t, version);
    p->at[p->n] = t->where == AG_NUMBER ? (void *)&p->number[p->n] : from + t->at;
    p->identity[p->n++] = i + 1;
  }
}

/* Fingerprint of plan, addresses and values: a variant pack has no more. */
static uint64_t print_of(uint64_t h, const CudnnPlan *plan, const AttentionGraph *g,
                         const Pack *p, const KernelArgs *a) {
  h = hash_bytes(h, &plan, sizeof plan);
  h = hash_bytes(h, &a->work, sizeof a->work);
  for (int i = 0; i < p->n; i++) {
    bool number = g->tensor[p->identity[i] - 1].where == AG_NUMBER;
    const void *what = number ? (const void *)&p->number[i] : &p->at[i];
    h = hash_bytes(h, what, number ? sizeof p->number[i] : sizeof p->at[i]);
  }
  return h;
}

static cudnnStatus_t execute(const Cudnn *c, const CudnnPlan *plan, const Pack *p,
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
  if (r == CUDNN_STATUS_SUCCESS) r = lib->BackendExecute(c->handle, plan->plan, d);
  if (d) (void)lib->BackendDestroyDescriptor(d);
  return r;
}

static void run_block(Device *d, const CudnnPlan *plan, const AttentionGraph *g,
                      const KernelArgs *a) {
  CudaContext *ctx = d->ctx;
  Cudnn *c = of(d);
  Pack p;
  weft_error e = {0};
  put_by_heads(d, g, a);
  pack_of(g, a, c->lib.GetVersion(), &p);
  ctx->print = print_of(ctx->print, plan, g, &p, a);
  if (d->dry && !d->loads) return;
  cudnnStatus_t r = execute(c, plan, &p, (char *)a->work + g->scratch);
  if (r == CUDNN_STATUS_SUCCESS || ctx->refused[0] || cuda_failed_before(ctx)) return;
  (void)cudnn_failed(&c->lib, r, "attention cannot be run", &e);
  snprintf(ctx->refused, sizeof ctx->refused, "%.500s", e.text);
}

bool cudnn_takes(const KernelArgs *a) {
  const Prepared *s = a->state;
  return attr_of_library(a->attr) && s && s->ready;
}

bool cudnn_run(Device *d, const KernelArgs *a) {
  const Prepared *s = a->state;
  if (!cudnn_takes(a)) return false;
  AttentionGraph g;
  AttentionBlock b[BLOCKS_MOST];
  int n = attention_blocks(s->op, a, a->index, b);
  if (n == 0) cudnn_pass_on(d, s->op, a);
  for (int i = 0; i < n; i++) {
    attention_graph(s->op, a, &b[i], &g);
    run_block(d, &s->plan[i], &g, a);
    cudnn_put_staged(d, s->op, a, &g, &b[i], i > 0);
  }
  return true;
}
