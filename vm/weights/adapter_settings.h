/* adapter_settings.h - reads adapter_config.json, which PEFT or weft wrote. */
#ifndef WEFT_ADAPTER_SETTINGS_H
#define WEFT_ADAPTER_SETTINGS_H

#include "vm/io/io.h"
#include "vm/plan/plan.h"

/* WEFT_EFILE with the file and the key if its settings are not the plan's; `s` has the
 * tensors of the adapter. */
weft_status adapter_settings(const weft_alloc *a, const char *file, const Adapter *of,
                             const SafeTensors *s, weft_error *e);

#endif
