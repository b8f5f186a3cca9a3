/* tcp.c - the TCP backend: its world and its host messages. */
#include <errno.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "vm/comm/supervisor/rendezvous.h"
#include "tcp_int.h"

/* ---- nonblocking send and receive ---- */

static int64_t moved(ssize_t n) {
  if (n >= 0) return n;
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? 0 : -1;
}

int64_t tcp_push(int fd, const void *p, uint64_t n) {
  return moved(send(fd, p, n, MSG_NOSIGNAL));
}

int64_t tcp_pull(int fd, void *p, uint64_t n) {
  ssize_t got = recv(fd, p, n, 0);
  return got == 0 ? -1 : moved(got);
}

/* ---- ending the world ---- */

bool tcp_ended(TcpWorld *w) { return atomic_load(&w->ended); }

void tcp_end(TcpWorld *w, int rank, weft_status code, const char *why) {
  uint64_t one = 1;
  pthread_mutex_lock(&w->lock);
  if (!atomic_load(&w->ended)) {
    w->code = code == WEFT_OK ? WEFT_ERUN : code;
    w->culprit = rank;
    snprintf(w->why, sizeof w->why, "%s", why);
    atomic_store(&w->ended, true);
    if (write(w->bell, &one, sizeof one) < 0) assert(!"an eventfd takes a one");
  }
  pthread_mutex_unlock(&w->lock);
}

weft_status tcp_why(TcpWorld *w, weft_error *e) {
  pthread_mutex_lock(&w->lock);
  bool first = e && e->code == WEFT_OK;
  err_set(e, w->code, "%s", w->why);
  if (first) e->rank = w->culprit;
  pthread_mutex_unlock(&w->lock);
  return w->code;
}

weft_status tcp_link(World *world, int peer, uint32_t tag, int *fd, weft_error *e) {
  TcpWorld *w = world->ctx;
  weft_error why = NO_ERROR;
  w->net.watched = world->watched;
  if (net_link(&w->net, peer, tag, fd, &why) == WEFT_OK) return WEFT_OK;
  tcp_end(w, why.code == WEFT_EINTR ? w->net.rank : peer, why.code, why.text);
  return tcp_why(w, e);
}

/* ---- host messages ---- a failure ends the world; `poll` then reports why */

/* Timeout in seconds of a host message until the supervisor watches the run. */
enum { UNWATCHED_S = 120 };

static weft_status raw_link(World *world, int peer, int *fd, weft_error *e) {
  TcpWorld *w = world->ctx;
  if (tcp_ended(w)) return tcp_why(w, e);
  if (w->raw[peer] < 0) TRY(tcp_link(world, peer, NET_RAW, &w->raw[peer], e));
  *fd = w->raw[peer];
  return WEFT_OK;
}

static weft_status raw_lost(TcpWorld *w, int peer, weft_error *e) {
  char why[128];
  snprintf(why, sizeof why, "rank %d has closed its connection: its process has ended",
           peer);
  tcp_end(w, peer, WEFT_ERUN, why);
  return tcp_why(w, e);
}

static weft_status raw_late(TcpWorld *w, int peer, weft_error *e) {
  char why[128];
  snprintf(why, sizeof why,
           "rank %d has not answered for %d s: its process is suspended, or its machine "
           "is down",
           peer, UNWATCHED_S);
  tcp_end(w, peer, WEFT_ERUN, why);
  return tcp_why(w, e);
}

/* Waits until the connection is ready or the world has ended; an interrupted start ends
 * it, too. */
static weft_status raw_wait(const World *world, int peer, short events, weft_error *e) {
  TcpWorld *w = world->ctx;
  struct pollfd p[2] = {{.fd = w->raw[peer], .events = events},
                        {.fd = w->bell, .events = POLLIN}};
  Until u = until_or(world->watched ? 1e6 : UNWATCHED_S, w->net.stop);
  while (poll(p, 2, until_ms(u)) == 0 && !until_stopped(u))
    if (now_s() >= u.deadline) return raw_late(w, peer, e);
  if (until_stopped(u)) tcp_end(w, w->net.rank, WEFT_EINTR, "interrupted");
  return tcp_ended(w) ? tcp_why(w, e) : WEFT_OK;
}

