/* gemm.h - one product of matrices: c = a b, or c += a b.
 *
 * Matrices are dense and row-major. The work is done by oneDNN or a BLAS, each behind a
 * shared object that is opened when the first product is prepared, or by plain C. */
#ifndef WEFT_GEMM_H
#define WEFT_GEMM_H

#include "vm/device/device.h"

typedef struct GemmShape {
  int64_t m, n, k; /* c is (m,n) */
  bool ta, tb;     /* a is stored as (k,m), b as (n,k) */
  DType in, out;   /* of a and b; of c: f32, or the type of a and b */
} GemmShape;

/* What a shared object exports as weft_gemm_api. `make` fills a state of GEMM_STATE bytes
 * that the caller owns; a product that it does not take on is WEFT_EUSAGE. `free` gives
 * back what the library keeps for the state. run uses `threads` threads and is
 * bit-identical from call to call; one state is used by one thread at a time. multiply is
 * an f32 product that needs no state, to rows of c that are ldc apart. */
enum { GEMM_API_VERSION = 3, GEMM_STATE = 192 };
typedef struct GemmApi {
  int version;
  const char *name;
  void (*describe)(char *text, size_t size); /* the library and its version */
  /* Holds the library down to a level of levels.def; before its first product only. */
  void (*limit)(int level);
  weft_status (*make)(const GemmShape *s, int threads, void *state);
  void (*run)(void *state, const void *a, const void *b, void *c, bool accumulate);
  void (*free)(void *state);
  void (*multiply)(const GemmShape *s, int threads, const void *a, const void *b, void *c,
                   int64_t ldc, bool accumulate);
} GemmApi;

/* A prepared product; it lies where the caller wants it and allocates nothing. */
typedef struct Gemm {
  GemmShape shape;
  int threads;
  bool made, widens;  /* `state` is filled; it goes through f32 blocks */
  const GemmApi *api; /* NULL: plain */
  const struct CpuSet *set;
  void *module; /* open while this product lives */
  _Alignas(16) char state[GEMM_STATE];
} Gemm;
void gemm_init(Gemm *g, const GemmShape *s, int threads);
/* The same through one named backend; it is an error if it is not here or refuses. */
weft_status gemm_init_from(Gemm *g, const char *backend, const GemmShape *s, int threads,
                           weft_error *e);
/* Whether the backend is here; then `text` (may be NULL) names its library. */
bool gemm_has(const char *backend, char *text, size_t size);
/* For products of many shapes, the largest of which is `s`: gemm_run_as has work of
 * gemm_work(s) and allocates nothing, either. */
void gemm_init_many(Gemm *g, const GemmShape *s, int threads);
void gemm_run_as(Gemm *g, const GemmShape *s, const void *a, const void *b, void *c,
                 bool accumulate, void *work);
/* The library that is tried first for large products, "plain C" if there is none. */
void gemm_library(char *text, size_t size);
void gemm_run(Gemm *g, const void *a, const void *b, void *c, bool accumulate,
              void *work);
void gemm_end(Gemm *g);
const char *gemm_backend(const Gemm *g); /* "onednn", "openblas", "plain" */

/* cpu_workspace.c: the product that an op is, and the scratch of a product on any CPU. */
GemmShape gemm_of(int op, const KernelArgs *a);
uint64_t gemm_work(const GemmShape *s);

/* Blocks of widened operands: they stay in the outer caches, and are large enough for the
 * library; rows whose length is a power of two would fall on each other in a cache. */
typedef struct GemmBlock {
  int64_t m, n, k;
} GemmBlock;
static inline GemmBlock gemm_block(const GemmShape *s) {
  return (GemmBlock){MIN(s->m, 512), MIN(s->n, 768), MIN(s->k, 768)};
}
enum { GEMM_LINE = 64 }; /* bytes: each block begins at a multiple */

/* gemm_plain.c: allocates nothing. */
void gemm_plain(const GemmShape *s, int threads, const void *a, const void *b, void *c,
                bool accumulate);

#endif
