/* model.h - model functions f(g, config): a user's or stdlib's (stdlib/models). They see
 * the userdata `g`, whose methods add to the graph, and return the loss. */
#ifndef WEFT_BINDINGS_MODEL_H
#define WEFT_BINDINGS_MODEL_H

#include "bindings/plan_table/loaded_plan.h"

/* Finds the build function and the config of plan.model. */
void model_resolve(lua_State *L, LangPlan *lp, Diags *d);
/* Default styles of the architecture, if the plan names none. */
void model_default_tp(lua_State *L, LangPlan *lp, Diags *d);

/* ---- graph_userdata.c ---- */
/* Calls the model function for a batch of B sequences of T tokens; `g` comes from
 * graph_new(arena, B, T) and is finished; `moe` is what g:moe() says. May be called
 * again, with a changed config. */
weft_status lang_build_graph(LangPlan *lp, const MoePlan *moe, int64_t B, int64_t T,
                             Graph *g, Diags *d, weft_error *e);

/* ---- hf.c: pushes the table of a config.json, false with a diagnostic ---- */
bool hf_config_push(lua_State *L, const char *file, const char *path, Diags *d);

/* ---- hf_export.c ---- */
/* Hugging Face's config.json of the model, with weights of type `dtype`, or, DT_ACT, of
 * that which they have in its folder; of a folder the text that is there, but for what
 * the plan has changed. *known: false if the model is a function of the plan, of which
 * Hugging Face knows nothing. */
weft_status lang_hf_config(LangPlan *lp, DType dtype, Text *out, bool *known,
                           weft_error *e);

/* ---- graph_ops_doc.c ---- */
/* The table of docs/models.md: the ops that `g` has. */
void graph_ops_markdown(Text *out);

#endif
