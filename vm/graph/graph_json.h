/* graph_json.h - a graph as JSON. */
#ifndef WEFT_GRAPH_JSON_H
#define WEFT_GRAPH_JSON_H

#include "graph.h"
#include "vm/base/json.h"

/* A list of its ops: what graph_dump prints, as members of objects. */
void graph_json(const Graph *g, const char *key, Json *out);

#endif
