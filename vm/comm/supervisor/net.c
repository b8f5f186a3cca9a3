/* net.c - see net.h. */
#include "net.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

/* The first message on a connection, sent by the side that connects. */
typedef struct Hello {
  char magic[MAGIC];
  int32_t from, to;
  uint32_t tag;
  uint8_t mac[SHA256_BYTES]; /* of all members before */
} Hello;

typedef struct NetGuest {
  int fd, from;
  uint32_t tag;
} NetGuest;

static const char magic[MAGIC] = "weft-l2";

/* One connection per member of each group may exceed the soft limit. */
static void allow_many_files(void) {
  struct rlimit r;
  if (getrlimit(RLIMIT_NOFILE, &r) || r.rlim_cur == r.rlim_max) return;
  r.rlim_cur = r.rlim_max;
  setrlimit(RLIMIT_NOFILE, &r);
}

weft_status net_open(Net *n, const weft_alloc *a, int rank, int size, const char *host,
                     weft_error *e) {
  *n = (Net){.alloc = a, .rank = rank, .size = size, .seconds = 30};
  n->peer = mem_new(a, (size_t)size * sizeof *n->peer);
  if (!n->peer) return err_set(e, WEFT_ENOMEM, "no memory for %d processes", size);
  allow_many_files();
  listener_init(&n->listener, a, net_listen(host, 0), magic, sizeof(Hello), false);
  if (n->listener.fd >= 0) return WEFT_OK;
  err_set(e, WEFT_EUSAGE, "rank %d cannot listen for the others at %s: %s", rank,
          host ? host : "any address", strerror(errno));
  net_close(n);
  return WEFT_EUSAGE;
}

void net_close(Net *n) {
  if (!n->peer) return;
  for (int i = 0; i < n->nguest; i++) close(n->guest[i].fd);
  listener_close(&n->listener);
  mem_free(n->alloc, n->guest, (size_t)n->capguest * sizeof *n->guest);
  mem_free(n->alloc, n->peer, (size_t)n->size * sizeof *n->peer);
  *n = (Net){0};
}

static void seal(const Net *n, Hello *h) {
  sha256_hmac(n->key, sizeof n->key, h, offsetof(Hello, mac), h->mac);
}

/* To connect takes no longer, whatever the peer does: it listens since before it joined,
 * and the system answers for it. */
static Until deadline_of(const Net *n) {
  return (Until){now_s() + n->seconds, n->stop, n->ended};
}

/* A peer connects when it gets to that, which may be long after: it loads, or waits for a
 * disk. The supervisor notices one that has ended or is suspended. */
static Until arrival_of(const Net *n) {
  Until u = deadline_of(n);
  if (n->watched) u.deadline = INFINITY;
  return u;
}

static weft_status interrupted(const Net *n, int peer, weft_error *e) {
  return err_set(e, WEFT_EINTR, "interrupted while rank %d waited for rank %d", n->rank,
                 peer);
}

static weft_status ended(const Net *n, int peer, weft_error *e) {
  return err_set(e, WEFT_ERUN, "the run ended while rank %d waited for rank %d", n->rank,
                 peer);
}

static weft_status connect_to(Net *n, int peer, uint32_t tag, int *fd, weft_error *e) {
  const NetPeer *p = &n->peer[peer];
  char why[NET_TEXT] = "";
  Until u = deadline_of(n);
  Hello h = {.from = n->rank, .to = peer, .tag = tag};
  memcpy(h.magic, magic, sizeof h.magic);
  seal(n, &h);
  *fd = net_reach(p->host, p->port, u, why);
  if (*fd >= 0 && net_put(*fd, &h, sizeof h, u)) return WEFT_OK;
  if (*fd >= 0) close(*fd);
  *fd = -1;
  if (until_stopped(u)) return interrupted(n, peer, e);
  if (until_ended(u)) return ended(n, peer, e);
  return err_set(e, WEFT_ERUN, "rank %d cannot reach rank %d at %s:%d: %s", n->rank, peer,
                 p->host, p->port, why[0] ? why : "the connection is closed");
}

/* The oldest match: a rank that is ahead may have connected for its next link already. */
static int find_accepted(const Net *n, int from, uint32_t tag) {
  for (int i = 0; i < n->nguest; i++)
    if (n->guest[i].from == from && n->guest[i].tag == tag) return i;
  return -1;
}

static bool grow_accepted(Net *n) {
  if (n->nguest < n->capguest) return true;
  int cap = MAX(2 * n->capguest, 16);
  NetGuest *g = mem_resize(n->alloc, n->guest, (size_t)n->capguest * sizeof *g,
                           (size_t)cap * sizeof *g);
  if (!g) return false;
  n->guest = g;
  n->capguest = cap;
  return true;
}

/* True if a first message is from a rank that may connect here. */
static bool is_of_this_run(const Net *n, const Hello *h) {
  Hello mine = *h;
  seal(n, &mine);
  return h->to == n->rank && h->from > n->rank && h->from < n->size &&
         sha256_same(h->mac, mine.mac);
}

/* Keeps an accepted connection until net_link asks for its rank. One without a valid HMAC
 * is closed silently. */
static weft_status keep_accepted(Net *n, const Accepted *a, weft_error *e) {
  Hello h;
  memcpy(&h, a->message, sizeof h);
  bool known = is_of_this_run(n, &h);
  if (known && grow_accepted(n)) {
    n->guest[n->nguest++] = (NetGuest){a->fd, h.from, h.tag};
    return WEFT_OK;
  }
  close(a->fd);
  return known ? err_set(e, WEFT_ENOMEM, "no memory for connections") : WEFT_OK;
}

static weft_status wait_accepted(Net *n, int peer, uint32_t tag, int *fd, weft_error *e) {
  Until u = arrival_of(n);
  Accepted a;
  while (find_accepted(n, peer, tag) < 0) {
    TRY(listener_next(&n->listener, u, &a, e));
    if (a.fd >= 0)
      TRY(keep_accepted(n, &a, e));
    else if (until_stopped(u))
      return interrupted(n, peer, e);
    else if (until_ended(u))
      return ended(n, peer, e);
    else
      return err_set(e, WEFT_ERUN, "rank %d: rank %d has not connected within %.0f s",
                     n->rank, peer, n->seconds);
  }
  int i = find_accepted(n, peer, tag);
  *fd = n->guest[i].fd;
  n->nguest--;
  memmove(&n->guest[i], &n->guest[i + 1], (size_t)(n->nguest - i) * sizeof *n->guest);
  return WEFT_OK;
}

weft_status net_link(Net *n, int peer, uint32_t tag, int *fd, weft_error *e) {
  assert(peer != n->rank && peer >= 0 && peer < n->size);
  return n->rank > peer ? connect_to(n, peer, tag, fd, e)
                        : wait_accepted(n, peer, tag, fd, e);
}
