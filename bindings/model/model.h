/* model.h - model functions f(g, config): a user's or stdlib's (stdlib/models). They see
 * the userdata `g`, whose methods add to the graph, and return the loss. lang_build_graph
 * (plan_load.h) runs them. */
#ifndef WEFT_BINDINGS_MODEL_H
#define WEFT_BINDINGS_MODEL_H

#include "vm/base/base.h"

/* The table of docs/models.md: the ops that `g` has. */
void graph_ops_markdown(Text *out);

#endif
