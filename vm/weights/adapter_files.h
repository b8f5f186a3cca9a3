/* adapter_files.h - adapters as PEFT's folders have them: names of tensors and
 * adapter_config.json. */
#ifndef WEFT_ADAPTER_FILES_H
#define WEFT_ADAPTER_FILES_H

#include "vm/plan/plan.h"
#include "vm/program/program.h"

#define ADAPTER_WEIGHTS "adapter_model.safetensors"
#define ADAPTER_CONFIG  "adapter_config.json"
#define ADAPTER_PREFIX  "base_model.model." /* before the names of the model */

/* "model.layers.0.mlp.up_proj.lora_A.weight" -> "base_model.model.model.layers.0...". Of
 * experts, whose weights are parameters of one module, PEFT wraps the module once for
 * each that has an adapter, in their order: the last one's are of the module
 * ("...mlp.experts.lora_A.weight"), those before it of its base_layer, and so on. */
void adapter_tensor(const Compiled *c, int param, char name[512]);
/* The name in the model that a tensor of PEFT's folder is of, as parameters have it;
 * false if it is none of such a folder. */
bool adapter_by_files(const Compiled *c, const char *name, char other[512]);
/* Where a part of an adapter of a module that the model has as several linears goes: some
 * rows of the tensor `name`, as weights_packed has it; false if it is a tensor itself. */
bool adapter_packed(const Compiled *c, int param, char name[512], int64_t *rows,
                    int64_t *first);
/* Whether an adapter's folder has it: parts, and what learns beside them. */
bool adapter_has(const CompiledParam *p);
/* How PEFT has a part: matrices of experts are one, A (E * rank, in), and B (out, rank *
 * E), where the expert is the last digit; `turned` says so of B. */
bool adapter_turned(const CompiledParam *p);
CompiledParam adapter_shape(const CompiledParam *p);
/* The number of this part of the adapter of parameter `base`; -1 if it has none. */
int adapter_part(const Compiled *c, int base, AdapterPart part);
/* The other way: the number of the parameter that a part is of. */
int adapter_base(const Compiled *c, int part);
/* Whether the linears that read this weight of the model take it as (in, out). */
bool adapter_of_in_out(const Graph *g, const char *base);
/* The text of adapter_config.json; `folder`: that of the base model, or NULL. */
void adapter_config(const Compiled *c, const Plan *p, const Graph *g, const char *folder,
                    Text *out);
/* WEFT_EPLAN if a linear that has an adapter of its own is a part of a module in files:
 * these have the modules of `packed` as one (weights_packed). */
weft_status adapter_fits(const Compiled *c, const char *const *packed, weft_error *e);
/* WEFT_EPLAN if an adapter cannot be added to a weight: it is of a tied head. */
weft_status adapter_merges(const Compiled *c, weft_error *e);

#endif
