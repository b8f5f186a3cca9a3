/* attention_graph_run.h - evaluates a table of kernels/cuda/cudnn/attention_graph.h
 * literally, in f64, element by element, from the meaning of the ops' names only. */
#ifndef WEFT_TESTS_GRAPH_RUN_H
#define WEFT_TESTS_GRAPH_RUN_H

#include "kernels/cuda/cudnn/attention_graph.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { GRAPH_RIGHT = -1 };

int64_t graph_count(const AgTensor *t);
/* Elements of its memory, from the first to the last; and the place there of element i of
 * graph_count. */
int64_t graph_extent(const AgTensor *t);
int64_t graph_place(const AgTensor *t, int64_t i);
/* Each tensor has memory of its own with its strides: graph inputs are filled, all others
 * are written; `rounds`: rounded to their types. The result of op `wrong` is spoiled;
 * GRAPH_RIGHT: none. */
void graph_run(const AttentionGraph *g, double *const memory[], bool rounds, int wrong);

#ifdef __cplusplus
}
#endif

#endif
