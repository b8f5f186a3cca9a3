/* layout.c - where parameters, gradients, optimizer state, inputs and scalars of a pp
 * rank lie in its arena, and which gradients are reduced together. */
#include "layout.h"

typedef struct Placing {
  const Stages *st;
  const Units *u;
  const Plan *plan;
  Arena *keep, *scratch;
  Layout *l;
  int cap;          /* of l->param */
  uint64_t *chunks; /* of each parameter of the rank: local chunks that use it */
} Placing;

static void add_params_of(Placing *w, int unit) {
  const CompiledUnit *x = &w->u->at[unit];
  Layout *l = w->l;
  for (int i = 0; i < x->code->nparam; i++) {
    int param = x->param[i];
    w->chunks[param] |= 1ull << w->st->chunk[w->st->of_unit[unit]];
    if (l->of[param] >= 0) continue;
    if (l->nparam == w->cap)
      l->param = vec_grow(w->keep, l->param, l->nparam, &w->cap, sizeof(ProgParam));
    l->of[param] = l->nparam;
    l->param[l->nparam++] =
        (ProgParam){.param = param, .count = w->u->param[param].count};
  }
}

static uint64_t place(Layout *l, uint64_t bytes, int class) {
  uint64_t at = l->end;
  l->end += align_up(bytes);
  if (class >= 0) l->bytes[class] += align_up(bytes);
  return at;
}

/* `free` is where the parameters of a new bucket begin: buckets are filled one by one. */
static void add_to_bucket(Placing *w, int i, AxisSet axes, bool fresh, int **free) {
  Layout *l = w->l;
  ProgParam *p = &l->param[i];
  uint64_t bytes = (uint64_t)p->count * 4, chunks = w->chunks[p->param],
           limit = (uint64_t)w->plan->strategy.bucket_bytes;
  p->grad = place(l, bytes, 2);
  if (!axes) return;
  Bucket *k = l->bucket.n ? &l->bucket.at[l->bucket.n - 1] : NULL;
  if (!k || fresh || k->chunks != chunks || (k->count + (uint64_t)p->count) * 4 > limit) {
    k = VEC_PUSH(w->scratch, l->bucket);
    *k = (Bucket){.axes = axes, .off = p->grad, .chunks = chunks, .param = *free};
  }
  k->count = (p->grad + align_up(bytes) - k->off) / 4;
  k->param[k->nparam++] = i;
  (*free)++;
}

/* Gradients that are partial over the same axes and written by the same chunks lie
 * together; within these, those that are ready first (the last units) come first. */
static void place_gradients(Placing *w) {
  Layout *l = w->l;
  bool *done = NEW_N(w->scratch, bool, l->nparam);
  int *free = NEW_N(w->scratch, int, l->nparam);
  for (int i = l->nparam - 1; i >= 0; i--) {
    if (done[i]) continue;
    AxisSet axes = unit_param_partial(&w->u->param[l->param[i].param]);
    bool fresh = true;
    for (int k = i; k >= 0; k--) {
      if (done[k] || unit_param_partial(&w->u->param[l->param[k].param]) != axes) continue;
      add_to_bucket(w, k, axes, fresh, &free);
      done[k] = true;
      fresh = false;
    }
  }
}

uint64_t input_bytes(int64_t microbatches, int64_t micro, int64_t seq) {
  return (uint64_t)microbatches * (uint64_t)micro * (uint64_t)seq * 4;
}

uint64_t inputs_of(const Stages *st, int rank) {
  uint64_t mask = 0;
  for (int u = 0; u < st->u->n; u++)
    if (unit_rank(st, u) == rank) mask |= st->u->at[u].code->input_mask;
  return mask & ((1u << IN_SEED) - 1);
}

uint64_t temp_of(const Stages *st, int rank) {
  uint64_t bytes = 0;
  for (int u = 0; u < st->u->n; u++)
    if (unit_rank(st, u) == rank) bytes = MAX(bytes, st->u->at[u].code->temp);
  return bytes;
}

static void place_inputs(const Placing *w, int rank, int microbatches) {
  uint64_t bytes = input_bytes(microbatches, w->u->micro, w->u->seq);
  uint64_t mask = inputs_of(w->st, rank);
  for (int k = 0; k < IN_N; k++)
    w->l->input[k] = mask >> k & 1 ? place(w->l, bytes, 4) : UINT64_MAX;
}

void layout(const Stages *st, const Plan *plan, int rank, int microbatches, Arena *keep,
            Arena *scratch, Layout *l) {
  const Units *u = st->u;
  Placing w = {.st = st, .u = u, .plan = plan, .keep = keep, .scratch = scratch, .l = l};
  w.chunks = NEW_N(scratch, uint64_t, u->nparam);
  *l = (Layout){.of = NEW_N(scratch, int, u->nparam)};
  for (int i = 0; i < u->nparam; i++)
    l->of[i] = -1;
  for (int i = 0; i < u->n; i++)
    if (unit_rank(st, i) == rank) add_params_of(&w, i);
  bool f32 = u->dtype == DT_F32;
  for (int i = 0; i < l->nparam; i++) {
    ProgParam *p = &l->param[i];
    uint64_t n = (uint64_t)p->count;
    p->work = place(l, n * (uint64_t)dtype_size(u->dtype), 0);
    p->master = f32 ? p->work : place(l, n * 4, 1);
    p->owner = st->holders[p->param].pp[0] == rank;
  }
  place_gradients(&w);
  for (int i = 0; i < l->nparam; i++) {
    l->param[i].m = place(l, (uint64_t)l->param[i].count * 4, 3);
    l->param[i].v = place(l, (uint64_t)l->param[i].count * 4, 3);
  }
  place_inputs(&w, rank, microbatches);
  l->scalars = place(l, SC_N * sizeof(double), 4);
  l->seed = place(l, sizeof(float), 4);
  for (int i = 0; i < l->nparam && plan->opt.post_validation; i++)
    l->kept += 3 * align_up((uint64_t)l->param[i].count * 4);
}
