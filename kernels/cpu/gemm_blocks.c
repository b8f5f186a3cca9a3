/* gemm_blocks.c - bf16 products for a CPU without bf16 units: blocks of the operands are
 * widened to f32, a library multiplies those, and the sums are rounded once, at the end.
 * Sums for an f32 result go straight to it. */
#include "kernel.h"
#include "levels.h"

typedef struct Block {
  int64_t row, col, rows, cols;
} Block;

/* A block of a bf16 matrix with `ld` elements per row, and where it goes as f32. */
typedef struct Move {
  const bf16 *from;
  bf16 *to;
  float *wide;
  int64_t ld, cols;
  bool accumulate;
} Move;

/* A matrix whose block in scratch is kept as long as the next product wants the same. */
typedef struct Operand {
  const bf16 *p;
  int64_t ld;
  float *wide;
  Block now;
} Operand;

static float *next_line(float *p) {
  const uintptr_t line = GEMM_LINE;
  return (float *)(((uintptr_t)p + line - 1) & ~(line - 1));
}

static void widen_rows(const KernelArgs *a, int64_t lo, int64_t hi) {
  const Move *v = a->state;
  for (int64_t i = lo; i < hi; i++) {
    const bf16 *from = v->from + i * v->ld;
    float *to = v->wide + i * v->cols;
#pragma omp simd
    for (int64_t j = 0; j < v->cols; j++) to[j] = bf16_to_f32(from[j]);
  }
}

static void round_rows(const KernelArgs *a, int64_t lo, int64_t hi) {
  const Move *v = a->state;
  for (int64_t i = lo; i < hi; i++) {
    const float *from = v->wide + i * v->cols;
    bf16 *to = v->to + i * v->ld;
    if (v->accumulate) {
#pragma omp simd
      for (int64_t j = 0; j < v->cols; j++)
        to[j] = bf16_from_f32(from[j] + bf16_to_f32(to[j]));
    } else {
#pragma omp simd
      for (int64_t j = 0; j < v->cols; j++) to[j] = bf16_from_f32(from[j]);
    }
  }
}

static void move(Move v, int64_t rows, int threads, PartFn fn) {
  Device dev = {.threads = threads};
  KernelArgs part = {.state = &v};
  each_part(&dev, &part, rows, row_grain(v.cols), fn);
}

/* Fetches the block of the operand, or of what is stored turned. */
static void fetch(Operand *x, Block b, bool turned, int threads) {
  if (turned) b = (Block){b.col, b.row, b.cols, b.rows};
  if (memcmp(&x->now, &b, sizeof b) == 0) return;
  x->now = b;
  move((Move){.from = x->p + b.row * x->ld + b.col, .wide = x->wide, .ld = x->ld,
              .cols = b.cols},
       b.rows, threads, widen_rows);
}

void gemm_blocks(const GemmShape *s, const GemmApi *api, int threads, void *work,
                 const void *a, const void *b, void *c, bool accumulate) {
  GemmBlock size = gemm_block(s);
  Operand x = {.p = a, .ld = s->ta ? s->m : s->k, .wide = next_line(work)};
  Operand y = {.p = b, .ld = s->tb ? s->k : s->n,
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
        api->multiply(&(GemmShape){m, n, k, s->ta, s->tb, DT_F32, DT_F32}, threads, x.wide,
                      y.wide, to, direct ? s->n : n, p > 0 || (direct && accumulate));
      }
      if (!direct)
        move((Move){.to = (bf16 *)c + i * s->n + j, .wide = sums, .ld = s->n, .cols = n,
                    .accumulate = accumulate},
             m, threads, round_rows);
    }
}
