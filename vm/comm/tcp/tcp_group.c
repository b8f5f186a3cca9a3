/* tcp_group.c - collectives over connections.
 *
 * All of them are one exchange in two halves. First, every member sends each other member
 * the part of its input that the other one reduces (`give`) and reduces its own parts in
 * group order. Then it sends finished data (`pass`) to the members that store it
 * (`take`). all_reduce cuts the buffer into one slice per member and uses both halves,
 * reduce_scatter the first, the others the second. A small all_reduce is reduced by every
 * member, in one trip. Input is still read while results are written, so where they share
 * memory a result may only arrive once the slice it overwrites has been sent. */
#include "vm/comm/reduce.h"
#include "tcp_int.h"

typedef struct Span {
  char *p;
  uint64_t n; /* bytes */
} Span;

typedef struct Exchange {
  const CommOp *op;
  uint64_t size, parts; /* bytes of an element; bytes that this member reduces */
  bool everybody;       /* every member reduces the whole buffer */
} Exchange;

/* The slice of member k, in whole elements. */
static Span slice(const Exchange *x, const TcpGroup *g, const void *base, int k) {
  uint64_t n = x->op->count, members = (uint64_t)g->n;
  uint64_t from = n * (uint64_t)k / members, to = n * ((uint64_t)k + 1) / members;
  return (Span){(char *)base + from * x->size, (to - from) * x->size};
}

static Span piece(const Exchange *x, const void *base, int k) {
  uint64_t n = x->op->count * x->size;
  return (Span){(char *)base + n * (uint64_t)k, n};
}

/* The rows in member k's place, as many as `counts` has. */
static Span rows(const Exchange *x, const void *base, const int32_t *counts, int k) {
  return (Span){piece(x, base, k).p, comm_rows(x->op, counts, k) * x->size};
}

static Span give(const Exchange *x, const TcpGroup *g, int k) {
  if (x->everybody) return (Span){(char *)x->op->in, x->op->count * x->size};
  if (x->op->coll == COLL_ALL_REDUCE) return slice(x, g, x->op->in, k);
  if (x->op->coll == COLL_REDUCE_SCATTER) return piece(x, x->op->in, k);
  return (Span){NULL, 0};
}

/* What goes to member k without being reduced there. */
static Span pass(const Exchange *x, const TcpGroup *g, int k) {
  switch (x->op->coll) {
  case COLL_ALL_GATHER: return piece(x, x->op->in, 0);
  case COLL_ALL_TO_ALL: return piece(x, x->op->in, k);
  case COLL_ALL_TO_ALL_V: return rows(x, x->op->in, x->op->give, k);
  case COLL_SHIFT:
    if (k == (g->me + x->op->by) % g->n) return piece(x, x->op->in, 0);
    break;
  case COLL_ALL_REDUCE:
    if (!x->everybody) return slice(x, g, x->op->out, g->me);
  }
  return (Span){NULL, 0};
}

/* Where data from member k is stored. */
static Span take(const Exchange *x, const TcpGroup *g, int k) {
  switch (x->op->coll) {
  case COLL_ALL_GATHER:
  case COLL_ALL_TO_ALL: return piece(x, x->op->out, k);
  case COLL_ALL_TO_ALL_V: return rows(x, x->op->out, x->op->take, k);
  case COLL_SHIFT:
    if (g->me == (k + x->op->by) % g->n) return piece(x, x->op->out, 0);
    break;
  case COLL_ALL_REDUCE:
    if (!x->everybody) return slice(x, g, x->op->out, k);
  }
  return (Span){NULL, 0};
}

/* Where this member stores its sums. */
static Span sums(const Exchange *x, const TcpGroup *g) {
  if (x->op->coll == COLL_REDUCE_SCATTER || x->everybody)
    return (Span){x->op->out, x->op->count * x->size};
  if (x->op->coll == COLL_ALL_REDUCE) return slice(x, g, x->op->out, g->me);
  return (Span){NULL, 0};
}

static Exchange exchange_of(const TcpGroup *g, const CommOp *op) {
  Exchange x = {.op = op, .size = (uint64_t)dtype_size((DType)op->dtype)};
  x.everybody = op->coll == COLL_ALL_REDUCE && op->count * x.size <= TCP_SMALL;
  x.parts = sums(&x, g).n;
  return x;
}

/* ---- sending, receiving, reducing ---- */

