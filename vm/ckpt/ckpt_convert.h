/* ckpt_convert.h - resharding: a checkpoint as another mesh would have written it (weft
 * ckpt convert). */
#ifndef WEFT_CKPT_CONVERT_H
#define WEFT_CKPT_CONVERT_H

#include "ckpt_store.h"

/* Writes `from` into the folder `dir` as ranks of `to` would; `m` has what the new
 * manifest says, but for files, parameters, id and time. One share is held at a time. */
weft_status ckpt_convert(const Ckpt *from, const Compiled *to, const Manifest *m,
                         const char *dir, const StopFlag *stop, weft_error *e);

#endif
