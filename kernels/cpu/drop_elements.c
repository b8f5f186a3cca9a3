/* drop_elements.c - drops elements, and adds noise to them, by words that depend on the
 * place of an element in training (vm/graph/dropout.h). */
#include "kernel.h"
#include "vm/graph/dropout.h"

enum { GROUPS = 64, COLUMNS = GROUPS * DROPOUT_WORDS };

/* Words of n groups of columns. */
INLINE void draw(const Dropout *d, uint32_t token, uint32_t first, uint32_t n,
                 uint32_t *word) {
#pragma omp simd
  for (uint32_t g = 0; g < n; g++) {
    uint32_t w[DROPOUT_WORDS];
    dropout_words(d, token, first + g, 0, w);
    for (int k = 0; k < DROPOUT_WORDS; k++) word[g * DROPOUT_WORDS + (uint32_t)k] = w[k];
  }
}

/* The words of columns `lo` to `hi`: that of column k is word[k + what this returns]. */
INLINE int64_t draw_columns(const Dropout *d, uint32_t token, int64_t first, int64_t lo,
                            int64_t hi, uint32_t *word) {
  int64_t group = (first + lo) / DROPOUT_WORDS;
  int64_t groups = (first + hi + DROPOUT_WORDS - 1) / DROPOUT_WORDS - group;
  draw(d, token, (uint32_t)group, (uint32_t)groups, word);
  return first - group * DROPOUT_WORDS;
}

/* Elements `lo` to `hi` of a row of this rank's columns, which begin at `first` of all.
 */
INLINE void drop(const Dropout *d, uint32_t token, const void *x, void *y, int64_t first,
                 int64_t lo, int64_t hi, DType t) {
  uint32_t word[COLUMNS];
  int64_t skip = draw_columns(d, token, first, lo, hi, word);
#pragma omp simd
  for (int64_t k = lo; k < hi; k++)
    put(y, t, k, get(x, t, k) * dropout_factor(d, word[k + skip]));
}

/* The same of noise between -reach and reach. */
INLINE void add_noise(const Dropout *d, float reach, uint32_t token, const void *x,
                      void *y, int64_t first, int64_t lo, int64_t hi, DType t) {
  uint32_t word[COLUMNS];
  int64_t skip = draw_columns(d, token, first, lo, hi, word);
#pragma omp simd
  for (int64_t k = lo; k < hi; k++)
    put(y, t, k, get(x, t, k) + noise_of(reach, word[k + skip]));
}

INLINE void by_place(const KernelArgs *a, int64_t lo, int64_t hi, DType t, bool noise) {
  OpAttr place = *a->attr;
  if (noise) place.rate = 0; /* nothing is dropped */
  const Dropout d = dropout_of(&place, a->unit);
  const float reach = (float)a->attr->rate;
  const uint32_t *token = a->in[1].p;
  int64_t c = last_dim(&a->in[0]), first = a->attr->cut ? a->index * c : 0;
  for (int64_t r = lo; r < hi; r++) {
    const void *x = at(a->in[0].p, t, r * c);
    void *y = at(a->out[0].p, t, r * c);
    for (int64_t k = 0, end; k < c; k = end) {
      end = MIN((first + k) / COLUMNS * COLUMNS + COLUMNS - first, c);
      if (noise)
        add_noise(&d, reach, token[r], x, y, first, k, end, t);
      else
        drop(&d, token[r], x, y, first, k, end, t);
    }
  }
}

INLINE void dropout(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  by_place(a, lo, hi, t, false);
}
BY_TYPE(dropout, in[0])

INLINE void noise(const KernelArgs *a, int64_t lo, int64_t hi, DType t) {
  by_place(a, lo, hi, t, true);
}
BY_TYPE(noise, in[0])

static void copy_part(const KernelArgs *a, int64_t lo, int64_t hi) {
  size_t row = (size_t)last_dim(&a->in[0]) * (size_t)dtype_size(a->in[0].dtype);
  const char *x = a->in[0].p;
  char *y = a->out[0].p;
  if (x != y) memcpy(y + (size_t)lo * row, x + (size_t)lo * row, (size_t)(hi - lo) * row);
}

void cpu_dropout(Device *dev, const KernelArgs *a) {
  each_row(dev, a, &a->in[0], a->attr->rate > 0 ? dropout_part : copy_part);
}

void cpu_noise(Device *dev, const KernelArgs *a) {
  each_row(dev, a, &a->in[0], a->attr->rate > 0 ? noise_part : copy_part);
}
