/* ckpt_convert.h - resharding: rewrites a checkpoint as another mesh would have written
 * it (weft ckpt convert). */
#ifndef WEFT_CKPT_CONVERT_H
#define WEFT_CKPT_CONVERT_H

#include "ckpt_store.h"

/* Writes `from` into the folder `dir` in the files of `to`'s ranks. `m` is the new
 * manifest without files, parameters, id and time. `latest`: why the file `latest` does
 * not name what was written, WEFT_OK if it does. Holds one rank's share at a time. */
weft_status ckpt_convert(const Ckpt *from, const Compiled *to, const Manifest *m,
                         const char *dir, const StopFlag *stop, weft_error *latest,
                         weft_error *e);

#endif
