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
  DType in, out;   /* of a and b; of c: f32, the type of a and b, or 16 bits of f32 */
} GemmShape;

/* What a module exports as weft_gemm_api. `make` fills the caller's state of GEMM_STATE
 * bytes; WEFT_EUSAGE if it does not support the product. `free` releases what the library
 * holds for the state. run uses `threads` threads and is bit-identical between calls; a
 * state is used by one thread at a time. multiply is an f32 product without state, to
 * rows of c that are ldc apart. */
enum { GEMM_API_VERSION = 3, GEMM_STATE = 192 };
typedef struct GemmApi {
  int version;
  const char *name;
  void (*describe)(char *text, size_t size); /* the library and its version */
  /* Limits the library to a level of levels.def; only before its first product. */
  void (*limit)(int level);
  weft_status (*make)(const GemmShape *s, int threads, void *state);
  void (*run)(void *state, const void *a, const void *b, void *c, bool accumulate);
  void (*free)(void *state);
  void (*multiply)(const GemmShape *s, int threads, const void *a, const void *b, void *c,
                   int64_t ldc, bool accumulate);
} GemmApi;

/* A prepared product, in memory of the caller; it allocates nothing. */
typedef struct Gemm {
  GemmShape shape;
  int threads;
  bool made, widens;  /* `state` is filled; it goes in blocks of f32 */
  const GemmApi *api; /* NULL: plain */
  const struct CpuSet *set;
  void *module; /* open while this product lives */
  _Alignas(16) char state[GEMM_STATE];
} Gemm;
void gemm_init(Gemm *g, const GemmShape *s, int threads);
/* The same with one named backend; an error if that is missing or refuses. */
weft_status gemm_init_from(Gemm *g, const char *backend, const GemmShape *s, int threads,
                           weft_error *e);
/* True if the backend is available; then `text` (may be NULL) names its library. */
bool gemm_has(const char *backend, char *text, size_t size);
/* For products of several shapes up to `s`: gemm_run_as takes gemm_work(s) bytes of
 * scratch and allocates nothing. */
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
bool cpu_is_product(int op); /* linear, grouped_linear, and their gradients */
GemmShape gemm_of(int op, const KernelArgs *a);
uint64_t gemm_work(const GemmShape *s);
/* Bytes of an operand that was rounded to fp8, as f32. */
uint64_t fp8_copy_bytes(const KTensor *x);

/* Blocks of widened operands: they fit the outer caches, and are large enough for the
 * library. Rows of a power of two bytes would map to the same cache sets. */
typedef struct GemmBlock {
  int64_t m, n, k;
} GemmBlock;
static inline GemmBlock gemm_block(const GemmShape *s) {
  return (GemmBlock){MIN(s->m, 512), MIN(s->n, 768), MIN(s->k, 768)};
}
enum { GEMM_LINE = 64 }; /* alignment of blocks in bytes */
/* Whether a library that knows f32 alone needs such blocks. */
static inline bool gemm_in_blocks(const GemmShape *s) {
  return s->in != DT_F32 || s->out != DT_F32;
}

/* gemm_plain.c: allocates nothing. */
void gemm_plain(const GemmShape *s, int threads, const void *a, const void *b, void *c,
                bool accumulate);

#endif
