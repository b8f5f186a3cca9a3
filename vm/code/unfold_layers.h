/* unfold_layers.h - the units of the whole model, from those compiled for a folded one.
 */
#ifndef WEFT_UNFOLD_LAYERS_H
#define WEFT_UNFOLD_LAYERS_H

#include "units.h"
#include "vm/rewrite/fold_layers.h"

/* requires the units of f->g; establishes those of f->whole, in `keep`. False if
 * compilation has made units different that were folded as equal. */
bool unfold_layers(const Fold *f, const Units *from, Arena *keep, Arena *scratch,
                   Units *out);

#endif
