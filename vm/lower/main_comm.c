/* main_comm.c - what a rank exchanges, in its main list: transfers and reductions of
 * gradients.
 *
 * Receives from a peer are posted in the order in which that peer sends, each into a
 * buffer of its own, one action before its use. A send overlaps with what follows: it is
 * waited for once a later send to the same peer has started, but not before its receive
 * is posted (transfers.c).
 *
 * With overlap, a bucket of gradients is reduced once its last gradient is complete, or
 * at the schedule's REDUCE_GRAD; all others after the last action. */
#include "main_list_int.h"

/* ---- receives ---- */

static void wait_handle(Walk *w, int handle, int buffer) {
  walk_touch(w, buffer);
  walk_event(w, EV_WAIT)->handle = handle;
  *VEC_PUSH(w->a, w->free_handle) = handle;
}

static Sends *from(const Walk *w, int src) { return sends_to(w->tr, src, w->rank); }

static void post_item(Walk *w, int src, struct SendItem *x) {
  int chunk = w->st->chunk[x->stage];
  int buffer = walk_new_edge(w, x->edge);
  *walk_edge_buffer(w, chunk, walk_chunk_edge(w, chunk, x->edge), x->mb) = buffer;
  x->handle = walk_handle(w);
  Event *e = walk_event(w, EV_RECV);
  e->buffer = buffer, e->peer = src, e->handle = x->handle, e->edge = x->edge,
  e->mb = x->mb;
}

void transfers_post(Walk *w, int stage, int mb, bool forward) {
  Inlet in;
  if (!inlet(w->tr, stage, mb, forward, &in)) return;
  Sends *v = from(w, in.src);
  int *next = &w->posted[send_side(w->tr, in.src, w->rank)];
  for (; *next < in.first + in.n; ++*next) post_item(w, in.src, &v->at[*next]);
}

/* At a stage boundary within one rank nothing is sent: the next chunk takes over the
 * buffers. */
static void hand_over(Walk *w, int stage, int mb, bool forward) {
  const Cross *c = entering(w->st, stage, forward);
  int peer = forward ? stage - 1 : stage + 1;
  if (!c || w->st->rank[peer] != w->rank) return;
  int to = w->st->chunk[stage], at = w->st->chunk[peer];
  for (int i = 0; i < c->n; i++)
    *walk_edge_buffer(w, to, walk_chunk_edge(w, to, c->at[i]), mb) =
        *walk_edge_buffer(w, at, walk_chunk_edge(w, at, c->at[i]), mb);
}

void transfers_take(Walk *w, int stage, int mb, bool forward) {
  Inlet in;
  hand_over(w, stage, mb, forward);
  if (!inlet(w->tr, stage, mb, forward, &in)) return;
  int chunk = w->st->chunk[stage];
  for (int i = in.first; i < in.first + in.n; i++) {
    const struct SendItem *x = &from(w, in.src)->at[i];
    wait_handle(w, x->handle,
                *walk_edge_buffer(w, chunk, walk_chunk_edge(w, chunk, x->edge), mb));
  }
}

/* ---- sends ---- */

static Peer *peer_of(Walk *w, int rank) {
  for (int i = 0; i < w->peer.n; i++)
    if (w->peer.at[i].rank == rank) return &w->peer.at[i];
  *VEC_PUSH(w->a, w->peer) = (Peer){.rank = rank};
  return &w->peer.at[w->peer.n - 1];
}

void transfers_send(Walk *w, int stage, int mb, bool forward) {
  int to = forward ? stage + 1 : stage - 1;
  if (to < 0 || to >= w->st->n || w->st->rank[to] == w->rank) return;
  const Cross *c = entering(w->st, to, forward);
  if (c->n == 0) return;
  int chunk = w->st->chunk[stage];
  Peer *p = peer_of(w, w->st->rank[to]);
  p->newest = p->sent.n;
  for (int i = 0; i < c->n; i++) {
    const struct SendItem *x = &sends_to(w->tr, w->rank, p->rank)->at[p->items++];
    int buffer = *walk_edge_buffer(w, chunk, walk_chunk_edge(w, chunk, c->at[i]), mb);
    int handle = walk_handle(w);
    walk_touch(w, buffer);
    Event *e = walk_event(w, EV_SEND);
    e->buffer = buffer, e->peer = p->rank, e->handle = handle, e->edge = c->at[i];
    e->mb = mb;
    *VEC_PUSH(w->a, p->sent) = (Outstanding){handle, buffer, x->posted};
  }
}

void transfers_wait(Walk *w, int64_t now) {
  for (int i = 0; i < w->peer.n; i++) {
    Peer *p = &w->peer.at[i];
    for (; p->head < p->newest && p->sent.at[p->head].posted <= now; p->head++)
      wait_handle(w, p->sent.at[p->head].handle, p->sent.at[p->head].buffer);
  }
}

