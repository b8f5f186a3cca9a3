/* actions.c - a pp rank's main list: unit calls, sends, receives and gradient reductions
 * in order, with every buffer as an interval of positions in that list.
 *
 * Receives from a peer are posted in the order in which that peer sends, each into a
 * buffer of its own, at the latest before the action that needs them and one action
 * ahead where that is possible. A send is waited for after the next send to the same
 * peer has been started, so one transfer overlaps the following action. */
#include "passes.h"

typedef struct Outstanding {
  int handle, buffer, age;
} Outstanding;

typedef struct Walk {
  Build *b;
  Arena *a;
  const Schedule *s;
  const Layout *l;
  Timeline *t;
  int rank, m;                      /* microbatches per round */
  int now;                          /* position in the main list */
  Event unwanted;                   /* where events go when only buffers are wanted */
  /* Edges of each local chunk: tensors and, for [edge * microbatches + mb], buffers. */
  struct ChunkEdges {
    VEC(Tid) t;
    int32_t *buffer;
  } *chunk;
  int **unit_edge;                  /* unit -> its edges' numbers in the chunk */
  int32_t (*frame)[3];              /* [unit * microbatches + mb] */
  int *posted, *taken;              /* per source: receives posted / first not used up */
  struct Posted {
    int handle;
    bool used;
  } **recv;                         /* per source and item */
  VEC(Outstanding) *sent;           /* per peer */
  VEC(int) free_handle;
  int *w_left;                      /* per unit: W calls still to come */
  int *bucket_left;                 /* per bucket: units still to finish */
} Walk;

int stage_rank(const Build *b, int stage) {
  int rank, chunk;
  schedule_where(b->in->schedule, stage, &rank, &chunk);
  return rank;
}

/* ---- the order of sends ---- */

static void push_send(Build *b, int src, int dst, Tid t, int stage, int mb) {
  struct Sends *v = &b->sends[src * b->in->schedule->ranks + dst];
  *VEC_PUSH(b->arena, *v) = (struct SendItem){t, stage, mb};
}

static void send_after(Build *b, int rank, int stage, int mb, bool forward) {
  int to = forward ? stage + 1 : stage - 1;
  if (to < 0 || to >= b->st.n || stage_rank(b, to) == rank) return;
  const struct Cross *c = forward ? &b->fwd[stage] : &b->bwd[to];
  for (int i = 0; i < c->n; i++) push_send(b, rank, stage_rank(b, to), c->at[i], to, mb);
}

static bool is_forward(const Action *a) { return a->kind == ACT_F || a->kind == ACT_OVERLAP; }

void send_order(Build *b) {
  const Schedule *s = b->in->schedule;
  int rounds = b->microbatches / s->microbatches;
  b->sends = NEW_N(b->arena, struct Sends, s->ranks * s->ranks);
  for (int r = 0; r < s->ranks; r++)
    for (int round = 0; round < rounds; round++)
      for (int i = 0; i < s->n[r]; i++) {
        const Action *a = &s->list[r][i];
        int base = round * s->microbatches, stage = schedule_stage(s, r, a->chunk);
        if (is_forward(a)) send_after(b, r, stage, base + a->mb, true);
        if (a->kind == ACT_B || a->kind == ACT_I)
          send_after(b, r, stage, base + a->mb, false);
        if (a->kind == ACT_OVERLAP)
          send_after(b, r, schedule_stage(s, r, a->chunk2), base + a->mb2, false);
      }
}

/* ---- buffers ---- */

static Event *event(Walk *w, EventKind kind, int line) {
  Event *e = w->t->brief ? &w->unwanted : VEC_PUSH(w->a, w->t->ev);
  w->now++;
  *e = (Event){.kind = (uint8_t)kind, .buffer = -1, .peer = -1, .handle = -1,
               .bucket = -1, .line = line};
  return e;
}

