/* ckpt_weights.h - exports the parameters of a checkpoint as a folder of Hugging Face
 * files. They pass through one buffer of fixed size, so memory is bounded. */
#ifndef WEFT_CKPT_WEIGHTS_H
#define WEFT_CKPT_WEIGHTS_H

#include "ckpt.h"
#include "vm/weights/weights_folder.h"

/* Exports the parameters of `c`, which fit the checkpoint (ckpt_fits). The folder appears
 * whole or not at all. `read`: bytes read from the checkpoint. */
weft_status ckpt_weights(const Ckpt *from, const Compiled *c, const WeightsOutOptions *o,
                         uint64_t *read, weft_error *e);

#endif
