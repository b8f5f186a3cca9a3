/* autodiff.h - gradients of a finished forward graph. */
#ifndef WEFT_AUTODIFF_H
#define WEFT_AUTODIFF_H

#include "vm/base/diag.h"
#include "vm/graph/graph.h"

/* requires a finished forward graph; establishes grad, forward_ops and phases: adds the
 * backward ops, tags every op F, I or W, and removes ops that the loss does not depend
 * on. Ops and parameters without a gradient are errors in `d`. */
/* For a model that is not trained, instead of autodiff: keeps what the result depends on,
 * all in phase F. */
void forward_alone(Graph *g);
weft_status autodiff(Graph *g, Diags *d);

#endif
