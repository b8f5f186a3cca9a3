/* autodiff.h - gradients of a finished forward graph. */
#ifndef WEFT_AUTODIFF_H
#define WEFT_AUTODIFF_H

#include "vm/base/diag.h"
#include "vm/graph/graph.h"

/* requires a finished forward graph; establishes grad, forward_ops and phases: adds the
 * backward ops, tags every op F, I or W, takes out what the loss does not depend on.
 * Everything that has no gradient goes to `d`. */
/* Instead of it, for a model that is not trained: what the result depends on, all of it
 * forward. */
void forward_alone(Graph *g);
weft_status autodiff(Graph *g, Diags *d);

#endif
