/* attention_graph_eval.h - evaluates a table of kernels/cuda/cudnn/attention_graph.h on
 * operands of the reference. */
#ifndef WEFT_TESTS_GRAPH_EVAL_H
#define WEFT_TESTS_GRAPH_EVAL_H

#include "attention_graph_run.h"
#include "reference_ops.h"

/* Writes the results of `a` from its operands; see graph_run. */
void graph_evaluate(const AttentionGraph *g, RefArgs *a, int wrong);

#endif
