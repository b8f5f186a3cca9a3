/* module_names.h - names of tensors with the names that Transformers has for modules in
 * memory, where files have others. */
#ifndef WEFT_MODULE_NAMES_H
#define WEFT_MODULE_NAMES_H

#include "vm/plan/plan.h"

/* The name with those of memory in the place of those of files, or the other way. What is
 * replaced are whole parts of it: "mlp.gate" is none of "mlp.gate_proj". */
void module_to_memory(const ModuleNames *m, const char *name, char out[512]);
void module_to_files(const ModuleNames *m, const char *name, char out[512]);

#endif
