/* tcp_join.c - the endpoint of the TCP backend: its connections, start and wait. */
#include <stdio.h>
#include <unistd.h>

#include "tcp_int.h"

/* ---- queues ---- */

static void append(TcpEndpoint *p, TcpQueue *q, int handle) {
  p->handle[handle].next = -1;
  if (q->head < 0)
    q->head = handle;
  else
    p->handle[q->tail].next = handle;
  q->tail = handle;
}

void tcp_next(TcpEndpoint *p, TcpQueue *q) {
  TcpHandle *h = &p->handle[q->head];
  h->done = true;
  q->head = h->next;
}

void tcp_look_at(TcpEndpoint *p, int fd, short events) {
  for (int i = 0; i < p->npoll; i++)
    if (p->poll[i].fd == fd) {
      p->poll[i].events |= events;
      return;
    }
  p->poll[p->npoll++] = (struct pollfd){.fd = fd, .events = events};
}

/* ---- start and wait ---- */

static weft_status lost(TcpEndpoint *p, int rank, weft_error *e) {
  char why[128];
  snprintf(why, sizeof why, "rank %d has closed its connection: its process has ended",
           rank);
  tcp_end(p->w, rank, WEFT_ERUN, why);
  return tcp_why(p->w, e);
}

static weft_status move_all(TcpEndpoint *p, weft_error *e) {
  int who = -1;
  bool ok = true;
  p->npoll = 1; /* the eventfd `bell` */
  for (int i = 0; i < p->ngroup && ok; i++)
    if (p->group[i].queue.head >= 0) ok = tcp_group_move(p, &p->group[i], &who);
  for (int i = 0; i < p->npair && ok; i++) ok = tcp_pair_move(p, &p->pair[i], &who);
  return ok ? WEFT_OK : lost(p, who, e);
}

static TcpPair *pair_of(TcpEndpoint *p, int rank) {
  for (int i = 0; i < p->npair; i++)
    if (p->pair[i].rank == rank) return &p->pair[i];
  return NULL;
}

static weft_status start_pair(TcpEndpoint *p, const CommOp *op, int handle,
                              weft_error *e) {
  TcpPair *q = pair_of(p, op->peer);
  int who;
  if (!q)
    return err_set(e, WEFT_EINTERNAL, "rank %d has no connection to rank %d",
                   p->w->net.rank, op->peer);
  append(p, op->coll == COLL_SEND ? &q->out : &q->in, handle);
  p->npoll = 1;
  return tcp_pair_move(p, q, &who) ? WEFT_OK : lost(p, who, e);
}

static weft_status start_group(TcpEndpoint *p, const CommOp *op, int handle,
                               weft_error *e) {
  assert(op->group >= 0 && op->group < p->ngroup);
  TcpGroup *g = &p->group[op->group];
  int who;
  assert(g->n > 0 && "the rank is a member");
  if (g->n == 1) {
    size_t n = comm_alone(op) * (size_t)dtype_size((DType)op->dtype);
    if (n && op->in != op->out) memcpy(op->out, op->in, n);
    p->handle[handle].done = true;
    return WEFT_OK;
  }
  append(p, &g->queue, handle);
  p->npoll = 1;
  return tcp_group_move(p, g, &who) ? WEFT_OK : lost(p, who, e);
}

static weft_status start(Comm *c, const CommOp *op, int handle, DeviceEvent ready,
                         weft_error *e) {
  TcpEndpoint *p = c->ctx;
  assert(handle < p->nhandle);
  if (tcp_ended(p->w)) return tcp_why(p->w, e);
  p->handle[handle] = (TcpHandle){.op = *op, .next = -1};
  bool pair = op->coll == COLL_SEND || op->coll == COLL_RECV;
  return pair ? start_pair(p, op, handle, e) : start_group(p, op, handle, e);
}

static weft_status wait(Comm *c, int handle, weft_error *e) {
  TcpEndpoint *p = c->ctx;
  assert(handle < p->nhandle);
  for (;;) {
    if (tcp_ended(p->w)) return tcp_why(p->w, e);
    TRY(move_all(p, e));
    if (p->handle[handle].done) return WEFT_OK;
    poll(p->poll, (nfds_t)p->npoll, -1);
  }
}

