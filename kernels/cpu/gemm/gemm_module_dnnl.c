/* gemm_module_dnnl.c - products through oneDNN: f32, and bf16 with the CPU's own
 * instructions where it has them. Built as weft_gemm_dnnl.so. */
#include "gemm.h"

#include <dnnl.h>
#include <omp.h>
#include <stdio.h>

/* Rows of the result: their operands and products. */
typedef struct Rows {
  int64_t first;
  dnnl_memory_t a, b, c;
  dnnl_primitive_t run[2]; /* overwrite; add (f32 results and weight gradients) */
} Rows;

typedef struct Product {
  GemmShape s;
  int threads, nrows;
  bool sgemm; /* through dnnl_sgemm; no primitives */
  dnnl_engine_t engine;
  dnnl_stream_t stream;
  Rows rows[2];
} Product;

_Static_assert(sizeof(Product) <= GEMM_STATE, "the state of a product has room");

static dnnl_data_type_t type(DType t) { return t == DT_F32 ? dnnl_f32 : dnnl_bf16; }
static int64_t width(DType t) { return t == DT_F32 ? 4 : 2; }

/* Describes a row-major (rows, cols) matrix, or its transpose, with `all` rows. */
static bool matrix(dnnl_memory_desc_t *d, int64_t rows, int64_t cols, bool turned,
                   int64_t all, DType t) {
  dnnl_dims_t dim = {rows, cols}, stride = {cols, 1};
  if (turned) stride[0] = 1, stride[1] = all;
  return dnnl_memory_desc_init_by_strides(d, 2, dim, type(t), stride) == dnnl_success;
}

static bool make_primitive(dnnl_engine_t engine, const dnnl_memory_desc_t *a,
                           const dnnl_memory_desc_t *b, const dnnl_memory_desc_t *c,
                           bool add, dnnl_primitive_t *out) {
  dnnl_matmul_desc_t d;
  dnnl_primitive_attr_t attr = NULL;
  dnnl_post_ops_t post = NULL;
  dnnl_primitive_desc_t pd = NULL;
  bool ok = dnnl_matmul_desc_init(&d, a, b, NULL, c) == dnnl_success &&
            dnnl_primitive_attr_create(&attr) == dnnl_success;
  if (ok && add)
    ok = dnnl_post_ops_create(&post) == dnnl_success &&
         dnnl_post_ops_append_sum(post, 1.0f) == dnnl_success &&
         dnnl_primitive_attr_set_post_ops(attr, post) == dnnl_success;
  ok = ok && dnnl_primitive_desc_create(&pd, &d, attr, engine, NULL) == dnnl_success &&
       dnnl_primitive_create(out, pd) == dnnl_success;
  if (pd) dnnl_primitive_desc_destroy(pd);
  if (post) dnnl_post_ops_destroy(post);
  if (attr) dnnl_primitive_attr_destroy(attr);
  return ok;
}

/* Adds the primitives for rows [first, last) of the result. */
static bool add_rows(Product *p, int64_t first, int64_t last) {
  const GemmShape *s = &p->s;
  Rows *r = &p->rows[p->nrows++];
  dnnl_memory_desc_t a, b, c;
  r->first = first;
  return matrix(&a, last - first, s->k, s->ta, s->m, s->in) &&
         matrix(&b, s->k, s->n, s->tb, s->k, s->in) &&
         matrix(&c, last - first, s->n, false, 0, s->out) &&
         dnnl_memory_create(&r->a, &a, p->engine, DNNL_MEMORY_NONE) == dnnl_success &&
         dnnl_memory_create(&r->b, &b, p->engine, DNNL_MEMORY_NONE) == dnnl_success &&
         dnnl_memory_create(&r->c, &c, p->engine, DNNL_MEMORY_NONE) == dnnl_success &&
         make_primitive(p->engine, &a, &b, &c, false, &r->run[0]) &&
         (!(s->out == DT_F32 || s->ta) ||
          make_primitive(p->engine, &a, &b, &c, true, &r->run[1]));
}

/* For a transposed bf16 operand whose rows do not fill whole blocks, oneDNN's path is a
 * quarter slower (weights of a vocabulary of 50257), so the remaining rows go apart. */
enum { ROW_BLOCK = 64 };

static bool make_matmul(Product *p) {
  int64_t m = p->s.m, rest = p->s.ta && p->s.in == DT_BF16 ? m % ROW_BLOCK : 0;
  if (m < 8 * ROW_BLOCK) rest = 0;
  return dnnl_engine_create(&p->engine, dnnl_cpu, 0) == dnnl_success &&
         dnnl_stream_create(&p->stream, p->engine, dnnl_stream_default_flags) ==
             dnnl_success &&
         add_rows(p, 0, m - rest) && (rest == 0 || add_rows(p, m - rest, m));
}

