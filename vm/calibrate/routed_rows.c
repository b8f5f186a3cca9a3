/* routed_rows.c - integers of kernels of experts as they are when all experts get the
 * same rows, which is what the clock takes for granted (vm/sim/kernel_work.h). Tokens
 * choose experts in turn, so that rows of a token are far from each other, as in a step.
 */
#include "kernel_operands.h"

enum {
  IDS,   /* (N,k): the experts of each token */
  ENDS,  /* (E+1): where the rows of each expert begin */
  ROWS,  /* (N,k): the row of each choice, -1 if it is on another rank */
  COUNTS /* (p,E): rows of each expert for each rank */
};

static const Routed routed[] = {
    {OP_permute, 1, IDS},         {OP_expert_counts, 0, IDS},
    {OP_expert_load, 0, IDS},     {OP_route_dx, 1, IDS},
    {OP_grouped_linear, 2, ENDS}, {OP_grouped_linear_dx, 2, ENDS},
    {OP_grouped_bias, 2, ENDS},   {OP_grouped_linear_dw, 2, ENDS},
    {OP_combine, 2, ROWS},        {OP_grouped_bias_dw, 1, ENDS},
    {OP_combine_dx, 2, ROWS},     {OP_permute_dx, 1, ROWS},
    {OP_regroup, 1, COUNTS},
};

const Routed *routed_of(int op) {
  for (int i = 0; i < LEN(routed); i++)
    if (routed[i].op == op) return &routed[i];
  return NULL;
}

const KTensor *routed_buffer(const TimedKernel *t) {
  bool to_rows = t->op == OP_regroup && !t->args.attr->inverse;
  return to_rows ? &t->args.out[0] : &t->args.in[0];
}

static int64_t count(const KTensor *t) {
  int64_t n = 1;
  for (int i = 0; i < t->ndim; i++) n *= t->dim[i];
  return n;
}

static int64_t rows_filled(const TimedKernel *t) {
  return (int64_t)(t->filled * (double)routed_buffer(t)->dim[0] + 0.5);
}

static void fill_ids(const TimedKernel *t, int32_t *to, int64_t n) {
  int64_t experts =
      t->op == OP_expert_load ? count(&t->args.out[0]) : t->args.attr->experts;
  for (int64_t i = 0; i < n; i++) to[i] = (int32_t)(i % experts);
}

static void fill_ends(const TimedKernel *t, int32_t *to, int64_t n) {
  int64_t rows = rows_filled(t);
  for (int64_t e = 0; e < n; e++) to[e] = (int32_t)(e * rows / (n - 1));
}

/* Of n choices as many are here as there are rows, evenly spread; choices that follow
 * each other have rows that are far apart, as those of different experts. */
static void fill_rows(const TimedKernel *t, int32_t *to, int64_t n) {
  enum { PARTS = 8 };
  int64_t rows = MIN(rows_filled(t), n), part = rows / PARTS;
  for (int64_t i = 0; i < n; i++) {
    int64_t here = i * rows / n;
    bool is = (i + 1) * rows / n > here;
    int64_t row = here < part * PARTS ? here % PARTS * part + here / PARTS : here;
    to[i] = is ? (int32_t)row : ROW_ELSEWHERE;
  }
}

static void fill_counts(const TimedKernel *t, int32_t *to, int64_t n) {
  int64_t rows = rows_filled(t);
  for (int64_t i = 0; i < n; i++) to[i] = (int32_t)((i + 1) * rows / n - i * rows / n);
}

void routed_fill(const TimedKernel *t, int32_t *to) {
  static void (*const fill[])(const TimedKernel *, int32_t *, int64_t) = {
      [IDS] = fill_ids, [ENDS] = fill_ends, [ROWS] = fill_rows, [COUNTS] = fill_counts};
  fill[t->routed->what](t, to, count(&t->args.in[t->routed->operand]));
}
