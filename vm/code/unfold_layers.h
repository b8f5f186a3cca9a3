/* unfold_layers.h - the units of a whole model from those of a folded one. */
#ifndef WEFT_UNFOLD_LAYERS_H
#define WEFT_UNFOLD_LAYERS_H

#include "units.h"
#include "vm/rewrite/fold_layers.h"

/* requires the units of f->g; establishes those of f->whole, in `keep`. False if the
 * units that stand for others turned out to differ from each other. */
bool unfold_layers(const Fold *f, const Units *from, Arena *keep, Arena *scratch,
                   Units *out);

#endif