static void release(void *state) {
  Product *p = state;
  for (int k = 0; k < p->nrows; k++) {
    Rows *r = &p->rows[k];
    for (int i = 0; i < 2; i++)
      if (r->run[i]) dnnl_primitive_destroy(r->run[i]);
    if (r->a) dnnl_memory_destroy(r->a);
    if (r->b) dnnl_memory_destroy(r->b);
    if (r->c) dnnl_memory_destroy(r->c);
  }
  if (p->stream) dnnl_stream_destroy(p->stream);
  if (p->engine) dnnl_engine_destroy(p->engine);
}

/* oneDNN takes the number of threads from OpenMP's setting, which is restored. */
static weft_status make(const GemmShape *s, int threads, void *state) {
  Product *p = state;
  int before = omp_get_max_threads();
  *p = (Product){.s = *s, .threads = threads, .sgemm = s->in == DT_F32 && !s->tb};
  omp_set_num_threads(threads);
  bool ok = p->sgemm || make_matmul(p);
  omp_set_num_threads(before);
  if (!ok) {
    release(p);
    return WEFT_EUSAGE;
  }
  return WEFT_OK;
}

static dnnl_status_t run_matmul(Product *p, const char *a, const void *b, char *c,
                                bool add) {
  const GemmShape *s = &p->s;
  int64_t row_a = (s->ta ? 1 : s->k) * width(s->in), row_c = s->n * width(s->out);
  for (int i = 0; i < p->nrows; i++) {
    Rows *r = &p->rows[i];
    dnnl_memory_set_data_handle(r->a, (void *)(a + r->first * row_a));
    dnnl_memory_set_data_handle(r->b, (void *)b);
    dnnl_memory_set_data_handle(r->c, c + r->first * row_c);
    const dnnl_exec_arg_t arg[] = {
        {DNNL_ARG_SRC, r->a}, {DNNL_ARG_WEIGHTS, r->b}, {DNNL_ARG_DST, r->c}};
    dnnl_status_t st = dnnl_primitive_execute(r->run[add], p->stream, 3, arg);
    if (st != dnnl_success) return st;
  }
  return dnnl_stream_wait(p->stream);
}

/* The product of rows that are ldc apart: no state, so for f32 only. */
static dnnl_status_t sgemm(const GemmShape *s, const void *a, const void *b, void *c,
                           int64_t ldc, bool accumulate) {
  return dnnl_sgemm(s->ta ? 'T' : 'N', s->tb ? 'T' : 'N', s->m, s->n, s->k, 1.0f, a,
                    s->ta ? s->m : s->k, b, s->tb ? s->k : s->n, accumulate, c, ldc);
}

typedef struct Threads {
  int before, dynamic;
} Threads;

static Threads use_threads(int n) {
  Threads t = {omp_get_max_threads(), omp_get_dynamic()};
  omp_set_num_threads(n);
  omp_set_dynamic(0); /* a smaller team would compute a part of the product only */
  return t;
}

static void restore(Threads t) {
  omp_set_num_threads(t.before);
  omp_set_dynamic(t.dynamic);
}

static void run(void *state, const void *a, const void *b, void *c, bool accumulate) {
  Product *p = state;
  const GemmShape *s = &p->s;
  Threads t = use_threads(p->threads);
  dnnl_status_t st =
      p->sgemm ? sgemm(s, a, b, c, s->n, accumulate) : run_matmul(p, a, b, c, accumulate);
  restore(t);
  /* A failed product must not look valid: NaN stops the step and names the op. */
  if (st != dnnl_success) memset(c, 0xff, (size_t)(s->m * s->n * width(s->out)));
}

static void multiply(const GemmShape *s, int threads, const void *a, const void *b,
                     void *c, int64_t ldc, bool accumulate) {
  Threads t = use_threads(threads);
  dnnl_status_t st = sgemm(s, a, b, c, ldc, accumulate);
  restore(t);
  for (int64_t i = 0; st != dnnl_success && i < s->m; i++)
    memset((float *)c + i * ldc, 0xff, (size_t)s->n * sizeof(float));
}

static void describe(char *text, size_t size) {
  const dnnl_version_t *v = dnnl_version();
  snprintf(text, size, "oneDNN %d.%d.%d", v->major, v->minor, v->patch);
}

static void limit(int level) {
  static const dnnl_cpu_isa_t isa[] = {
#define LEVEL(name, has, set, bf16, onednn) dnnl_cpu_isa_##onednn,
#include "kernels/cpu/levels.def"
  };
  (void)dnnl_set_max_cpu_isa(isa[level]); /* only the first call counts */
}

__attribute__((visibility("default"))) const GemmApi weft_gemm_api = {
    .version = GEMM_API_VERSION,
    .name = "onednn",
    .describe = describe,
    .limit = limit,
    .make = make,
    .run = run,
    .free = release,
    .multiply = multiply,
};