void transfers_end(Walk *w) {
  for (int i = 0; i < w->peer.n; i++) {
    Peer *p = &w->peer.at[i];
    for (; p->head < p->sent.n; p->head++)
      wait_handle(w, p->sent.at[p->head].handle, p->sent.at[p->head].buffer);
  }
}

/* ---- reductions of gradients ---- */

/* Starts the reduction of bucket k if it is complete and is to overlap, or the schedule
 * asks for it here; what is left is reduced after the last action. */
static void reduce(Walk *w, int k) {
  const struct Due *h = &w->bucket[k];
  bool wanted = (h->explicit || w->in->overlap) && !w->l->bucket.at[k].scattered;
  if (h->units > 0 || h->actions > 0 || !wanted || w->t->reduce_handle[k] >= 0) return;
  w->t->reduce_handle[k] = walk_handle(w);
  Event *e = walk_event(w, EV_REDUCE);
  e->bucket = k, e->handle = w->t->reduce_handle[k];
}

/* The bucket of the unit's parameter i, -1 if its gradient is not reduced. */
static int bucket_of(const Walk *w, const CompiledUnit *x, int i) {
  return w->of_bucket[w->l->of[x->param[i]]];
}

/* After the last W of a unit: starts the reductions of buckets that this completes. */
void reductions_finished(Walk *w, int u) {
  const CompiledUnit *x = &w->u->at[u];
  if (--w->w_left[w->local[u]] > 0 || w->l->bucket.n == 0) return;
  int n = x->code->nparam, lo = w->l->bucket.n, hi = -1;
  for (int i = 0; i < n; i++) {
    int k = bucket_of(w, x, i);
    if (k < 0) continue;
    w->bucket[k].units--;
    w->bucket[k].touched = true;
    lo = MIN(lo, k), hi = MAX(hi, k);
  }
  for (int k = lo; k <= hi; k++) {
    if (w->bucket[k].touched) reduce(w, k);
    w->bucket[k].touched = false;
  }
}

/* Warns that the schedule reduces a tied weight before all chunks that use it have
 * written their gradient: it is reduced after the last of them instead. */
static void warn_late(Walk *w, const Bucket *bk, int chunk) {
  if (w->in->late) return;
  w->in->late = true;
  int param = w->l->regions.param[bk->first].param;
  Diag *x = diag_warn(w->in->d, "schedule", "schedule",
                      "rank %d, step %d: REDUCE_GRAD of chunk %d leaves out %s, which "
                      "other chunks of the rank use, too: its gradient is reduced after "
                      "their last W",
                      w->rank, w->action - 1, chunk, w->u->param[param].name);
  if (w->line > 0 && w->s->file) x->file = w->s->file, x->line = w->line;
}

void reductions_of_chunk(Walk *w, int chunk) {
  for (int k = 0; k < w->l->bucket.n; k++) {
    const Bucket *bk = &w->l->bucket.at[k];
    if (!(bk->chunks >> chunk & 1)) continue;
    w->bucket[k].actions--;
    if (w->bucket[k].units > 0) warn_late(w, bk, chunk);
    reduce(w, k);
  }
}

static void count_buckets(Walk *w, int stage) {
  for (int u = w->st->first[stage]; u < w->st->first[stage + 1]; u++) {
    w->w_left[w->local[u]] = w->tr->microbatches;
    const CompiledUnit *x = &w->u->at[u];
    for (int i = 0; i < x->code->nparam && w->l->bucket.n; i++) {
      int k = bucket_of(w, x, i);
      if (k >= 0) w->bucket[k].units++;
    }
  }
}

static void count_reductions(Walk *w) {
  for (int i = 0; i < w->s->n[w->rank]; i++) {
    const Action *a = &w->s->list[w->rank][i];
    for (int k = 0; k < w->l->bucket.n && a->kind == ACT_REDUCE_GRAD; k++)
      if (w->l->bucket.at[k].chunks >> a->chunk & 1)
        w->bucket[k].actions++, w->bucket[k].explicit = true;
  }
}

void reductions_begin(Walk *w, int units) {
  int n = w->l->bucket.n;
  w->w_left = NEW_N(w->a, int, units);
  w->bucket = (void *)arena_alloc(w->a, sizeof *w->bucket * (size_t)(n + 1));
  w->t->reduce_handle = NEW_N(w->a, int, n + 1);
  w->of_bucket = NEW_N(w->a, int, w->l->regions.nparam);
  for (int i = 0; i < w->l->regions.nparam; i++) w->of_bucket[i] = -1;
  for (int k = 0; k < n; k++) {
    w->t->reduce_handle[k] = -1;
    for (int i = 0; i < w->l->bucket.at[k].n; i++)
      w->of_bucket[w->l->bucket.at[k].first + i] = k;
  }
  for (int c = 0; c < w->st->chunks; c++) count_buckets(w, stage_at(w->st, w->rank, c));
  count_reductions(w);
}
