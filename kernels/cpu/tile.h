/* tile.h - products of small f32 matrices in cache, for attention and the plain GEMM. The
 * core keeps a block of the result in vector registers. */
#ifndef WEFT_TILE_H
#define WEFT_TILE_H

#include "kernel.h"

#ifdef __AVX512F__
enum { LANES = 16, TILE_ROWS = 4, TILE_VECS = 4 };
#elif defined __AVX__
enum { LANES = 8, TILE_ROWS = 4, TILE_VECS = 2 };
#else
enum { LANES = 4, TILE_ROWS = 4, TILE_VECS = 2 };
#endif
enum { LANES_MAX = 16 }; /* of all instruction sets */
typedef float Lanes __attribute__((vector_size(4 * LANES), aligned(4)));

/* Keeps a vector in a register: else each use becomes a load, which bounds the core. */
#ifdef __x86_64__
#define IN_REGISTER(v) __asm__("" : "+v"(v))
#else
#define IN_REGISTER(v) ((void)0)
#endif

/* n rounded up to whole vectors. */
INLINE int whole_lanes(int n) { return (n + LANES - 1) / LANES * LANES; }

/* A matrix whose element (i, j) is p[i*row + j*col]. */
typedef struct Strided {
  const float *p;
  int64_t row, col;
} Strided;

/* A block of `rows` x `vecs` vectors of the result; both are constants at every call. */
INLINE void tile_core(const int rows, const int vecs, int k, Strided a, const float *b,
                      int64_t ldb, float *c, int64_t ldc, bool add) {
  Lanes sum[TILE_ROWS][TILE_VECS];
#pragma GCC unroll 4
  for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
    for (int j = 0; j < vecs; j++)
      sum[i][j] = add ? *(const Lanes *)(c + i * ldc + j * LANES) : (Lanes){0};
  for (int p = 0; p < k; p++) {
    Lanes x[TILE_VECS];
#pragma GCC unroll 4
    for (int j = 0; j < vecs; j++) {
      x[j] = *(const Lanes *)(b + p * ldb + j * LANES);
      IN_REGISTER(x[j]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++) {
      float y = a.p[i * a.row + p * a.col];
#pragma GCC unroll 4
      for (int j = 0; j < vecs; j++) sum[i][j] += y * x[j];
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
    for (int j = 0; j < vecs; j++) *(Lanes *)(c + i * ldc + j * LANES) = sum[i][j];
}

/* c(m,n) = a(m,k) b(k,n), or += with add. b and c are row-major; n is rounded up to whole
 * vectors, so their rows must be that long. */
INLINE void tile_mul(int m, int n, int k, Strided a, const float *b, int64_t ldb,
                     float *c, int64_t ldc, bool add) {
  const int wide = TILE_VECS * LANES;
  for (int i = 0, rows; i < m; i += rows) {
    Strided ai = {a.p + i * a.row, a.row, a.col};
    float *ci = c + i * ldc;
    int j = 0;
    rows = m - i >= TILE_ROWS ? TILE_ROWS : 1;
    for (; j + wide <= whole_lanes(n); j += wide) {
      if (rows > 1)
        tile_core(TILE_ROWS, TILE_VECS, k, ai, b + j, ldb, ci + j, ldc, add);
      else
        tile_core(1, TILE_VECS, k, ai, b + j, ldb, ci + j, ldc, add);
    }
    for (; j < n; j += LANES) {
      if (rows > 1)
        tile_core(TILE_ROWS, 1, k, ai, b + j, ldb, ci + j, ldc, add);
      else
        tile_core(1, 1, k, ai, b + j, ldb, ci + j, ldc, add);
    }
  }
}

#endif
