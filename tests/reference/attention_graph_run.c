/* attention_graph_run.c - see attention_graph_run.h. */
#include "attention_graph_run.h"

#include <math.h>
#include <stdlib.h>

#include "vm/base/bf16.h"

typedef struct Memory {
  const AgTensor *t;
  double *v;
  int64_t n, extent;
} Memory;

typedef struct Index {
  int64_t at[4];
} Index;

int64_t graph_count(const AgTensor *t) {
  return t->dim[0] * t->dim[1] * t->dim[2] * t->dim[3];
}

/* The index of element i of a tensor in dimension order. */
static Index nth(const AgTensor *t, int64_t i) {
  Index x;
  for (int k = 3; k >= 0; k--) {
    x.at[k] = i % t->dim[k];
    i /= t->dim[k];
  }
  return x;
}

int64_t graph_extent(const AgTensor *t) {
  int64_t last = 0;
  for (int k = 0; k < 4; k++) last += (t->dim[k] - 1) * t->stride[k];
  return last + 1;
}

int64_t graph_place(const AgTensor *t, int64_t i) {
  Index x = nth(t, i);
  int64_t at = 0;
  for (int k = 0; k < 4; k++) at += x.at[k] * t->stride[k];
  return at;
}

/* The element of m broadcast to index x of a tensor with the dimensions of `of`. */
static double *element(const Memory *m, const AgTensor *of, Index x) {
  int64_t at = 0;
  for (int k = 0; k < 4; k++) at += x.at[k] * m->t->dim[k] / of->dim[k] * m->t->stride[k];
  assert(at >= 0 && at < m->extent);
  return &m->v[at];
}

/* ---- ops ---- */

static void matmul(const Memory *x, const Memory *b, const Memory *y) {
  int64_t inner = x->t->dim[3];
  assert(inner == b->t->dim[2]);
  for (int64_t i = 0; i < y->n; i++) {
    Index at = nth(y->t, i);
    double sum = 0;
    for (int64_t k = 0; k < inner; k++) {
      int64_t group[2] = {at.at[1] * x->t->dim[1] / y->t->dim[1],
                          at.at[1] * b->t->dim[1] / y->t->dim[1]};
      Index l = {{at.at[0], group[0], at.at[2], k}},
            r = {{at.at[0], group[1], k, at.at[3]}};
      sum += *element(x, x->t, l) * *element(b, b->t, r);
    }
    *element(y, y->t, at) = sum;
  }
}

static void reduce(AgKind kind, const Memory *x, const Memory *y) {
  for (int64_t i = 0; i < y->n; i++)
    y->v[graph_place(y->t, i)] = kind == AG_SUM ? 0 : -INFINITY;
  for (int64_t i = 0; i < x->n; i++) {
    Index at = nth(x->t, i);
    double v = *element(x, x->t, at), *to = element(y, x->t, at);
    *to = kind == AG_SUM ? *to + v : fmax(*to, v);
  }
}

static double apply(AgKind kind, Index at, double x, double b, double t) {
  switch (kind) {
  case AG_MUL: return x * b;
  case AG_SUB: return x - b;
  case AG_ADD: return x + b;
  case AG_DIV: return x / b;
  case AG_EXP: return exp(x);
  case AG_LOG: return log(x);
  case AG_COPY: return x;
  case AG_ROW: return (double)at.at[2];
  case AG_COLUMN: return (double)at.at[3];
  case AG_NOT_LESS: return x >= b;
  case AG_GREATER: return x > b;
  case AG_SELECT: return t != 0 ? x : b;
  default: abort();
  }
}

static void pointwise(AgKind kind, const Memory *x, const Memory *b, const Memory *t,
                      const Memory *y) {
  for (int64_t i = 0; i < y->n; i++) {
    Index at = nth(y->t, i);
    double vb = ag_has_b(kind) ? *element(b, y->t, at) : 0;
    double vt = ag_has_t(kind) ? *element(t, y->t, at) : 0;
    *element(y, y->t, at) = apply(kind, at, *element(x, y->t, at), vb, vt);
  }
}

static void evaluate(const AgNode *n, Memory *m) {
  Memory *y = &m[n->y], *x = &m[n->x];
  if (n->kind == AG_MATMUL) {
    matmul(x, &m[n->b], y);
  } else if (n->kind == AG_MOST || n->kind == AG_SUM) {
    reduce(n->kind, x, y);
  } else if (n->kind == AG_VIEW) {
    assert(x->extent == y->extent);
    memcpy(y->v, x->v, (size_t)x->extent * sizeof *x->v);
  } else {
    pointwise(n->kind, x, &m[n->b], &m[n->t], y);
  }
}

/* ---- the whole graph ---- */

/* Rounds to the type. */
static double rounded(AgType type, double x) {
  if (type != AG_BF16 && type != AG_F32) return x;
  return type == AG_F32 ? (double)(float)x : (double)bf16_to_f32(bf16_from_f32((float)x));
}

void graph_run(const AttentionGraph *g, double *const memory[], bool rounds, int wrong) {
  Memory m[AG_TENSORS];
  for (int i = 0; i < g->ntensor; i++)
    m[i] = (Memory){.t = &g->tensor[i],
                    .v = memory[i],
                    .n = graph_count(&g->tensor[i]),
                    .extent = graph_extent(&g->tensor[i])};
  for (int i = 0; i < g->nnode; i++) {
    Memory *y = &m[g->node[i].y];
    evaluate(&g->node[i], m);
    for (int64_t k = 0; k < y->n; k++) {
      double *v = &y->v[graph_place(y->t, k)];
      if (i == wrong) *v = 1.5 * *v + .25;
      if (rounds) *v = rounded(y->t->type, *v);
    }
  }
}
