/* gemm.h - one product of matrices: c = a b, or c += a b.
 *
 * Matrices are dense and row-major. The work is done by oneDNN or a BLAS, each behind a
 * shared object that is opened when the first product is prepared, or by plain C. */
#ifndef WEFT_GEMM_H
#define WEFT_GEMM_H

#include "vm/device/device.h"

typedef struct GemmShape {
  int64_t m, n, k;       /* c is (m,n) */
  bool ta, tb;           /* a is stored as (k,m), b as (n,k) */
  DType in, out;         /* of a and b; of c: f32, or the type of a and b */
} GemmShape;

/* What a shared object exports as weft_gemm_api. A product that it does not take on is
 * WEFT_EUSAGE from make. run uses `threads` threads and is bit-identical from call to
 * call; one state is used by one thread at a time. multiply is an f32 product that needs
 * no state, to rows of c that are ldc apart. */
enum { GEMM_API_VERSION = 2 };
typedef struct GemmApi {
  int version;
  const char *name;
  void (*describe)(char *text, size_t size); /* the library and its version */
  /* Holds the library down to a level of levels.def; before its first product only. */
  void (*limit)(int level);
  weft_status (*make)(const GemmShape *s, int threads, void **state);
  void (*run)(void *state, const void *a, const void *b, void *c, bool accumulate);
  void (*free)(void *state);
  void (*multiply)(const GemmShape *s, int threads, const void *a, const void *b, void *c,
                   int64_t ldc, bool accumulate);
} GemmApi;

typedef struct Gemm Gemm;
/* The allocator (NULL: the C library's) outlives the product. */
weft_status gemm_new(const weft_alloc *a, const GemmShape *s, int threads, Gemm **out,
                     weft_error *e);
/* The same through one named backend; it is an error if it is not here or refuses. */
weft_status gemm_new_from(const char *backend, const GemmShape *s, int threads,
                          Gemm **out, weft_error *e);
/* Whether the backend is here; then `text` (may be NULL) names its library. */
bool gemm_has(const char *backend, char *text, size_t size);
void gemm_run(Gemm *g, const void *a, const void *b, void *c, bool accumulate);
void gemm_free(Gemm *g);                 /* NULL is allowed */
const char *gemm_backend(const Gemm *g); /* "onednn", "openblas", "plain" */
bool gemm_widens(const Gemm *g);         /* bf16 through f32 blocks */

/* gemm_plain.c: allocates nothing. */
void gemm_plain(const GemmShape *s, int threads, const void *a, const void *b, void *c,
                bool accumulate);

#endif
