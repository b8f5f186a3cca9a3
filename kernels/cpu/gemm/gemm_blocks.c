/* gemm_blocks.c - products of 16-bit types without hardware support, and of f32 into 16
 * bits: blocks of operands are widened to f32, a library multiplies those, and sums are
 * rounded once, at the end. Sums for an f32 result go straight to it. */
#include "kernels/cpu/kernel.h"
#include "gemm.h"

#include "kernels/cpu/levels.h"

typedef struct Block {
  int64_t row, col, rows, cols;
} Block;

/* A block of a matrix with `ld` elements per row, and where it goes as f32. */
typedef struct Move {
  const void *from;
  uint16_t *to;
  float *wide;
  DType t;
  int64_t ld, cols;
  bool accumulate;
} Move;

/* A matrix whose widened block is reused if the next product needs it, too. */
typedef struct Operand {
  const void *p;
  DType t;
  int64_t ld;
  float *wide;
  Block now;
} Operand;

static float *next_line(float *p) {
  const uintptr_t line = GEMM_LINE;
  return (float *)(((uintptr_t)p + line - 1) & ~(line - 1));
}

INLINE void widen(const Move *v, int64_t lo, int64_t hi, DType t) {
  for (int64_t i = lo; i < hi; i++) {
    const void *from = at(v->from, t, i * v->ld);
    float *to = v->wide + i * v->cols;
#pragma omp simd
    for (int64_t j = 0; j < v->cols; j++) to[j] = get(from, t, j);
  }
}

static void widen_rows(const KernelArgs *a, int64_t lo, int64_t hi) {
  const Move *v = a->state;
  WITH_TYPE(v->t, widen, v, lo, hi)
}

INLINE void narrow(const Move *v, int64_t lo, int64_t hi, DType t) {
  for (int64_t i = lo; i < hi; i++) {
    const float *from = v->wide + i * v->cols;
    uint16_t *to = v->to + i * v->ld;
    if (v->accumulate) {
#pragma omp simd
      for (int64_t j = 0; j < v->cols; j++) put(to, t, j, from[j] + get(to, t, j));
    } else {
#pragma omp simd
      for (int64_t j = 0; j < v->cols; j++) put(to, t, j, from[j]);
    }
  }
}

static void round_rows(const KernelArgs *a, int64_t lo, int64_t hi) {
  const Move *v = a->state;
  WITH_TYPE(v->t, narrow, v, lo, hi)
}

static void move(Move v, int64_t rows, int threads, PartFn fn) {
  Device dev = {.threads = threads};
  KernelArgs part = {.state = &v};
  each_part(&dev, &part, rows, row_grain(v.cols), fn);
}

/* Widens the block of the operand, which may be stored transposed. */
static void fetch(Operand *x, Block b, bool turned, int threads) {
  if (turned) b = (Block){b.col, b.row, b.cols, b.rows};
  if (memcmp(&x->now, &b, sizeof b) == 0) return;
  x->now = b;
  move((Move){.from = at(x->p, x->t, b.row * x->ld + b.col),
              .wide = x->wide,
              .t = x->t,
              .ld = x->ld,
              .cols = b.cols},
       b.rows, threads, widen_rows);
}

void gemm_blocks(const GemmShape *s, const GemmApi *api, int threads, void *work,
                 const void *a, const void *b, void *c, bool accumulate) {
  GemmBlock size = gemm_block(s);
  Operand x = {.p = a, .t = s->in, .ld = s->ta ? s->m : s->k, .wide = next_line(work)};
  Operand y = {.p = b,
               .t = s->in,
               .ld = s->tb ? s->k : s->n,
               .wide = next_line(x.wide + size.m * size.k)};
  float *sums = next_line(y.wide + size.k * size.n);
  bool direct = s->out == DT_F32;
  for (int64_t j = 0; j < s->n; j += size.n)
    for (int64_t i = 0; i < s->m; i += size.m) {
      int64_t m = MIN(size.m, s->m - i), n = MIN(size.n, s->n - j);
      float *to = direct ? (float *)c + i * s->n + j : sums;
      for (int64_t p = 0; p < s->k; p += size.k) {
        int64_t k = MIN(size.k, s->k - p);
        fetch(&x, (Block){i, p, m, k}, s->ta, threads);
        fetch(&y, (Block){p, j, k, n}, s->tb, threads);
        api->multiply(&(GemmShape){m, n, k, s->ta, s->tb, DT_F32, DT_F32}, threads,
                      x.wide, y.wide, to, direct ? s->n : n,
                      p > 0 || (direct && accumulate));
      }
      if (!direct)
        move((Move){.to = (uint16_t *)c + i * s->n + j,
                    .wide = sums,
                    .t = s->out,
                    .ld = s->n,
                    .cols = n,
                    .accumulate = accumulate},
             m, threads, round_rows);
    }
}
