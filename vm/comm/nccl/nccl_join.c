/* nccl_join.c - creates the communicators of a rank in an order that cannot deadlock.
 *
 * Groups come first, in an order that is equal on all ranks; then pairs, ordered by their
 * two ranks. So of all communicators that some rank waits for, the members of the first
 * one are all in it or on their way. */
#include <sched.h>
#include <stdio.h>

#include "nccl_int.h"

/* ---- lines ---- */

weft_status nccl_queue(NcclEndpoint *p, NcclLine *l, weft_error *e) {
  int lowest = 0, highest = 0;
  CUDA(p, cudaDeviceGetStreamPriorityRange(&lowest, &highest));
  CUDA(p, cudaStreamCreateWithPriority(&l->queue, cudaStreamNonBlocking, highest));
  return WEFT_OK;
}

/* All before the first communicator: NCCL makes two streams for each, in which it waits
 * for its operations, and streams that come later may share connections with others. */
static weft_status make_queues(NcclEndpoint *p, const CommNeeds *needs, weft_error *e) {
  if (nccl_copies_alone(p, needs)) TRY(nccl_queue(p, p->self, e));
  for (int i = 0; i < needs->ngroup; i++) {
    NcclLine *l = &p->line[i];
    l->n = needs->group[i].n;
    l->queue = p->self->queue;
    if (l->n > 1) TRY(nccl_queue(p, l, e));
  }
  for (int i = 0; i < 2 * p->npeer; i++) {
    NcclLine *l = &p->line[p->ngroup + i];
    if (p->peer[i / 2] == p->rank) continue;
    l->n = 2;
    TRY(nccl_queue(p, l, e));
  }
  return WEFT_OK;
}

/* What the first member of a communicator tells the others. */
typedef struct Invitation {
  ncclUniqueId id;
  int32_t window; /* the arena becomes a symmetric window of all of them */
  int32_t alone;  /* arenas lie in memory of other kinds: none is registered */
} Invitation;

/* Of the first member: compares the arenas of all. */
static weft_status compare_arenas(NcclEndpoint *p, const int *member, int n,
                                  const ArenaFacts *mine, Invitation *out,
                                  weft_error *e) {
  World *under = p->w->world->under;
  out->window = nccl_arenas_alike(mine, mine);
  for (int i = 1; i < n; i++) {
    ArenaFacts other = {0};
    TRY(under->vt->recv(under, &other, sizeof other, member[i], e));
    out->window &= nccl_arenas_alike(mine, &other);
    out->alone |= other.nccl_memory != mine->nccl_memory;
  }
  return WEFT_OK;
}

/* Over the world below: each member tells the first one of its arena, which then makes
 * the unique id and sends it to all with what comes of the arenas. */
static weft_status agree(NcclEndpoint *p, const int *member, int n,
                         const ArenaFacts *mine, Invitation *out, weft_error *e) {
  World *under = p->w->world->under;
  *out = (Invitation){0};
  if (p->rank != member[0]) {
    TRY(under->vt->send(under, mine, sizeof *mine, member[0], e));
    return under->vt->recv(under, out, sizeof *out, member[0], e);
  }
  TRY(compare_arenas(p, member, n, mine, out, e));
  ncclResult_t r = ncclGetUniqueId(&out->id);
  if (r != ncclSuccess)
    return err_set(e, WEFT_ERUN, "rank %d: ncclGetUniqueId failed: %s", p->rank,
                   ncclGetErrorString(r));
  for (int i = 1; i < n; i++) TRY(under->vt->send(under, out, sizeof *out, member[i], e));
  return WEFT_OK;
}

