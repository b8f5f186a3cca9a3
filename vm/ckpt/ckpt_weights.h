/* ckpt_weights.h - exports the parameters of a checkpoint as a folder of Hugging Face
 * files. They pass through one buffer of fixed size, so memory is bounded. */
#ifndef WEFT_CKPT_WEIGHTS_H
#define WEFT_CKPT_WEIGHTS_H

#include "ckpt.h"
#include "vm/weights/weights_folder.h"

/* The adapters that are added to their bases: W + scale * B A. */
typedef struct MergeHow {
  const Adapter *adapter;
  const Graph *model; /* without adapters: says which weights are (in, out) */
} MergeHow;
/* Exports the parameters of `c`, which fit the checkpoint (ckpt_fits), with adapters
 * merged unless `merge` is NULL. The folder appears whole or not at all: WEFT_EINTR once
 * `stop`, which may be NULL, is set. `read`: bytes read from the checkpoint. */
weft_status ckpt_weights(const Ckpt *from, const Compiled *c, const WeightsOutOptions *o,
                         const MergeHow *merge, const StopFlag *stop, uint64_t *read,
                         weft_error *e);

#endif
