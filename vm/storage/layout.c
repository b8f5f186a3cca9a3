/* layout.c - where parameters, gradients, optimizer state, inputs and scalars of a pp
 * rank lie in its arena, and which gradients are reduced together. */
#include "vm/compile/build.h"

/* `chunks` gets, for each parameter of the rank, the local chunks that use it. */
static void add_params_of(Build *b, int u, Layout *l, Arena *a, int *cap,
                          uint64_t *chunks) {
  const UnitCode *code = &b->unit[u];
  int rank, chunk;
  schedule_where(b->in->schedule, b->st.of_unit[u], &rank, &chunk);
  for (int i = 0; i < code->nparam; i++) {
    chunks[code->param[i]] |= 1ull << chunk;
    if (l->of[code->param[i]] >= 0) continue;
    if (l->nparam == *cap)
      l->param = vec_grow(a, l->param, l->nparam, cap, sizeof(ProgParam));
    int param = code->param[i];
    Tid t = b->sh.local[b->in->graph->param.at[param].tensor];
    l->of[param] = l->nparam;
    l->param[l->nparam++] =
        (ProgParam){.param = param, .count = tensor_count(&b->sh.g->t.at[t])};
  }
}

static uint64_t place(Layout *l, uint64_t bytes, int class) {
  uint64_t at = l->end;
  l->end += align_up(bytes);
  if (class >= 0) l->bytes[class] += align_up(bytes);
  return at;
}

/* The mesh axes over which a gradient is partial. */
static AxisSet reduce_axes(const Build *b, int param) {
  AxisSet s = 0;
  for (int a = 0; a < AX_N; a++)
    if (b->sh.grad_place[param].on[a] == PL_P) s |= ax_mesh((ShardAxis)a);
  return s;
}

/* `free` is where the parameters of a new bucket begin: buckets are filled one by one. */
static void add_to_bucket(Build *b, Layout *l, int i, AxisSet axes, uint64_t chunks,
                          bool fresh, int **free) {
  ProgParam *p = &l->param[i];
  uint64_t bytes = (uint64_t)p->count * 4,
           limit = (uint64_t)b->in->plan->strategy.bucket_bytes;
  p->grad = place(l, bytes, 2);
  if (!axes) return;
  Bucket *k = l->bucket.n ? &l->bucket.at[l->bucket.n - 1] : NULL;
  if (!k || fresh || k->chunks != chunks || (k->count + (uint64_t)p->count) * 4 > limit) {
    k = VEC_PUSH(b->scratch, l->bucket);
    *k = (Bucket){.axes = axes, .off = p->grad, .chunks = chunks, .param = *free};
  }
  k->count = (p->grad + align_up(bytes) - k->off) / 4;
  k->param[k->nparam++] = i;
  (*free)++;
}

/* Gradients that are partial over the same axes and written by the same chunks lie
 * together; within these, those that are ready first (the last units) come first. */
static void place_gradients(Build *b, Layout *l, const uint64_t *chunks) {
  bool *done = NEW_N(b->scratch, bool, l->nparam);
  int *free = NEW_N(b->scratch, int, l->nparam);
  for (int i = l->nparam - 1; i >= 0; i--) {
    if (done[i]) continue;
    AxisSet axes = reduce_axes(b, l->param[i].param);
    bool fresh = true;
    for (int k = i; k >= 0; k--) {
      if (done[k] || reduce_axes(b, l->param[k].param) != axes) continue;
      add_to_bucket(b, l, k, axes, chunks[l->param[k].param], fresh, &free);
      done[k] = true;
      fresh = false;
    }
  }
}

uint64_t input_bytes(int64_t microbatches, int64_t micro, int64_t seq) {
  return (uint64_t)microbatches * (uint64_t)micro * (uint64_t)seq * 4;
}

uint64_t inputs_of(const Build *b, int rank) {
  uint64_t mask = 0;
  for (int u = 0; u < b->in->graph->unit.n; u++)
    if (stage_rank(b, b->st.of_unit[u]) == rank) mask |= b->unit[u].input_mask;
  return mask & ((1u << IN_SEED) - 1);
}

static void place_inputs(Build *b, int rank, const Compiled *c, Layout *l) {
  uint64_t bytes = input_bytes(b->microbatches, c->micro, c->seq);
  uint64_t mask = inputs_of(b, rank);
  for (int k = 0; k < IN_N; k++)
    l->input[k] = mask >> k & 1 ? place(l, bytes, 4) : UINT64_MAX;
}

void layout(Build *b, int rank, const Compiled *c, Layout *l) {
  const Graph *g = b->in->graph;
  int cap = 0;
  uint64_t *chunks = NEW_N(b->scratch, uint64_t, g->param.n);
  *l = (Layout){.of = NEW_N(b->scratch, int, g->param.n)};
  for (int i = 0; i < g->param.n; i++)
    l->of[i] = -1;
  for (int u = 0; u < g->unit.n; u++)
    if (stage_rank(b, b->st.of_unit[u]) == rank)
      add_params_of(b, u, l, c->arena, &cap, chunks);
  bool f32 = c->dtype == DT_F32;
  for (int i = 0; i < l->nparam; i++) {
    ProgParam *p = &l->param[i];
    uint64_t n = (uint64_t)p->count;
    p->work = place(l, n * (uint64_t)dtype_size(c->dtype), 0);
    p->master = f32 ? p->work : place(l, n * 4, 1);
    p->owner = c->param[p->param].pp[0] == rank;
  }
  place_gradients(b, l, chunks);
  for (int i = 0; i < l->nparam; i++) {
    l->param[i].m = place(l, (uint64_t)l->param[i].count * 4, 3);
    l->param[i].v = place(l, (uint64_t)l->param[i].count * 4, 3);
  }
  place_inputs(b, rank, c, l);
  l->scalars = place(l, SC_N * sizeof(double), 4);
  l->seed = place(l, sizeof(float), 4);
  for (int i = 0; i < l->nparam && b->in->plan->opt.post_validation; i++)
    l->kept += 3 * align_up((uint64_t)l->param[i].count * 4);
}