static int new_buffer(Walk *w, uint64_t bytes, int what) {
  *VEC_PUSH(w->a, w->t->buffer) =
      (Interval){.start = w->now, .end = w->now, .size = bytes, .what = what};
  return w->t->buffer.n - 1;
}

static int new_edge(Walk *w, Tid t) {
  uint64_t bytes = (uint64_t)tensor_bytes(&w->b->sh.g->t.at[t]);
  return new_buffer(w, bytes, 3 * w->b->in->graph->unit.n + t);
}

static void touch(Walk *w, int buffer) {
  if (buffer >= 0) w->t->buffer.at[buffer].end = MAX(w->t->buffer.at[buffer].end, w->now);
}

static int chunk_edge(Walk *w, int chunk, Tid t) {
  struct ChunkEdges *c = &w->chunk[chunk];
  for (int i = 0; i < c->t.n; i++)
    if (c->t.at[i] == t) return i;
  *VEC_PUSH(w->a, c->t) = t;
  return c->t.n - 1;
}

static int32_t *edge_buffer(Walk *w, int chunk, int edge, int mb) {
  return &w->chunk[chunk].buffer[(size_t)edge * (size_t)w->b->microbatches + (size_t)mb];
}

static int take_handle(Walk *w) {
  if (w->free_handle.n > 0) return w->free_handle.at[--w->free_handle.n];
  return w->t->handles++;
}

static void wait_handle(Walk *w, int handle, int buffer, int line) {
  touch(w, buffer);
  event(w, EV_WAIT, line)->handle = handle;
  *VEC_PUSH(w->a, w->free_handle) = handle;
}

/* ---- receives ---- */

static struct Sends *from(const Walk *w, int src) {
  return &w->b->sends[src * w->s->ranks + w->rank];
}

static int local_chunk(const Walk *w, int stage) {
  int rank, chunk;
  schedule_where(w->s, stage, &rank, &chunk);
  return chunk;
}

static void post(Walk *w, int src, int until, int line) {
  for (int i = w->posted[src]; i <= until; i++) {
    const struct SendItem *x = &from(w, src)->at[i];
    int chunk = local_chunk(w, x->stage);
    int buffer = new_edge(w, x->t);
    *edge_buffer(w, chunk, chunk_edge(w, chunk, x->t), x->mb) = buffer;
    int handle = take_handle(w);
    w->recv[src][i].handle = handle;
    Event *e = event(w, EV_RECV, line);
    e->buffer = buffer, e->peer = src, e->handle = handle, e->t = x->t, e->mb = x->mb;
  }
  w->posted[src] = MAX(w->posted[src], until + 1);
}

/* What an action receives: the peer, and the last item in its order; -1 if nothing. */
static int last_needed(Walk *w, int stage, int mb, bool forward, int *src) {
  int peer = forward ? stage - 1 : stage + 1;
  if (peer < 0 || peer >= w->b->st.n) return -1;
  *src = stage_rank(w->b, peer);
  if (*src == w->rank) return -1;
  struct Sends *v = from(w, *src);
  int last = -1;
  for (int i = w->taken[*src]; i < v->n; i++) {
    if (v->at[i].stage == stage && v->at[i].mb == mb && !w->recv[*src][i].used) last = i;
    else if (last >= 0) break;
  }
  return last;
}

static void post_for(Walk *w, int stage, int mb, bool forward, int line) {
  int src, last = last_needed(w, stage, mb, forward, &src);
  if (last >= w->posted[last >= 0 ? src : 0] && last >= 0) post(w, src, last, line);
}

/* A stage boundary inside one rank: the same buffers under the next chunk's names. */
static void hand_over(Walk *w, int stage, int mb, bool forward) {
  int peer = forward ? stage - 1 : stage + 1;
  if (peer < 0 || peer >= w->b->st.n || stage_rank(w->b, peer) != w->rank) return;
  const struct Cross *c = forward ? &w->b->fwd[peer] : &w->b->bwd[stage];
  int to = local_chunk(w, stage), at = local_chunk(w, peer);
  for (int i = 0; i < c->n; i++)
    *edge_buffer(w, to, chunk_edge(w, to, c->at[i]), mb) =
        *edge_buffer(w, at, chunk_edge(w, at, c->at[i]), mb);
}

