/* gemm_module_blas.c - f32 products through OpenBLAS. Built as weft_gemm_blas.so. */
#include "gemm.h"

#include <cblas.h>
#include <limits.h>
#include <stdio.h>

typedef struct Product {
  GemmShape s;
  int threads;
} Product;

_Static_assert(sizeof(Product) <= GEMM_STATE, "the state of a product has room");

static weft_status make(const GemmShape *s, int threads, void *state) {
  if (s->in != DT_F32 || s->out != DT_F32) return WEFT_EUSAGE;
  if (s->m > INT_MAX || s->n > INT_MAX || s->k > INT_MAX) return WEFT_EUSAGE;
  *(Product *)state = (Product){*s, threads};
  return WEFT_OK;
}

/* The number of threads is a setting of the whole library. It is only touched when it
 * differs: ranks of one process all have the same share. */
static void multiply(const GemmShape *s, int threads, const void *a, const void *b,
                     void *c, int64_t ldc, bool accumulate) {
  if (openblas_get_num_threads() != threads) openblas_set_num_threads(threads);
  cblas_sgemm(CblasRowMajor, s->ta ? CblasTrans : CblasNoTrans,
              s->tb ? CblasTrans : CblasNoTrans, (int)s->m, (int)s->n, (int)s->k, 1.0f, a,
              (int)(s->ta ? s->m : s->k), b, (int)(s->tb ? s->k : s->n),
              accumulate ? 1.0f : 0.0f, c, (int)ldc);
}

static void run(void *state, const void *a, const void *b, void *c, bool accumulate) {
  const Product *p = state;
  multiply(&p->s, p->threads, a, b, c, p->s.n, accumulate);
}

/* "OpenBLAS 0.3.21 NO_LAPACKE ...": the first two words. */
static void describe(char *text, size_t size) {
  const char *config = openblas_get_config();
  size_t name = strcspn(config, " "), version = strcspn(config + name + 1, " ");
  snprintf(text, size, "%.*s", (int)(name + 1 + version), config);
}

/* OpenBLAS chooses when it is opened, by OPENBLAS_CORETYPE. */
static void limit(int level) {}

__attribute__((visibility("default"))) const GemmApi weft_gemm_api = {
    .version = GEMM_API_VERSION,
    .name = "openblas",
    .describe = describe,
    .limit = limit,
    .make = make,
    .run = run,
    .multiply = multiply,
};
