/* weights.h - the tensors of a file as the parameters of a program. */
#ifndef WEFT_EXEC_WEIGHTS_H
#define WEFT_EXEC_WEIGHTS_H

#include "exec.h"

/* Where a parameter lies in a file: its elements, in their order, from `first` on of a
 * tensor that has so many rows. */
typedef struct WeightSource {
  const SafeTensor *t; /* NULL: nowhere */
  int64_t first, rows;
} WeightSource;
WeightSource weights_source(const Compiled *c, const SafeTensors *s, int param);
/* Whether every parameter has a tensor of its shape and every tensor is a parameter, a
 * buffer or a repeated embedding; all that is wrong is one error. Reads headers only. */
weft_status weights_fit(const Compiled *c, const SafeTensors *s, const weft_alloc *a,
                        weft_error *e);
uint64_t weights_fit_bytes(const Compiled *c);
/* A head beside a tied embedding must be that embedding. Reads both. */
weft_status weights_check_tied(const Compiled *c, const SafeTensors *s, weft_error *e);

/* ---- weights_load.c ---- */
/* The most that reading them allocates, with all ranks of the mesh in the process. */
uint64_t weights_bytes(const Compiled *c);

#endif
