/* model.h - runs a model function f(g, config) and so builds the logical graph.
 *
 * The function is a user's or stdlib's (stdlib/models). It sees the userdata `g`, whose
 * methods add to the graph; it returns the loss. */
#ifndef WEFT_BINDINGS_MODEL_H
#define WEFT_BINDINGS_MODEL_H

#include <lua.h>

#include "vm/base/diag.h"
#include "vm/graph/graph.h"

/* Calls the function at stack index `fn` with `g` and the table at `config` (0: an empty
 * one) and finishes the graph. `g` is fresh from graph_new; if the plan packs documents
 * the caller has made their input, graph_input(g, IN_DOC_STARTS), before: only then
 * g:doc_starts() gives a tensor. A Lua error, a wrong call or a wrong result becomes a
 * diagnostic with path "model" and, where a file of the user is on the call stack, its
 * file and line: the result is WEFT_EPLAN. Other codes come with `e`. The Lua stack is
 * left as it was. `g` dies with the call: tensors that the function kept are refused. */
weft_status graph_call_model(lua_State *L, int fn, int config, Graph *g, Diags *d,
                             weft_error *e);

/* The table of docs/models.md: the ops that `g` has. */
void graph_ops_markdown(Text *out);

#endif