static void wait_for_inputs(Walk *w, int stage, int mb, bool forward, int line) {
  int src, last = last_needed(w, stage, mb, forward, &src);
  hand_over(w, stage, mb, forward);
  if (last < 0) return;
  struct Sends *v = from(w, src);
  for (int i = w->taken[src]; i <= last; i++) {
    if (v->at[i].stage != stage || v->at[i].mb != mb || w->recv[src][i].used) continue;
    int chunk = local_chunk(w, stage);
    int buffer = *edge_buffer(w, chunk, chunk_edge(w, chunk, v->at[i].t), mb);
    wait_handle(w, w->recv[src][i].handle, buffer, line);
    w->recv[src][i].used = true;
  }
  while (w->taken[src] < v->n && w->recv[src][w->taken[src]].used) w->taken[src]++;
}

/* ---- calls ---- */

static void call(Walk *w, int u, Phase ph, int mb, int line) {
  const UnitCode *code = &w->b->unit[u];
  if (code->body[ph].n == 0) return;
  int chunk = local_chunk(w, w->b->st.of_unit[u]);
  int32_t *frame = w->frame[(size_t)u * (size_t)w->b->microbatches + (size_t)mb];
  for (int k = 0; k < 3; k++) {
    bool opens = k == 2 ? ph == PH_I : ph == PH_F;
    bool uses = k == 0 ? ph != PH_W : k == 1 ? true : ph != PH_F;
    if (code->frame[k] == 0) frame[k] = -1;
    else if (opens) frame[k] = new_buffer(w, code->frame[k], 3 * u + k);
    else if (uses) touch(w, frame[k]);
  }
  uint32_t first = (uint32_t)w->t->call_buffer.n;
  for (int k = 0; k < 3; k++) {
    bool alive = code->frame[k] > 0 && (k == 2 ? ph != PH_F : k == 1 || ph != PH_W);
    if (!w->t->brief) *VEC_PUSH(w->a, w->t->call_buffer) = alive ? frame[k] : -1;
  }
  uint64_t used = code->edge_used[ph];
  for (int k = 0; k < code->nedge; k++) {
    int32_t *buf = edge_buffer(w, chunk, w->unit_edge[u][k], mb);
    if (used >> k & 1) {
      if (*buf < 0) *buf = new_edge(w, code->edge[k]);
      touch(w, *buf);
    }
    if (!w->t->brief) *VEC_PUSH(w->a, w->t->call_buffer) = used >> k & 1 ? *buf : -1;
  }
  Event *e = event(w, EV_CALL, line);
  e->phase = (uint8_t)ph, e->unit = u, e->mb = mb, e->edges = first;
}

/* A unit whose last W call is done may complete buckets: reduce them at once. */
static void finished(Walk *w, int u, int line) {
  if (--w->w_left[u] > 0 || !w->b->in->plan->strategy.overlap_grad_reduce) return;
  const UnitCode *code = &w->b->unit[u];
  for (int k = 0; k < w->l->bucket.n; k++) {
    const Bucket *bk = &w->l->bucket.at[k];
    for (int i = 0; i < bk->nparam; i++)
      for (int j = 0; j < code->nparam; j++)
        if (w->l->of[code->param[j]] == bk->param[i]) w->bucket_left[k]--;
    if (w->bucket_left[k] == 0 && w->t->reduce_handle[k] < 0) {
      w->t->reduce_handle[k] = take_handle(w);
      Event *e = event(w, EV_REDUCE, line);
      e->bucket = k, e->handle = w->t->reduce_handle[k];
    }
  }
}