/* Sends parts to be reduced first, then as much of the results as is ready. */
static bool push(const Exchange *x, TcpGroup *g, int k, bool *waits) {
  TcpPeer *p = &g->peer[k];
  Span to = give(x, g, k), own = pass(x, g, k);
  for (;;) {
    uint64_t ready = own.n && x->parts ? g->reduced : own.n;
    bool first = p->sent < to.n;
    uint64_t at = first ? p->sent : p->sent - to.n, end = first ? to.n : ready;
    if (at >= end) return true;
    int64_t n = tcp_push(p->fd, (first ? to.p : own.p) + at, end - at);
    if (n < 0) return false;
    if (n == 0) return *waits = true;
    p->sent += (uint64_t)n;
  }
}

/* Receives parts to be reduced first, within the staging buffer, then results. */
static bool pull(const Exchange *x, TcpGroup *g, int k, bool *waits) {
  TcpPeer *p = &g->peer[k];
  Span from = take(x, g, k);
  for (;;) {
    bool first = p->got < x->parts;
    uint64_t end = first ? MIN(g->reduced + TCP_STAGE, x->parts) : x->parts + from.n;
    if (p->got >= end) return true;
    char *to = first ? g->stage + (size_t)k * TCP_STAGE + (p->got - g->reduced)
                     : from.p + (p->got - x->parts);
    int64_t n = tcp_pull(p->fd, to, end - p->got);
    if (n < 0) return false;
    if (n == 0) return *waits = true;
    p->got += (uint64_t)n;
  }
}

static const char *given_by(const Exchange *x, const TcpGroup *g, int k, uint64_t at) {
  if (k != g->me) return g->stage + (size_t)k * TCP_STAGE;
  return give(x, g, g->me).p + at;
}

/* Reduces a staging buffer once all members have filled it. If every member reduces the
 * whole, sums overwrite the input, so that has to be sent first. */
static bool add_up(const Exchange *x, TcpGroup *g) {
  uint64_t end = MIN(g->reduced + TCP_STAGE, x->parts), bytes = end - g->reduced;
  if (bytes == 0) return false;
  for (int k = 0; k < g->n; k++) {
    if (k == g->me) continue;
    if (g->peer[k].got < end) return false;
    if (x->everybody && g->peer[k].sent < give(x, g, k).n) return false;
  }
  DType t = (DType)x->op->dtype;
  ReduceAcc acc;
  char *to = sums(x, g).p + g->reduced;
  for (uint64_t at = 0, n; at < bytes; at += n * x->size) {
    n = MIN((bytes - at) / x->size, (uint64_t)REDUCE_BLOCK);
    reduce_load(t, &acc, given_by(x, g, 0, g->reduced) + at, n);
    for (int k = 1; k < g->n; k++)
      reduce_add(t, (RedOp)x->op->red, &acc, given_by(x, g, k, g->reduced) + at, n);
    reduce_store(t, to + at, &acc, n);
  }
  g->reduced = end;
  return true;
}

static bool complete(const Exchange *x, const TcpGroup *g) {
  if (g->reduced < x->parts) return false;
  for (int k = 0; k < g->n; k++) {
    const TcpPeer *p = &g->peer[k];
    if (k == g->me) continue;
    if (p->sent < give(x, g, k).n + pass(x, g, k).n) return false;
    if (p->got < x->parts + take(x, g, k).n) return false;
  }
  return true;
}

/* Copies what a member passes to itself, once. An all_reduce has it in place already. */
static void keep(const Exchange *x, TcpGroup *g) {
  Span from = pass(x, g, g->me), to = take(x, g, g->me);
  if (g->peer[g->me].sent) return;
  if (to.n && to.p != from.p) memcpy(to.p, from.p, to.n);
  g->peer[g->me].sent = 1; /* marks the copy as done */
}

static bool move_head(TcpEndpoint *p, TcpGroup *g, bool *done, int *lost) {
  Exchange x = exchange_of(g, &p->handle[g->queue.head].op);
  keep(&x, g);
  do {
    for (int k = 0; k < g->n; k++) {
      bool full = false, empty = false;
      if (k == g->me) continue;
      *lost = g->rank[k];
      if (!push(&x, g, k, &full) || !pull(&x, g, k, &empty)) return false;
      short events = (short)((full ? POLLOUT : 0) | (empty ? POLLIN : 0));
      if (events) tcp_look_at(p, g->peer[k].fd, events);
    }
  } while (add_up(&x, g));
  *done = complete(&x, g);
  return true;
}

bool tcp_group_move(TcpEndpoint *p, TcpGroup *g, int *lost) {
  bool done = true;
  while (g->queue.head >= 0 && done) {
    if (!move_head(p, g, &done, lost)) return false;
    if (!done) break;
    for (int k = 0; k < g->n; k++) g->peer[k].sent = g->peer[k].got = 0;
    g->reduced = 0;
    tcp_next(p, &g->queue);
  }
  return true;
}
