/* drop_elements.cu - drops elements, and adds noise to them, by words that depend on the
 * place of an element in training (vm/graph/dropout.h). */
#include "kernel.cuh"
#include "vm/graph/dropout.h"

/* The columns of a rank: those of all ranks from `first` on, in `groups` groups of words,
 * of which the first and the last may be cut. */
struct DropoutColumns {
  int64_t first, width, groups;
};

/* A thread has the columns of one group. `reach`: of noise that is added; 0: elements are
 * dropped. */
template <typename T>
__global__ void __launch_bounds__(BLOCK)
    drop(Dropout d, DropoutColumns c, const T *x, const int32_t *token, T *y,
         int64_t rows, float reach) {
  int64_t n = rows * c.groups;
  EACH_ELEMENT(i, n) {
    int64_t row = i / c.groups, group = c.first / DROPOUT_WORDS + i % c.groups;
    uint32_t word[DROPOUT_WORDS] = {0};
    if (d.least || reach > 0)
      dropout_words(&d, (uint32_t)token[row], (uint32_t)group, 0, word);
    for (int k = 0; k < DROPOUT_WORDS; k++) {
      int64_t at = group * DROPOUT_WORDS + k - c.first;
      if (at < 0 || at >= c.width) continue;
      int64_t e = row * c.width + at;
      y[e] = rounded<T>(reach > 0 ? load(x[e]) + noise_of(reach, word[k])
                                  : load(x[e]) * dropout_factor(&d, word[k]));
    }
  }
}

static void by_place(Device *d, const KernelArgs *a, float reach) {
  OpAttr place = *a->attr;
  if (reach > 0) place.rate = 0; /* nothing is dropped */
  Dropout drops = dropout_of(&place, a->unit);
  int64_t width = cuda_last(&a->in[0]), rows = cuda_rows(&a->in[0]);
  int64_t first = a->attr->cut ? a->index * width : 0, words = DROPOUT_WORDS;
  DropoutColumns c = {first, width, (first + width + words - 1) / words - first / words};
  by_type(a->out[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) T;
    LAUNCH((drop<T>), blocks_for(rows * c.groups), BLOCK, cuda_stream(d), drops, c,
           data<const T>(&a->in[0]), data<const int32_t>(&a->in[1]), data<T>(&a->out[0]),
           rows, reach);
  });
}

void cuda_dropout(Device *d, const KernelArgs *a) { by_place(d, a, 0); }

/* A rate of 0 drops nothing, either: a copy. */
void cuda_noise(Device *d, const KernelArgs *a) { by_place(d, a, (float)a->attr->rate); }
