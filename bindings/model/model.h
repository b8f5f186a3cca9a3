/* model.h - model functions f(g, config), of a user or of stdlib/models. They get the
 * userdata `g`, whose methods add ops to the graph, and return the loss. */
#ifndef WEFT_BINDINGS_MODEL_H
#define WEFT_BINDINGS_MODEL_H

#include <jansson.h>

#include "bindings/plan_table/loaded_plan.h"

/* Finds the build function and the config of plan.model. */
void model_resolve(lua_State *L, LangPlan *lp, Diags *d);
/* Sets the architecture's default tp_plan if the plan has none. */
void model_default_tp(lua_State *L, LangPlan *lp, Diags *d);
/* What an architecture says of PEFT and of names of modules, for a plan with an adapter.
 */
void model_modules(lua_State *L, LangPlan *lp);

/* ---- model_call.c ---- */
/* Calls the model function for a batch of B sequences of T tokens. `g` comes from
 * graph_new(arena, B, T) and is finished afterwards; of `plan` moe is what g:moe()
 * returns, and loss what g:loss() adds. May be called again with a changed config. */
weft_status lang_build_graph(LangPlan *lp, const Plan *plan, int64_t B, int64_t T,
                             Graph *g, Diags *d, weft_error *e);

/* ---- hf.c ---- Pushes the table of a config.json; false with a diagnostic, which says
 * `hub`, if that is not NULL, where there is no such file. */
bool hf_config_push(lua_State *L, const char *file, const char *hub, const char *path,
                    Diags *d);

/* ---- hf_export.c ---- */
/* The config.json of the model, with weights of type `dtype` (DT_ACT: that of its
 * folder). For a model from a folder it is the text of that file with the plan's changes;
 * `ids` of special tokens, an object or NULL, are those of the plan's tokenizer. *known:
 * false if the model is a function of the plan, which has no config.json. */
weft_status lang_hf_config(LangPlan *lp, const json_t *ids, DType dtype, Text *out,
                           bool *known, weft_error *e);
/* The modules that files of the architecture have as one (`packed`), NULL-terminated. */
enum { HF_PACKED = 3 };
typedef struct HfPacked {
  char text[HF_PACKED][32];
  const char *name[HF_PACKED + 1];
} HfPacked;
void model_packed(lua_State *L, LangPlan *lp, HfPacked *out);
weft_status lang_hf_packed(LangPlan *lp, HfPacked *out, weft_error *e);

/* ---- graph_ops_doc.c ---- */
/* The table of docs/models.md: the ops that `g` has. */
void graph_ops_markdown(Text *out);

#endif