/* Connects the members, and registers their arenas. */
static weft_status connect(NcclEndpoint *p, NcclLine *l, const int *member, int n,
                           int ctas, const CommNeeds *needs, const ArenaFacts *arena,
                           weft_error *e) {
  Invitation all;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  NcclWorld *w = p->w;
  config.blocking = 0;
  config.minCTAs = 1;
  config.maxCTAs = ctas;
  TRY(agree(p, member, n, arena, &all, e));
  pthread_mutex_lock(&w->lock);
  weft_status st = WEFT_OK;
  if (atomic_load(&w->ended))
    st = nccl_why(w, e);
  else
    st = nccl_settle(p, l, ncclCommInitRankConfig(&l->comm, n, all.id, l->me, &config),
                     "a communicator", e);
  pthread_mutex_unlock(&w->lock);
  l->alone = all.alone;
  return st == WEFT_OK ? nccl_register(p, l, needs, all.window, e) : st;
}

/* ---- the first operation of a line ---- */

/* Whether the world and the line's communicator are sound. */
static weft_status sound(NcclEndpoint *p, const NcclLine *l, weft_error *e) {
  ncclResult_t r = ncclSuccess, state = ncclSuccess;
  pthread_mutex_lock(&p->w->lock);
  weft_status st = atomic_load(&p->w->ended) ? nccl_why(p->w, e) : WEFT_OK;
  if (st == WEFT_OK && l->comm) r = ncclCommGetAsyncError(l->comm, &state);
  pthread_mutex_unlock(&p->w->lock);
  if (r == ncclSuccess) r = state;
  bool fine = r == ncclSuccess || r == ncclInProgress;
  return st != WEFT_OK || fine ? st : nccl_failed(l, r, "the first transfer", e);
}

/* Waits until the line's stream is idle, like for a call of NCCL. */
static weft_status until_idle(NcclEndpoint *p, const NcclLine *l, weft_error *e) {
  double until = now_s() + p->w->seconds;
  cudaError_t r;
  while ((r = cudaStreamQuery(l->queue)) == cudaErrorNotReady) {
    TRY(sound(p, l, e));
    if (now_s() > until)
      return err_set(e, WEFT_ERUN,
                     "NCCL: the first transfer over %s was not done within %.0f s",
                     l->name, p->w->seconds);
    sched_yield();
  }
  return r == cudaSuccess ? WEFT_OK : nccl_cuda_failed(p, r, "the first transfer", e);
}

/* NCCL connects two ranks at the first bytes between them, and the rank that comes first
 * waits. A first transfer here, at join, keeps that out of the steps. */
static weft_status warm_up(NcclEndpoint *p, const CommNeeds *needs, int at,
                           weft_error *e) {
  NcclLine *l = &p->line[at];
  Comm c = {.ctx = p};
  CommOp op = {.coll = COLL_SHIFT, .dtype = DT_I32, .by = 1, .count = 1, .group = -1};
  void *page = NULL;
  if (at >= p->ngroup) {
    op.coll = (at - p->ngroup) % 2 ? COLL_RECV : COLL_SEND;
    op.peer = p->peer[(at - p->ngroup) / 2];
  } else {
    unsigned uses = needs->group[at].uses;
    unsigned exchanges = uses & (1u << COLL_ALL_TO_ALL | 1u << COLL_ALL_TO_ALL_V);
    if (!exchanges && !(uses & 1u << COLL_SHIFT)) return WEFT_OK;
    if (exchanges) op.coll = COLL_ALL_TO_ALL;
    op.group = at;
  }
  size_t half = (size_t)l->n * sizeof(int32_t);
  CUDA(p, cudaMalloc(&page, 2 * half));
  op.in = page;
  op.out = (char *)page + half;
  weft_status st = nccl_start(&c, &op, 0, (DeviceEvent){0}, e);
  if (st == WEFT_OK) st = until_idle(p, l, e);
  /* A free waits for all that the GPU does, also for a transfer that never ends: then the
   * page stays. */
  if (st == WEFT_OK) (void)cudaFree(page);
  return st;
}

/* ---- all of them ---- */

