/* attention_graph_run.h - evaluates a table of kernels/cuda/cudnn/attention_graph.h as it
 * stands, in f64, one element at a time: of the ops it knows what their names say and no
 * more. */
#ifndef WEFT_TESTS_GRAPH_RUN_H
#define WEFT_TESTS_GRAPH_RUN_H

#include "kernels/cuda/cudnn/attention_graph.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { GRAPH_RIGHT = -1 };

int64_t graph_count(const AgTensor *t);
/* Each tensor has memory of its own, laid out by its strides: those that no op gives are
 * there, all others are written; with `rounds` as their types can hold them. What op
 * `wrong` gives is spoiled; with GRAPH_RIGHT none is. */
void graph_run(const AttentionGraph *g, double *const memory[], bool rounds, int wrong);

#ifdef __cplusplus
}
#endif

#endif
