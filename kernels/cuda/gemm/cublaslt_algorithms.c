/* cublaslt_algorithms.c - selects cuBLASLt's algorithm for a GEMM. The library's
 * heuristic orders them by shapes and GPU: without timing the first is taken. With timing
 * the first few are run when a program is loaded, on temporary memory, and the one with
 * the shortest median is taken. None uses split-K, so each is deterministic. */
#include <float.h>

#include "cublaslt_int.h"

enum { CANDIDATES = 8, ROUNDS = 5, BLOCK = 256 };
/* Time limits per product in ms: no round begins after the first, no warm-up of another
 * candidate after the second. */
static const float patience = 100, warm_up = 50;

/* ---- candidates ---- */

static cublasStatus_t limit(cublasLtMatmulPreference_t pref, uint64_t work) {
  static const cublasLtMatmulPreferenceAttributes_t sides[] = {
      CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
      CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
      CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
      CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
  uint32_t align = LT_ALIGNED, whole = CUBLASLT_REDUCTION_SCHEME_NONE;
  cublasStatus_t r = cublasLtMatmulPreferenceSetAttribute(
      pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &work, sizeof work);
  if (!r)
    r = cublasLtMatmulPreferenceSetAttribute(
        pref, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &whole, sizeof whole);
  for (int i = 0; !r && i < LEN(sides); i++)
    r = cublasLtMatmulPreferenceSetAttribute(pref, sides[i], &align, sizeof align);
  return r;
}

/* The candidates that fit, best first; their number in *n. */
static cublasStatus_t propose(void *lt, const Prepared *s, uint64_t work,
                              cublasLtMatmulAlgo_t algo[CANDIDATES], int *n) {
  cublasLtMatmulPreference_t pref;
  cublasLtMatmulHeuristicResult_t got[CANDIDATES];
  int all = 0;
  *n = 0;
  cublasStatus_t r = cublasLtMatmulPreferenceCreate(&pref);
  if (r) return r;
  r = limit(pref, work);
  if (!r)
    r = cublasLtMatmulAlgoGetHeuristic(lt, s->how, s->a, s->b, s->c, s->c, pref,
                                       CANDIDATES, got, &all);
  for (int i = 0; !r && i < all; i++)
    if (!got[i].state && got[i].workspaceSize <= work) algo[(*n)++] = got[i].algo;
  if (!r && !*n) r = CUBLAS_STATUS_NOT_SUPPORTED;
  (void)cublasLtMatmulPreferenceDestroy(pref);
  return r;
}

/* ---- timing ---- */

/* Operands of a timed run, all zeros. */
typedef struct Trial {
  const CudaContext *c;
  const Prepared *s;
  LtCall call;
  cublasStatus_t refused; /* why the last launch that was refused was */
} Trial;

static size_t whole(size_t bytes) { return (bytes + BLOCK - 1) / BLOCK * BLOCK; }

/* One launch, in ms; FLT_MAX if the library refuses it. */
static cudaError_t once(Trial *t, const cublasLtMatmulAlgo_t *algo, float *ms) {
  GemmChoices *g = t->c->choices;
  cudaStream_t queue = t->c->stream;
  *ms = FLT_MAX;
  cudaError_t r = cudaEventRecord(g->begin, queue);
  if (r) return r;
  cublasStatus_t st = lt_multiply(t->c, t->s, algo, &t->call);
  if (st) {
    t->refused = st;
    return cudaSuccess;
  }
  r = cudaEventRecord(g->end, queue);
  if (!r) r = cudaStreamSynchronize(queue);
  return r ? r : cudaEventElapsedTime(ms, g->begin, g->end);
}

static float median(float *x, int n) {
  for (int i = 1; i < n; i++)
    for (int k = i; k > 0 && x[k] < x[k - 1]; k--) {
      float t = x[k];
      x[k] = x[k - 1], x[k - 1] = t;
    }
  return x[n / 2];
}

/* Runs each candidate once and lists those that were not refused. A product that takes
 * long has fewer: a user waits for this. */
static cudaError_t warm(Trial *t, const cublasLtMatmulAlgo_t *algo, int n,
                        int runs[CANDIDATES], int *nrun) {
  float ms, spent = 0;
  *nrun = 0;
  for (int i = 0; i < n && spent < warm_up; i++) {
    cudaError_t r = once(t, &algo[i], &ms);
    if (r) return r;
    if (ms == FLT_MAX) continue;
    spent += ms;
    runs[(*nrun)++] = i;
  }
  return cudaSuccess;
}

/* In turns, so that throttling affects all alike. *best stays if all are refused. */
static cudaError_t race(Trial *t, const cublasLtMatmulAlgo_t *algo, int n, int *best) {
  float ms[CANDIDATES][ROUNDS], spent = 0, least = FLT_MAX;
  int runs[CANDIDATES], nrun, rounds = 0;
  cudaError_t r = warm(t, algo, n, runs, &nrun);
  if (r) return r;
  if (nrun) *best = runs[0];
  for (; nrun > 1 && rounds < ROUNDS && spent < patience; rounds++)
    for (int i = 0; i < nrun; i++) {
      r = once(t, &algo[runs[i]], &ms[i][rounds]);
      if (r) return r;
      if (ms[i][rounds] < FLT_MAX) spent += ms[i][rounds];
    }
  for (int i = 0; rounds && i < nrun; i++) {
    float mine = median(ms[i], rounds);
    if (mine < least) least = mine, *best = runs[i];
  }
  return cudaSuccess;
}

/* Keeps the first candidate if there is no memory for operands, as without timing. If all
 * are refused *best is -1, and *why says why. */
static cudaError_t time_them(const CudaContext *c, const Prepared *s, const Product *k,
                             bool add, uint64_t work, const cublasLtMatmulAlgo_t *algo,
                             int n, int *best, cublasStatus_t *why) {
  size_t each = k->fp8 ? 1 : (size_t)dtype_size(k->in);
  size_t x = whole((size_t)(k->m * k->k) * each), y = whole((size_t)(k->k * k->n) * each);
  size_t out = whole((size_t)(k->m * k->n) * (size_t)dtype_size(k->out));
  size_t xs = whole(k->a_scales), ys = whole(k->b_scales);
  size_t all = x + y + out + xs + ys + work;
  void *p = NULL;
  *best = 0;
  cudaError_t r = cudaMalloc(&p, all);
  if (r == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError(); /* clears the error */
    return cudaSuccess;
  }
  if (r) return r;
  char *at = p;
  LtCall call = {.x = at, .y = at + x, .out = at + x + y, .add = add, .bytes = work};
  if (k->fp8) call.x_scale = at + x + y + out, call.y_scale = at + x + y + out + xs;
  call.work = at + x + y + out + xs + ys;
  Trial t = {.c = c, .s = s, .call = call};
  *best = -1;
  r = cudaMemsetAsync(p, 0, all, c->stream);
  if (!r) r = race(&t, algo, n, best);
  *why = t.refused;
  cudaError_t freed = cudaFree(p);
  return r ? r : freed;
}

/* ---- cache of choices ---- */

static const struct GemmChoice *known(const GemmChoices *g, const GemmKey *key) {
  for (int i = 0; i < MIN(g->n, GEMM_CHOICES); i++)
    if (memcmp(&g->at[i].key, key, sizeof *key) == 0) return &g->at[i];
  return NULL;
}

static GemmKey key_of(const Product *p, bool add, uint64_t work) {
  return (GemmKey){.m = p->m,
                   .n = p->n,
                   .k = p->k,
                   .a_row = p->a_row,
                   .a_col = p->a_col,
                   .b_row = p->b_row,
                   .b_col = p->b_col,
                   .work = work,
                   .in = (int32_t)p->in,
                   .out = (int32_t)p->out,
                   .add = add,
                   .fp8 = p->fp8 | p->a_e5m2 << 8 | p->b_e5m2 << 9};
}

static weft_status has_none(const Product *p, const char *what, cublasStatus_t why,
                            weft_error *e) {
  return err_set(e, WEFT_ERUN,
                 "cuBLASLt: %s for the product of %lld x %lld x %lld: status %d", what,
                 (long long)p->m, (long long)p->k, (long long)p->n, (int)why);
}

weft_status choose_algorithm(Device *d, Prepared *s, const Product *p, bool add,
                             uint64_t work, weft_error *e) {
  const CudaContext *c = d->ctx;
  cublasLtMatmulAlgo_t algo[CANDIDATES];
  GemmKey key = key_of(p, add, work);
  int n, best = 0;
  const struct GemmChoice *was = d->times && c->choices ? known(c->choices, &key) : NULL;
  if (was) {
    s->algo = was->algo;
    return WEFT_OK;
  }
  cublasStatus_t r = propose(c->lt, s, work, algo, &n);
  if (r) return has_none(p, "no algorithm", r, e);
  if (d->times && c->choices && n > 1) {
    cudaError_t st = time_them(c, s, p, add, work, algo, n, &best, &r);
    if (st)
      return err_set(e, WEFT_ERUN,
                     "products cannot be timed: %s; deterministic = true takes "
                     "the library's first",
                     cudaGetErrorString(st));
    if (best < 0) return has_none(p, "no algorithm that it runs", r, e);
    GemmChoices *g = c->choices;
    g->at[g->n++ % GEMM_CHOICES] = (struct GemmChoice){key, algo[best]};
  }
  s->algo = algo[best];
  return WEFT_OK;
}