static weft_status make_groups(NcclEndpoint *p, const CommNeeds *needs, int ctas,
                               weft_error *e) {
  for (int i = 0; i < needs->ngroup; i++) {
    const CommGroup *g = &needs->group[i];
    NcclLine *l = &p->line[i];
    for (int k = 0; k < g->n; k++)
      if (g->rank[k] == p->rank) l->me = k;
    snprintf(l->name, sizeof l->name, "%s", g->name ? g->name : "?");
    if (g->n < 2) continue;
    ArenaFacts arena = nccl_arena_facts(p, needs, g);
    TRY(connect(p, l, g->rank, g->n, ctas, needs, &arena, e));
    TRY(warm_up(p, needs, i, e));
  }
  return WEFT_OK;
}

static weft_status make_pair(NcclEndpoint *p, int peer_at, bool comes,
                             const CommNeeds *needs, int ctas, weft_error *e) {
  int peer = p->peer[peer_at];
  int member[2] = {comes ? peer : p->rank, comes ? p->rank : peer};
  NcclLine *l = &p->line[p->ngroup + 2 * peer_at + comes];
  l->me = comes;
  snprintf(l->name, sizeof l->name, "rank %d to rank %d", member[0], member[1]);
  ArenaFacts arena = nccl_arena_facts(p, needs, NULL);
  TRY(connect(p, l, member, 2, ctas, needs, &arena, e));
  return warm_up(p, needs, p->ngroup + 2 * peer_at + comes, e);
}

static bool comes_before(const NcclEndpoint *p, int a, int b) {
  int low_a = MIN(p->peer[a], p->rank), low_b = MIN(p->peer[b], p->rank);
  if (low_a != low_b) return low_a < low_b;
  return MAX(p->peer[a], p->rank) < MAX(p->peer[b], p->rank);
}

/* The peer at position k in the order of pairs. */
static int kth(const NcclEndpoint *p, int k) {
  for (int i = 0; i < p->npeer; i++) {
    int before = 0;
    for (int j = 0; j < p->npeer; j++) before += j != i && comes_before(p, j, i);
    if (before == k) return i;
  }
  assert(!"every peer is there once");
  return 0;
}

/* For each pair first the line from the lower to the higher rank. */
static weft_status make_pairs(NcclEndpoint *p, const CommNeeds *needs, int ctas,
                              weft_error *e) {
  for (int k = 0; k < p->npeer; k++) {
    int i = kth(p, k);
    if (p->peer[i] == p->rank) continue;
    bool first = p->peer[i] < p->rank;
    TRY(make_pair(p, i, first, needs, ctas, e));
    TRY(make_pair(p, i, !first, needs, ctas, e));
  }
  return WEFT_OK;
}

/* ---- joining and leaving ---- */

static size_t even(size_t n) { return (n + 63) & ~(size_t)63; }

/* Lays out the endpoint in one block; `p` NULL only counts bytes. */
static size_t lay_out(NcclEndpoint *p, const CommNeeds *needs) {
  size_t n = even(sizeof *p);
#define TAKE(member, count)                                                              \
  do {                                                                                   \
    if (p) p->member = (void *)((char *)p + n);                                          \
    n += even((size_t)(count) * sizeof *p->member);                                      \
  } while (0)
  TAKE(line, needs->ngroup + 2 * needs->npeer + 1);
  TAKE(peer, needs->npeer);
  TAKE(handle, needs->nhandle);
#undef TAKE
  return n;
}

static weft_status make_events(NcclEndpoint *p, weft_error *e) {
  CUDA(p, cudaHostAlloc((void **)&p->at, (size_t)p->nline * sizeof *p->at,
                        cudaHostAllocPortable));
  CUDA(p, cudaMalloc((void **)&p->nth, (size_t)p->nline * sizeof *p->nth));
  for (int i = 0; i < p->nline; i++) {
    p->line[i].at = &p->at[i];
    p->line[i].nth = &p->nth[i];
    atomic_store(&p->at[i], 0);
    p->d->vt->upload(p->d, p->line[i].nth, &(uint64_t){0}, sizeof *p->nth);
  }
  TRY(p->d->vt->sync(p->d, e));
  for (; p->ends < p->nhandle; p->ends++)
    CUDA(p, cudaEventCreateWithFlags(&p->handle[p->ends].end, cudaEventDisableTiming));
  return WEFT_OK;
}