static void leave(Comm *c) {
  TcpEndpoint *p = c->ctx;
  for (int i = 0; i < p->ngroup; i++)
    for (int k = 0; p->group[i].peer && k < p->group[i].n; k++)
      if (p->group[i].peer[k].fd >= 0) close(p->group[i].peer[k].fd);
  for (int i = 0; i < p->npair; i++)
    if (p->pair[i].fd >= 0) close(p->pair[i].fd);
  mem_free(p->w->alloc, p, p->block);
}

static const CommVtable tcp_comm = {
    .name = "tcp",
    .version = 1,
    .start = start,
    .wait = wait,
    .close = leave,
};

/* ---- joining ---- */

static size_t even(size_t n) { return (n + 63) & ~(size_t)63; }

/* Lays out the endpoint in one block; `p` NULL only counts bytes. */
static size_t lay_out(TcpEndpoint *p, const CommNeeds *needs) {
  char *at = (char *)p;
  size_t n = even(sizeof *p);
#define TAKE(member, count)                                                              \
  do {                                                                                   \
    if (p) p->member = (void *)(at + n);                                                 \
    n += even((count) * sizeof *p->member);                                              \
  } while (0)
  size_t fds = (size_t)needs->npeer + 1;
  TAKE(group, (size_t)needs->ngroup);
  TAKE(pair, (size_t)needs->npeer + 1);
  TAKE(handle, (size_t)needs->nhandle);
  for (int i = 0; i < needs->ngroup; i++) {
    size_t members = (size_t)needs->group[i].n;
    int *rank = (int *)(at + n + even(members * sizeof(TcpPeer)));
    fds += members;
    if (p) {
      p->group[i].peer = (TcpPeer *)(at + n);
      p->group[i].rank = memcpy(rank, needs->group[i].rank, members * sizeof *rank);
    }
    n += even(members * sizeof(TcpPeer)) + even(members * sizeof *rank);
    if (p) p->group[i].stage = at + n;
    if (members > 1) n += members * TCP_STAGE;
  }
  TAKE(poll, fds);
#undef TAKE
  return n;
}

static void fill(TcpEndpoint *p, const CommNeeds *needs) {
  p->ngroup = needs->ngroup;
  p->npair = needs->npeer + 1; /* the last one is the rank's pair with itself */
  p->nhandle = needs->nhandle;
  for (int i = 0; i < p->ngroup; i++) {
    TcpGroup *g = &p->group[i];
    g->n = needs->group[i].n;
    g->queue.head = -1;
    for (int k = 0; k < g->n; k++) {
      g->peer[k].fd = -1;
      if (g->rank[k] == p->w->net.rank) g->me = k;
    }
  }
  for (int i = 0; i < p->npair; i++) {
    TcpPair *q = &p->pair[i];
    q->rank = i < needs->npeer ? needs->peer[i] : p->w->net.rank;
    q->fd = q->out.head = q->in.head = -1;
  }
  p->poll[0] = (struct pollfd){.fd = p->w->bell, .events = POLLIN};
}

/* Connecting needs no pending accept, and accepting waits for higher ranks only: no order
 * of links can block. */
static weft_status connect_all(TcpEndpoint *p, World *world, weft_error *e) {
  for (int i = 0; i < p->ngroup; i++) {
    TcpGroup *g = &p->group[i];
    for (int k = 0; k < g->n; k++)
      if (k != g->me)
        TRY(tcp_link(world, g->rank[k], NET_GROUP + (uint32_t)i, &g->peer[k].fd, e));
  }
  for (int i = 0; i < p->npair - 1; i++)
    TRY(tcp_link(world, p->pair[i].rank, NET_PAIR, &p->pair[i].fd, e));
  return WEFT_OK;
}

weft_status tcp_join(World *world, int rank, Device *d, const CommNeeds *needs, Comm *c,
                     weft_error *e) {
  TcpWorld *w = world->ctx;
  size_t block = lay_out(NULL, needs);
  TcpEndpoint *p = mem_new(w->alloc, block);
  if (!p)
    return err_set(e, WEFT_ENOMEM, "no memory for the connections of rank %d", rank);
  p->w = w;
  p->block = block;
  lay_out(p, needs);
  fill(p, needs);
  *c = (Comm){.vt = &tcp_comm, .rank = rank, .size = world->size, .ctx = p};
  weft_status st = connect_all(p, world, e);
  if (st != WEFT_OK) leave(c);
  return st;
}
