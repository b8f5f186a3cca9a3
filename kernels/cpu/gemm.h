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
 * call; one state is used by one thread at a time. */
enum { GEMM_API_VERSION = 1 };
typedef struct GemmApi {
  int version;
  const char *name;
  weft_status (*make)(const GemmShape *s, int threads, void **state);
  void (*run)(void *state, const void *a, const void *b, void *c, bool accumulate);
  void (*free)(void *state);
} GemmApi;

typedef struct Gemm Gemm;
weft_status gemm_new(const GemmShape *s, int threads, Gemm **out, weft_error *e);
/* The same through one named backend; it is an error if it is not here or refuses. */
weft_status gemm_new_from(const char *backend, const GemmShape *s, int threads,
                          Gemm **out, weft_error *e);
bool gemm_has(const char *backend);
void gemm_run(Gemm *g, const void *a, const void *b, void *c, bool accumulate);
void gemm_free(Gemm *g);                 /* NULL is allowed */
const char *gemm_backend(const Gemm *g); /* "onednn", "openblas", "plain" */

/* gemm_plain.c: allocates nothing. */
void gemm_plain(const GemmShape *s, int threads, const void *a, const void *b, void *c,
                bool accumulate);

#endif
