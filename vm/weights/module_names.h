/* module_names.h - names of tensors with the names that Transformers has for modules in
 * memory, where files have others. */
#ifndef WEFT_MODULE_NAMES_H
#define WEFT_MODULE_NAMES_H

#include "vm/plan/plan.h"

/* Where a name, or a pattern, has that of a module; NULL: nowhere. It is whole parts of
 * it: "mlp.gate" is not in "mlp.gate_proj". */
const char *module_name_in(const char *name, const char *module);
/* The name with those of memory in the place of those of files, or the other way. */
void module_to_memory(const ModuleNames *m, const char *name, char out[512]);
void module_to_files(const ModuleNames *m, const char *name, char out[512]);

#endif
