/* weights_load.h - parameters of a run from files. */
#ifndef WEFT_WEIGHTS_LOAD_H
#define WEFT_WEIGHTS_LOAD_H

#include "vm/run/run.h"

/* Every parameter from the file: missing, extra and mis-shaped ones are errors. */
weft_status run_load(Run *r, const SafeTensors *s, weft_error *e);
/* The most that reading them allocates, with all ranks of the mesh in the process. */
uint64_t weights_bytes(const Compiled *c);

#endif
