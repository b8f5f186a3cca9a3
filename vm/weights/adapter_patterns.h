/* adapter_patterns.h - rank_pattern and alpha_pattern of adapter_config.json. */
#ifndef WEFT_ADAPTER_PATTERNS_H
#define WEFT_ADAPTER_PATTERNS_H

#include <jansson.h>

#include "vm/io/io.h"
#include "vm/plan/plan.h"

/* WEFT_EFILE with the file and the module if the config gives a module of the adapter's
 * tensors another rank or alpha than the plan. `s` has these tensors. */
weft_status adapter_patterns(const weft_alloc *a, const char *file, const json_t *config,
                             const Adapter *of, const SafeTensors *s, weft_error *e);

#endif
