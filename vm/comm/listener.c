/* listener.c - see listener.h. */
#include "listener.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

typedef struct Pending {
  int fd;
  size_t got; /* bytes of its message */
  double since;
  uint8_t nonce[NONCE];
  char message[LISTENER_MESSAGE];
} Pending;

/* A connection younger than this is not evicted: its message may be on its way. */
static const double MOMENT_S = 0.25;
/* poll() returns at this interval to close connections that are too old. */
enum { LOOK_MS = 200 };

void listener_init(Listener *l, const weft_alloc *a, int fd, const char magic[MAGIC],
                   size_t message, bool asks) {
  assert(message >= MAGIC && message <= LISTENER_MESSAGE);
  *l = (Listener){.alloc = a, .fd = fd, .magic = magic, .message = message, .asks = asks};
}

static void free_slots(Listener *l) {
  size_t n = (size_t)l->cap;
  mem_free(l->alloc, l->pending, n * sizeof *l->pending);
  mem_free(l->alloc, l->poll, (n + 1) * sizeof *l->poll);
}

void listener_close(Listener *l) {
  for (int i = 0; i < l->n; i++) close(l->pending[i].fd);
  if (l->fd >= 0) close(l->fd);
  free_slots(l);
  *l = (Listener){.fd = -1};
}

/* ---- slots ---- */

/* Moves the last pending connection into slot i. */
static void forget(Listener *l, int i) { l->pending[i] = l->pending[--l->n]; }

static void drop(Listener *l, int i) {
  close(l->pending[i].fd);
  forget(l, i);
}

static int oldest(const Listener *l) {
  int old = 0;
  for (int i = 1; i < l->n; i++)
    if (l->pending[i].since < l->pending[old].since) old = i;
  return old;
}

static bool drop_oldest(Listener *l) {
  int i = oldest(l);
  if (l->n == 0 || now_s() - l->pending[i].since < MOMENT_S) return false;
  drop(l, i);
  return true;
}

static void drop_late(Listener *l) {
  double now = now_s();
  for (int i = l->n - 1; i >= 0; i--)
    if (now - l->pending[i].since > LISTENER_S) drop(l, i);
}

static weft_status grow(Listener *l, weft_error *e) {
  Listener more = *l;
  more.cap = MIN(MAX(2 * l->cap, 16), LISTENER_PENDING);
  more.pending = mem_new(l->alloc, (size_t)more.cap * sizeof *more.pending);
  more.poll = mem_new(l->alloc, (size_t)(more.cap + 1) * sizeof *more.poll);
  if (!more.pending || !more.poll) {
    free_slots(&more);
    return err_set(e, WEFT_ENOMEM, "no memory for connections");
  }
  if (l->n) memcpy(more.pending, l->pending, (size_t)l->n * sizeof *l->pending);
  free_slots(l);
  *l = more;
  return WEFT_OK;
}

/* ---- accepting ---- */

/* The socket buffer of a new connection holds a whole question. */
static bool ask(const Listener *l, Pending *p) {
  Question q;
  if (!l->asks) return true;
  memcpy(q.magic, l->magic, MAGIC);
  net_random(q.nonce, NONCE);
  memcpy(p->nonce, q.nonce, NONCE);
  return send(p->fd, &q, sizeof q, MSG_NOSIGNAL) == (ssize_t)sizeof q;
}

static bool no_descriptors(void) {
  return errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
}

/* *more: there may be another one. *full: no slot or descriptor is free, so further
 * connections have to wait. */
static weft_status accept_one(Listener *l, bool *more, bool *full, weft_error *e) {
  *more = *full = false;
  if (l->n == LISTENER_PENDING && !drop_oldest(l)) {
    *full = true;
    return WEFT_OK;
  }
  int fd = accept4(l->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
  *more = fd >= 0 || errno == ECONNABORTED || errno == EINTR;
  if (fd >= 0) {
    Pending *p = &l->pending[l->n];
    *p = (Pending){.fd = fd, .since = now_s()};
    l->n++;
    if (!ask(l, p)) drop(l, l->n - 1);
    return WEFT_OK;
  }
  if (*more || net_again()) return WEFT_OK;
  if (no_descriptors() && l->n) {
    *more = drop_oldest(l);
    *full = !*more;
    return WEFT_OK;
  }
  return err_set(e, WEFT_ELIMIT, "cannot accept connections: %s", strerror(errno));
}

static weft_status accept_all(Listener *l, bool *full, weft_error *e) {
  for (bool more = true; more;) {
    if (l->n == l->cap && l->cap < LISTENER_PENDING) TRY(grow(l, e));
    TRY(accept_one(l, &more, full, e));
  }
  return WEFT_OK;
}

/* ---- reading ---- */

typedef enum { MESSAGE_PART, MESSAGE_WHOLE, MESSAGE_NONE } MessageState;

static MessageState read_some(const Listener *l, Pending *p) {
  while (p->got < l->message) {
    ssize_t n = recv(p->fd, p->message + p->got, l->message - p->got, 0);
    if (n < 0 && net_again()) return MESSAGE_PART;
    if (n <= 0) return MESSAGE_NONE;
    p->got += (size_t)n;
    if (memcmp(p->message, l->magic, MIN(p->got, (size_t)MAGIC)) != 0)
      return MESSAGE_NONE;
  }
  return MESSAGE_WHOLE;
}

static void take(Listener *l, int i, Accepted *out) {
  const Pending *p = &l->pending[i];
  out->fd = p->fd;
  net_prepare(out->fd);
  memcpy(out->nonce, p->nonce, NONCE);
  memcpy(out->message, p->message, l->message);
  forget(l, i);
}

/* poll[i + 1] belongs to slot i. Backwards, because the last slot fills a gap. */
static bool read_all(Listener *l, Accepted *out) {
  for (int i = l->n - 1; i >= 0; i--) {
    if (!l->poll[i + 1].revents) continue;
    MessageState s = read_some(l, &l->pending[i]);
    if (s == MESSAGE_NONE) drop(l, i);
    if (s != MESSAGE_WHOLE) continue;
    take(l, i, out);
    return true;
  }
  return false;
}

/* Reads what has arrived before it closes connections as too old. */
weft_status listener_next(Listener *l, Until u, Accepted *out, weft_error *e) {
  bool full = false;
  out->fd = -1;
  if (!l->cap) TRY(grow(l, e));
  for (int ms; (ms = until_ms(u)) > 0;) {
    l->poll[0] = (struct pollfd){.fd = full ? -1 : l->fd, .events = POLLIN};
    for (int i = 0; i < l->n; i++)
      l->poll[i + 1] = (struct pollfd){.fd = l->pending[i].fd, .events = POLLIN};
    poll(l->poll, (nfds_t)l->n + 1, MIN(ms, full ? LOOK_MS / 10 : LOOK_MS));
    if (read_all(l, out)) return WEFT_OK;
    drop_late(l);
    TRY(accept_all(l, &full, e));
  }
  return WEFT_OK;
}
