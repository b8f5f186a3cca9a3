/* attention_graph_eval.c - see attention_graph_eval.h. */
#include "attention_graph_eval.h"

#include <math.h>
#include <stdlib.h>

/* The operand's element for element i of a tensor that lies by heads. */
static int64_t from_heads(const AgTensor *t, int64_t i) {
  int64_t heads = t->dim[1], rows = t->dim[2];
  return (i / (heads * rows) * rows + i % rows) * heads + i / rows % heads;
}

static double *memory_of(const AgTensor *t, const RefArgs *a) {
  int64_t n = graph_count(t);
  double *v = malloc((size_t)n * sizeof *v);
  for (int64_t i = 0; i < n; i++)
    v[i] = t->where == AG_IN         ? a->in[t->index].v[i]
           : t->where == AG_BY_HEADS ? a->in[t->index].v[from_heads(t, i)]
           : t->where == AG_NUMBER   ? (double)t->number
                                     : NAN;
  assert(t->where != AG_IN || n == ref_count(&a->in[t->index]));
  return v;
}

void graph_evaluate(const AttentionGraph *g, RefArgs *a, int wrong) {
  double *memory[AG_TENSORS];
  for (int i = 0; i < g->ntensor; i++) memory[i] = memory_of(&g->tensor[i], a);
  graph_run(g, memory, false, wrong);
  for (int i = 0; i < g->ntensor; i++) {
    const AgTensor *t = &g->tensor[i];
    RefTensor *out = &a->out[t->index];
    if (t->where == AG_OUT) {
      assert(graph_count(t) == ref_count(out));
      memcpy(out->v, memory[i], (size_t)ref_count(out) * sizeof *out->v);
    }
    free(memory[i]);
  }
}
