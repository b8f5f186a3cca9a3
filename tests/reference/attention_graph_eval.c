/* attention_graph_eval.c - see attention_graph_eval.h. */
#include "attention_graph_eval.h"

#include <math.h>
#include <stdlib.h>

/* The operand's element for element i of a tensor that lies by heads. */
static int64_t from_heads(const AgTensor *t, const RefTensor *x, int64_t i) {
  int64_t heads = t->dim[1], rows = t->dim[2], b = i / (heads * rows);
  return (b * x->dim[1] + t->from + i % rows) * heads + i / rows % heads;
}

static int64_t element_size(const AgTensor *t) { return t->type == AG_BF16 ? 2 : 4; }

static double number_of(const AgTensor *t) {
  return t->type == AG_I32 ? (double)t->count : (double)t->number;
}

static double *memory_of(const AgTensor *t, const RefArgs *a) {
  int64_t n = graph_extent(t), first = t->at / element_size(t);
  double *v = malloc((size_t)n * sizeof *v);
  const RefTensor *x = &a->in[t->index];
  assert(t->where != AG_IN || first + n <= ref_count(x));
  for (int64_t i = 0; i < n; i++)
    v[i] = t->where == AG_IN         ? x->v[first + i]
           : t->where == AG_BY_HEADS ? x->v[from_heads(t, x, i)]
           : t->where == AG_NUMBER   ? number_of(t)
                                     : NAN;
  return v;
}

void graph_evaluate(const AttentionGraph *g, RefArgs *a, int wrong) {
  double *memory[AG_TENSORS];
  for (int i = 0; i < g->ntensor; i++) memory[i] = memory_of(&g->tensor[i], a);
  graph_run(g, memory, false, wrong);
  for (int i = 0; i < g->ntensor; i++) {
    const AgTensor *t = &g->tensor[i];
    RefTensor *out = &a->out[t->index];
    int64_t first = t->at / element_size(t);
    for (int64_t k = 0; t->where == AG_OUT && k < graph_count(t); k++) {
      int64_t at = graph_place(t, k);
      assert(first + at < ref_count(out));
      out->v[first + at] = memory[i][at];
    }
    free(memory[i]);
  }
}