static void send_from(Walk *w, int stage, int mb, bool forward, int line) {
  int to = forward ? stage + 1 : stage - 1;
  if (to < 0 || to >= w->b->st.n) return;
  int peer = stage_rank(w->b, to), chunk = local_chunk(w, stage);
  if (peer == w->rank) return;
  const struct Cross *c = forward ? &w->b->fwd[stage] : &w->b->bwd[to];
  int old = w->sent[peer].n;
  for (int i = 0; i < c->n; i++) {
    int buffer = *edge_buffer(w, chunk, chunk_edge(w, chunk, c->at[i]), mb);
    int handle = take_handle(w);
    touch(w, buffer);
    Event *e = event(w, EV_SEND, line);
    e->buffer = buffer, e->peer = peer, e->handle = handle, e->t = c->at[i], e->mb = mb;
    *VEC_PUSH(w->a, w->sent[peer]) = (Outstanding){.handle = handle, .buffer = buffer};
  }
  for (int i = 0; i < old; i++)
    wait_handle(w, w->sent[peer].at[i].handle, w->sent[peer].at[i].buffer, line);
  memmove(w->sent[peer].at, w->sent[peer].at + old,
          sizeof(Outstanding) * (size_t)(w->sent[peer].n - old));
  w->sent[peer].n -= old;
}

static void run_forward(Walk *w, int stage, int mb, int line) {
  wait_for_inputs(w, stage, mb, true, line);
  for (int u = w->b->st.first[stage]; u < w->b->st.first[stage + 1]; u++)
    call(w, u, PH_F, mb, line);
  send_from(w, stage, mb, true, line);
}

static void run_backward(Walk *w, int stage, int mb, bool i_part, bool w_part, int line) {
  if (i_part) wait_for_inputs(w, stage, mb, false, line);
  for (int u = w->b->st.first[stage + 1] - 1; u >= w->b->st.first[stage]; u--) {
    if (i_part) call(w, u, PH_I, mb, line);
    if (w_part) {
      call(w, u, PH_W, mb, line);
      finished(w, u, line);
    }
  }
  if (i_part) send_from(w, stage, mb, false, line);
}

static void post_action(Walk *w, const Action *a, int base, int line) {
  int stage = schedule_stage(w->s, w->rank, a->chunk);
  if (is_forward(a)) post_for(w, stage, base + a->mb, true, line);
  if (a->kind == ACT_B || a->kind == ACT_I) post_for(w, stage, base + a->mb, false, line);
  if (a->kind == ACT_OVERLAP)
    post_for(w, schedule_stage(w->s, w->rank, a->chunk2), base + a->mb2, false, line);
}

static void run_action(Walk *w, const Action *a, int base) {
  int stage = schedule_stage(w->s, w->rank, a->chunk), mb = base + a->mb;
  switch (a->kind) {
  case ACT_F: run_forward(w, stage, mb, a->line); break;
  case ACT_I: run_backward(w, stage, mb, true, false, a->line); break;
  case ACT_W: run_backward(w, stage, mb, false, true, a->line); break;
  case ACT_B: run_backward(w, stage, mb, true, true, a->line); break;
  case ACT_OVERLAP:
    run_forward(w, stage, mb, a->line);
    run_backward(w, schedule_stage(w->s, w->rank, a->chunk2), base + a->mb2, true, true,
                 a->line);
    break;
  default: break;   /* parameters are replicated: nothing to gather, free or reduce early */
  }
}

/* ---- set-up ---- */

