/* layout.h - the static regions of a pp rank. */
#ifndef WEFT_LAYOUT_H
#define WEFT_LAYOUT_H

#include "offsets.h"
#include "vm/pipeline/stages.h"

typedef struct Bucket {
  AxisSet axes;          /* the gradients are partial over these */
  uint64_t off, count;   /* f32 elements */
  uint64_t chunks;       /* local chunks that write them, a bit each */
  int *param, nparam;    /* indices into Layout.param */
} Bucket;
typedef struct Layout {
  ProgParam *param; int nparam;
  int *of;               /* Compiled.param -> index here, -1 */
  VEC(Bucket) bucket;
  uint64_t input[IN_N];
  uint64_t scalars, seed;
  uint64_t bytes[5];     /* parameters, master, gradients, optimizer, inputs */
  uint64_t end;          /* activations begin here */
  uint64_t kept;         /* bytes from `end` on that the optimizer keeps to undo a step,
                            once the activations are dead */
} Layout;
/* ProgParams lie in `keep`, the rest in `scratch`. */
void layout(const Stages *st, const Plan *plan, int rank, int microbatches, Arena *keep,
            Arena *scratch, Layout *l);
/* The inputs that a rank reads, 1 << InputKind, and the bytes of each for a step. */
uint64_t inputs_of(const Stages *st, int rank);
uint64_t input_bytes(int64_t microbatches, int64_t micro, int64_t seq);
/* The workspace of a rank. */
uint64_t temp_of(const Stages *st, int rank);

#endif
