/* weights.h - the tensors of a file as the parameters of a program. */
#ifndef WEFT_EXEC_WEIGHTS_H
#define WEFT_EXEC_WEIGHTS_H

#include "exec.h"

/* Whether every parameter has a tensor of its shape and every tensor is a parameter, a
 * buffer or a repeated embedding; all that is wrong is one error. Reads headers only. */
weft_status weights_fit(const Compiled *c, const SafeTensors *s, const weft_alloc *a,
                        weft_error *e);
/* The tensor of a parameter, after weights_fit. */
const SafeTensor *weights_of(const SafeTensors *s, const CompiledParam *p);
/* The largest parameter, in elements, and the most that reading all of them allocates. */
int64_t weights_largest(const Compiled *c);
uint64_t weights_bytes(const Compiled *c);
/* A head beside a tied embedding must be that embedding. Reads both. */
weft_status weights_check_tied(const Compiled *c, const SafeTensors *s, weft_error *e);

#endif