static void add_chunk_edges(Walk *w, int stage) {
  const Build *b = w->b;
  int chunk = local_chunk(w, stage);
  for (int u = b->st.first[stage]; u < b->st.first[stage + 1]; u++) {
    w->unit_edge[u] = NEW_N(w->a, int, b->unit[u].nedge);
    for (int k = 0; k < b->unit[u].nedge; k++)
      w->unit_edge[u][k] = chunk_edge(w, chunk, b->unit[u].edge[k]);
  }
  for (int s = stage - 1; s <= stage; s++) {
    if (s < 0 || s >= b->st.n - 1) continue;
    for (int i = 0; i < b->fwd[s].n; i++) chunk_edge(w, chunk, b->fwd[s].at[i]);
    for (int i = 0; i < b->bwd[s].n; i++) chunk_edge(w, chunk, b->bwd[s].at[i]);
  }
  size_t n = (size_t)w->chunk[chunk].t.n * (size_t)b->microbatches;
  w->chunk[chunk].buffer = NEW_N(w->a, int32_t, n);
  memset(w->chunk[chunk].buffer, 0xff, n * sizeof(int32_t));
}

static void count_buckets(Walk *w, int stage) {
  for (int u = w->b->st.first[stage]; u < w->b->st.first[stage + 1]; u++) {
    w->w_left[u] = w->b->microbatches;
    for (int k = 0; k < w->l->bucket.n; k++)
      for (int i = 0; i < w->l->bucket.at[k].nparam; i++)
        for (int j = 0; j < w->b->unit[u].nparam; j++)
          w->bucket_left[k] +=
              w->l->of[w->b->unit[u].param[j]] == w->l->bucket.at[k].param[i];
  }
}

static void set_up(Walk *w) {
  const Build *b = w->b;
  int ranks = w->s->ranks, units = b->in->graph->unit.n;
  w->chunk = (void *)arena_alloc(w->a, sizeof *w->chunk * (size_t)w->s->virtual_stages);
  w->unit_edge = NEW_N(w->a, int *, units);
  w->frame = (void *)arena_alloc(w->a, sizeof *w->frame * (size_t)units *
                                           (size_t)b->microbatches);
  w->posted = NEW_N(w->a, int, ranks);
  w->taken = NEW_N(w->a, int, ranks);
  w->recv = NEW_N(w->a, struct Posted *, ranks);
  for (int r = 0; r < ranks; r++) w->recv[r] = NEW_N(w->a, struct Posted, from(w, r)->n);
  w->sent = (void *)arena_alloc(w->a, sizeof *w->sent * (size_t)ranks);
  w->w_left = NEW_N(w->a, int, units);
  w->bucket_left = NEW_N(w->a, int, w->l->bucket.n + 1);
  w->t->reduce_handle = NEW_N(w->a, int, w->l->bucket.n + 1);
  for (int k = 0; k < w->l->bucket.n; k++) w->t->reduce_handle[k] = -1;
  for (int c = 0; c < w->s->virtual_stages; c++) {
    add_chunk_edges(w, schedule_stage(w->s, w->rank, c));
    count_buckets(w, schedule_stage(w->s, w->rank, c));
  }
}

void actions(Build *b, int rank, const Layout *l, Timeline *t) {
  const Schedule *s = b->in->schedule;
  *t = (Timeline){.handles = b->in_handles, .brief = t->brief};
  Walk w = {.b = b, .a = b->arena, .s = s, .l = l, .t = t, .rank = rank,
            .m = s->microbatches};
  set_up(&w);
  int total = s->n[rank] * (b->microbatches / w.m);
  for (int i = 0; i < total; i++) {
    const Action *a = &s->list[rank][i % s->n[rank]];
    post_action(&w, a, i / s->n[rank] * w.m, a->line);
    if (i + 1 < total) {
      const Action *next = &s->list[rank][(i + 1) % s->n[rank]];
      post_action(&w, next, (i + 1) / s->n[rank] * w.m, next->line);
    }
    run_action(&w, a, i / s->n[rank] * w.m);
  }
  for (int r = 0; r < s->ranks; r++)
    for (int i = 0; i < w.sent[r].n; i++)
      wait_handle(&w, w.sent[r].at[i].handle, w.sent[r].at[i].buffer, 0);
}