static weft_status join_all(NcclEndpoint *p, const CommNeeds *needs, bool *crowded,
                            weft_error *e) {
  NcclCtas ctas = {0};
  if (p->npeer) memcpy(p->peer, needs->peer, (size_t)p->npeer * sizeof *p->peer);
  TRY(nccl_check_queues(p, needs, crowded, e));
  TRY(nccl_share_ctas(p, needs, &ctas, e));
  TRY(make_events(p, e));
  p->self->n = 1;
  TRY(make_queues(p, needs, e));
  TRY(make_groups(p, needs, ctas.group, e));
  return make_pairs(p, needs, ctas.pair, e);
}

/* Ends what the communicator has to do; false if that fails. */
static bool finishes(NcclEndpoint *p, NcclLine *l) {
  weft_error ignored = NO_ERROR;
  if (p->failed) return false;
  if (!nccl_deregister(p, l)) return false;
  ncclResult_t r = ncclCommFinalize(l->comm);
  return nccl_settle(p, l, r, "the end", &ignored) == WEFT_OK;
}

/* After a failure of a run the abort has destroyed all communicators. */
static void close_line(NcclEndpoint *p, NcclLine *l) {
  if (!l->comm) return;
  if (finishes(p, l))
    (void)ncclCommDestroy(l->comm);
  else if (l->comm)
    (void)ncclCommAbort(l->comm);
  l->comm = NULL;
}

static void leave(Comm *c) {
  NcclEndpoint *p = c->ctx;
  NcclWorld *w = p->w;
  pthread_mutex_lock(&w->lock);
  w->joined = NULL;
  for (int i = 0; i < p->nline; i++) close_line(p, &p->line[i]);
  pthread_mutex_unlock(&w->lock);
  for (int i = 0; i < p->nline; i++)
    if (p->line[i].n > 1 && p->line[i].queue) (void)cudaStreamDestroy(p->line[i].queue);
  if (p->self->queue) (void)cudaStreamDestroy(p->self->queue);
  for (int i = 0; i < p->ends; i++) (void)cudaEventDestroy(p->handle[i].end);
  if (p->nth) (void)cudaFree(p->nth);
  if (p->at) (void)cudaFreeHost((void *)p->at);
  mem_free(w->alloc, p, p->block);
}

static const CommVtable nccl_comm = {
    .name = "nccl",
    .version = 1,
    .start = nccl_start,
    .wait = nccl_wait,
    .inside = nccl_inside,
    .drop = nccl_drop,
    .close = leave,
};

weft_status nccl_join(World *world, int rank, Device *d, const CommNeeds *needs, Comm *c,
                      weft_error *e) {
  NcclWorld *w = world->ctx;
  size_t block = lay_out(NULL, needs);
  NcclEndpoint *p = mem_new(w->alloc, block);
  if (!p)
    return err_set(e, WEFT_ENOMEM, "no memory for the communicators of rank %d", rank);
  *p = (NcclEndpoint){.w = w,
                      .d = d,
                      .rank = rank,
                      .block = block,
                      .ngroup = needs->ngroup,
                      .npeer = needs->npeer,
                      .nhandle = needs->nhandle,
                      .nline = needs->ngroup + 2 * needs->npeer + 1,
                      .out = -1,
                      .in = -1};
  lay_out(p, needs);
  p->self = &p->line[p->nline - 1];
  *c = (Comm){.vt = &nccl_comm, .rank = rank, .size = world->size, .ctx = p};
  pthread_mutex_lock(&w->lock);
  w->joined = p;
  pthread_mutex_unlock(&w->lock);
  weft_status st = join_all(p, needs, &c->crowded, e);
  nccl_tell_arena(p, needs, c->arena, sizeof c->arena);
  p->failed = st != WEFT_OK;
  if (p->failed) leave(c);
  return st;
}
