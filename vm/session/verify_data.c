/* verify_data.c - the tokens and labels of the steps that weft verify compares. */
#include "verify_int.h"

#include "vm/base/rng.h"

/* Of 16 labels of a row, so many count: rows of most tasks, whole documents, and the
 * answers of conversations, which are few or none in some. The first row of a step has
 * labels in any case. */
static uint32_t labels_that_count(const Verify *v, int64_t step, int64_t row) {
  static const uint32_t share[] = {14, 14, 14, 16, 8, 4, 1, 0};
  Rng rng = rng_make(v->plan->seed, "verify.masks");
  uint64_t at = (uint64_t)(step * (v->ids / v->c->seq) + row);
  return share[rng_u32(&rng, at) % (row ? LEN(share) : 4)];
}

/* Fills a step with random ids. Some labels are ignored, in each row by another share, so
 * that microbatches and ranks have very different numbers of label tokens; in packed
 * plans one token in sixteen ends a document. */
void make_tokens(Verify *v, int64_t step) {
  Rng rng = rng_make(v->plan->seed, "verify");
  int64_t T = v->c->seq;
  uint64_t first = (uint64_t)step * (uint64_t)v->ids * 4;
  for (int64_t i = 0; i < v->ids; i++) {
    uint64_t at = first + (uint64_t)i * 4;
    int32_t id = (int32_t)(rng_u32(&rng, at) % (uint64_t)v->vocab);
    bool ends = v->plan->packed.on && rng_u32(&rng, at + 1) % 16 == 0;
    if (ends && v->plan->packed.separated) id = v->plan->packed.separator;
    v->tokens[i] = id;
    if (i % T) v->labels[i - 1] = id;
    if (i % T == T - 1)
      v->labels[i] = (int32_t)(rng_u32(&rng, at + 2) % (uint64_t)v->vocab);
  }
  for (int64_t i = 0; i < v->ids; i++) {
    uint64_t at = first + (uint64_t)i * 4;
    if (rng_u32(&rng, at + 3) % 16 >= labels_that_count(v, step, i / T))
      v->labels[i] = LABEL_IGNORED;
    if (v->plan->packed.size && rng_u32(&rng, at + 1) % 16 == 0)
      v->labels[i] = LABEL_DOCUMENT_END;
  }
}
