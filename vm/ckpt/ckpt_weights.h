/* ckpt_weights.h - the parameters of a checkpoint as a folder of Hugging Face files. They
 * pass through one block, so that this takes no more memory for a large model than for a
 * small one. */
#ifndef WEFT_CKPT_WEIGHTS_H
#define WEFT_CKPT_WEIGHTS_H

#include "ckpt.h"
#include "vm/weights/weights_folder.h"

/* Of the parameters of `c`, which are those of the checkpoint (ckpt_fits). The folder is
 * there whole or not at all. `read`: bytes of the checkpoint. */
weft_status ckpt_weights(const Ckpt *from, const Compiled *c, const WeightsOutOptions *o,
                         uint64_t *read, weft_error *e);

#endif