static weft_status send_raw(World *world, const void *p, size_t n, int peer,
                            weft_error *e) {
  TcpWorld *w = world->ctx;
  int fd = -1;
  TRY(raw_link(world, peer, &fd, e));
  for (size_t at = 0; at < n;) {
    int64_t some = tcp_push(fd, (const char *)p + at, n - at);
    if (some < 0) return raw_lost(w, peer, e);
    if (some == 0) TRY(raw_wait(world, peer, POLLOUT, e));
    at += (size_t)some;
  }
  return WEFT_OK;
}

static weft_status recv_raw(World *world, void *p, size_t n, int peer, weft_error *e) {
  TcpWorld *w = world->ctx;
  int fd = -1;
  TRY(raw_link(world, peer, &fd, e));
  for (size_t at = 0; at < n;) {
    int64_t some = tcp_pull(fd, (char *)p + at, n - at);
    if (some < 0) return raw_lost(w, peer, e);
    if (some == 0) TRY(raw_wait(world, peer, POLLIN, e));
    at += (size_t)some;
  }
  return WEFT_OK;
}

static weft_status bcast(World *world, void *p, size_t n, int root, weft_error *e) {
  if (world->rank != root) return recv_raw(world, p, n, root, e);
  for (int i = 0; i < world->size; i++)
    if (i != root) TRY(send_raw(world, p, n, i, e));
  return WEFT_OK;
}

static weft_status barrier(World *world, weft_error *e) {
  char here = 1;
  if (world->rank != 0) TRY(send_raw(world, &here, 1, 0, e));
  for (int i = 1; world->rank == 0 && i < world->size; i++)
    TRY(recv_raw(world, &here, 1, i, e));
  return bcast(world, &here, 1, 0, e);
}

/* ---- the world ---- */

static weft_status poll_world(World *world, weft_error *e) {
  TcpWorld *w = world->ctx;
  return tcp_ended(w) ? tcp_why(w, e) : WEFT_OK;
}

static void abort_world(World *world, int rank, weft_status code, int exit_code,
                        const char *why) {
  tcp_end(world->ctx, rank, code, why);
}

static void free_world(TcpWorld *w, int size) {
  for (int i = 0; w->raw && i < size; i++)
    if (w->raw[i] >= 0) close(w->raw[i]);
  mem_free(w->alloc, w->raw, (size_t)size * sizeof *w->raw);
  if (w->bell >= 0) close(w->bell);
  net_close(&w->net);
  pthread_mutex_destroy(&w->lock);
  mem_free(w->alloc, w, sizeof *w);
}

static void close_world(World *world) { free_world(world->ctx, world->size); }

/* Processes of this machine: those with the same address, as rank 0 sees it. */
static void find_node(const Net *n, World *w) {
  w->node = w->place = 0;
  for (int i = 0; i < n->size; i++) {
    bool here = strcmp(n->peer[i].host, n->peer[n->rank].host) == 0;
    if (here && !w->node) w->first = i;
    w->node += here;
    w->place += here && i < n->rank;
  }
}

static weft_status start_world(World *world, weft_error *e) {
  const Rendezvous *m = world->options ? world->options->meet : NULL;
  if (!m || !m->addr || !m->port || !m->secret)
    return err_set(e, WEFT_EUSAGE, "the tcp backend has no rendezvous address");
  TcpWorld *w = mem_new(world->alloc, sizeof *w);
  if (!w) return err_set(e, WEFT_ENOMEM, "no memory for the tcp backend");
  w->alloc = world->alloc;
  pthread_mutex_init(&w->lock, NULL);
  w->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  w->raw = mem_new(w->alloc, (size_t)m->size * sizeof *w->raw);
  for (int i = 0; w->raw && i < m->size; i++) w->raw[i] = -1;
  weft_status st = WEFT_OK;
  if (w->bell < 0 || !w->raw)
    st = err_set(e, WEFT_ENOMEM, "no memory for the tcp backend");
  if (st == WEFT_OK) st = rendezvous(m, w->alloc, &w->net, e);
  if (st != WEFT_OK) {
    free_world(w, m->size);
    return st;
  }
  world->rank = m->rank;
  world->size = m->size;
  world->here = 1;
  find_node(&w->net, world);
  world->ctx = w;
  w->net.ended = &w->ended;
  world->net = &w->net;
  return WEFT_OK;
}

const WorldVtable world_tcp = {
    .name = "tcp",
    .version = WORLD_VERSION,
    .start = start_world,
    .join = tcp_join,
    .barrier = barrier,
    .bcast = bcast,
    .send = send_raw,
    .recv = recv_raw,
    .poll = poll_world,
    .abort = abort_world,
    .close = close_world,
};
