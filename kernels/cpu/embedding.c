/* embedding.c - rows of a table by id, and the gradient of the table. With attr.cut this
 * rank holds the rows [index*V, index*V + V) of it. */
#include "kernel.h"

/* The row of the local table for an id, or -1 if another rank has it. */
static int64_t local_row(const KernelArgs *a, int64_t id, int64_t v) {
  int64_t r = id - (a->attr->cut ? a->index * v : 0);
  return r >= 0 && r < v ? r : -1;
}

static void embedding_part(const KernelArgs *a, int64_t lo, int64_t hi) {
  const KTensor *table = &a->in[1];
  const int32_t *ids = a->in[0].p;
  size_t row = (size_t)table->dim[1] * (size_t)dtype_size(table->dtype);
  assert(a->out[0].dtype == table->dtype);
  for (int64_t i = lo; i < hi; i++) {
    int64_t r = local_row(a, ids[i], table->dim[0]);
    char *y = (char *)a->out[0].p + (size_t)i * row;
    if (r >= 0)
      memcpy(y, (const char *)table->p + (size_t)r * row, row);
    else
      memset(y, 0, row);
  }
}

void cpu_embedding(Device *dev, const KernelArgs *a) {
  each_part(dev, a, count_of(&a->in[0]), row_grain(a->in[1].dim[1]), embedding_part);
}

static void clear_columns(const KTensor *table, int64_t lo, int64_t hi) {
  DType u = table->dtype;
  for (int64_t r = 0; r < table->dim[0]; r++)
    memset(at(table->p, u, r * table->dim[1] + lo), 0,
           (size_t)(hi - lo) * (size_t)dtype_size(u));
}

/* Threads own columns, so every table row is summed in the order of the tokens. */
INLINE void embedding_dw(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  const int32_t *ids = a->in[0].p;
  float *dtable = a->out[0].p;
  int64_t tokens = count_of(&a->in[0]), v = a->out[0].dim[0], c = a->out[0].dim[1];
  if (!a->accumulate) clear_columns(&a->out[0], lo, hi);
  for (int64_t k = 0; k < tokens; k++) {
    int64_t r = local_row(a, ids[k], v);
    if (r < 0) continue;
    const void *dy = at(a->in[1].p, t, k * c);
    float *d = dtable + r * c;
#pragma omp simd
    for (int64_t i = lo; i < hi; i++) d[i] += get(dy, t, i);
  }
}
BY_TYPE(embedding_dw, in[1])

/* The tokens of each row of the table, in their order: those of row r are
 * token[end[r - 1]..end[r]), from 0 on for the first. */
typedef struct TokensByRow {
  int32_t *end, *token;
} TokensByRow;

static TokensByRow tokens_by_row(const KernelArgs *a) {
  int32_t *end = a->work;
  return (TokensByRow){end, end + a->out[0].dim[0]};
}

/* Counts, adds up, and puts each token where its row's begin, which moves on. */
static void sort_tokens(const KernelArgs *a) {
  const int32_t *ids = a->in[0].p;
  TokensByRow by = tokens_by_row(a);
  int64_t tokens = count_of(&a->in[0]), v = a->out[0].dim[0];
  int32_t before = 0;
  memset(by.end, 0, (size_t)v * sizeof *by.end);
  for (int64_t k = 0; k < tokens; k++) {
    int64_t r = local_row(a, ids[k], v);
    if (r >= 0) by.end[r]++;
  }
  for (int64_t r = 0; r < v; r++) {
    int32_t n = by.end[r];
    by.end[r] = before, before += n;
  }
  for (int64_t k = 0; k < tokens; k++) {
    int64_t r = local_row(a, ids[k], v);
    if (r >= 0) by.token[by.end[r]++] = (int32_t)k;
  }
}

/* Into 16 bits: the rows of all tokens with an id are summed in f32, so that a row is
 * rounded once. */
INLINE void embedding_dw_half(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  enum { TILE = 4096 };
  const KTensor *to = &a->out[0];
  TokensByRow by = tokens_by_row(a);
  int64_t c = to->dim[1];
  if (!a->accumulate) clear_columns(to, lo, hi);
  for (int64_t r = 0, first = 0; r < to->dim[0]; first = by.end[r++]) {
    for (int64_t from = lo; from < hi && first < by.end[r]; from += TILE) {
      int n = (int)MIN(TILE, hi - from);
      float sum[TILE];
      memset(sum, 0, (size_t)n * sizeof *sum);
      for (int64_t k = first; k < by.end[r]; k++) {
        const void *dy = at(a->in[1].p, t, by.token[k] * c + from);
#pragma omp simd
        for (int i = 0; i < n; i++) sum[i] += get(dy, t, i);
      }
      for (int i = 0; i < n; i++) put_gradient(to, r * c + from + i, sum[i], true);
    }
  }
}
BY_TYPE(embedding_dw_half, in[1])

void cpu_embedding_dw(Device *dev, const KernelArgs *a) {
  bool half = a->out[0].dtype != DT_F32;
  if (half) sort_tokens(a);
  each_part(dev, a, a->out[0].dim[1], COLUMN_GRAIN,
            half ? embedding_dw_half_part : embedding_dw_part);
}
