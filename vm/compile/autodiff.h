/* autodiff.h - gradients of a finished forward graph. */
#ifndef WEFT_AUTODIFF_H
#define WEFT_AUTODIFF_H

#include "vm/graph/graph.h"

/* Adds the backward ops and tags every op F, I or W. */
weft_status autodiff(Graph *g, weft_error *e);

#endif
