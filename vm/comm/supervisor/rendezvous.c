/* rendezvous.c - see rendezvous.h. A challenge-response handshake: rank 0 sends a nonce;
 * the answer holds the peer's own nonce and an HMAC, keyed by the secret, of both nonces
 * and everything it says (rank, number of processes, host, port); the reply is
 * authenticated likewise. So both sides know that the other has the secret, and a
 * recorded answer cannot be replayed. The key of the later links is derived from the
 * secret and a nonce of this run. */
#include "rendezvous.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

static const char magic[MAGIC] = "weft-r2";

typedef struct Answer {
  char magic[MAGIC];
  uint8_t question[NONCE], nonce[NONCE];
  int32_t rank, size;
  NetPeer at; /* where the peer listens; host "": on the machine of rank 0 */
  uint8_t mac[SHA256_BYTES];
} Answer;
static_assert(sizeof(Answer) <= LISTENER_MESSAGE, "a listener reads answers");

typedef enum { ADMITTED, WRONG_SECRET, REFUSED } Verdict;

/* Followed by the table of peers if the verdict is ADMITTED. An empty host in it means
 * rank 0's, by whatever name the peer reached it. */
typedef struct Reply {
  int32_t verdict;
  char text[NET_TEXT];              /* why it was refused */
  uint8_t nonce[NONCE], run[NONCE]; /* of the answer; of this run */
  uint8_t table[SHA256_BYTES];
  uint8_t mac[SHA256_BYTES];
} Reply;

typedef struct Host {
  const Rendezvous *m;
  Net *net;
  int *fd; /* [size]: connections of the ranks that have joined; -1: none */
  uint8_t (*nonce)[NONCE];
  int joined, rejected;
  Until until;
} Host;

static void authenticate(const Rendezvous *m, const void *p, size_t n, uint8_t *mac) {
  sha256_hmac(m->secret, strlen(m->secret), p, n, mac);
}

static void hash_table(const Net *n, uint8_t out[SHA256_BYTES]) {
  Sha256 s;
  sha256_begin(&s);
  sha256_add(&s, n->peer, (size_t)n->size * sizeof *n->peer);
  sha256_end(&s, out);
}

static void make_key(const Rendezvous *m, const uint8_t run[NONCE], Net *n) {
  char text[NONCE + 5] = "links";
  memcpy(text + 5, run, NONCE);
  authenticate(m, text, sizeof text, n->key);
}

/* ---- rank 0 ---- */

/* A reply fits into a new connection's socket buffer, so `seconds` is 0 for peers that
 * are not authenticated: they cannot delay rank 0. */
static void reply(const Host *h, int fd, const uint8_t *nonce, Reply *r, double seconds) {
  memcpy(r->nonce, nonce, NONCE);
  authenticate(h->m, r, offsetof(Reply, mac), r->mac);
  net_put(fd, r, sizeof *r, until_in(seconds));
}

static void refuse(const Host *h, int fd, const uint8_t *nonce, Verdict v,
                   const char *why) {
  Reply r = {.verdict = v};
  snprintf(r.text, sizeof r.text, "%s", why);
  reply(h, fd, nonce, &r, 0);
}

/* Sends the reason to all ranks that have joined: the rendezvous has failed. */
static weft_status refuse_all(const Host *h, const char *why, weft_error *e) {
  for (int i = 1; i < h->m->size; i++)
    if (h->fd[i] >= 0) refuse(h, h->fd[i], h->nonce[i], REFUSED, why);
  return err_set(e, WEFT_EUSAGE, "%s", why);
}

/* Whether a rank has joined and is there. One that has ended since then, as a pod that is
 * killed and started again, has not joined: its connection is closed. */
static bool has_joined(Host *h, int rank) {
  char c;
  if (h->fd[rank] < 0) return false;
  ssize_t n = recv(h->fd[rank], &c, 1, MSG_PEEK | MSG_DONTWAIT);
  if (n > 0 || (n < 0 && net_again())) return true;
  close(h->fd[rank]);
  h->fd[rank] = -1;
  h->joined--;
  return false;
}

static void drop_ended(Host *h) {
  for (int i = 1; i < h->m->size; i++) has_joined(h, i);
}

/* An authenticated peer with another number of processes, or with a rank that is taken,
 * is misconfigured: the whole rendezvous fails. */
static weft_status admit_rank(Host *h, int fd, const Answer *a, weft_error *e) {
  const Rendezvous *m = h->m;
  char why[NET_TEXT] = "";
  bool named = a->at.host[0] != 0;
  if (a->size != m->size)
    snprintf(why, sizeof why,
             "rank %d has WORLD_SIZE = %d, rank 0 has %d: it must be the same for all "
             "processes",
             a->rank, a->size, m->size);
  else if (a->rank < 1 || a->rank >= m->size)
    snprintf(why, sizeof why,
             "a process has connected as rank %d of %d: RANK must be in 0..%d", a->rank,
             m->size, m->size - 1);
  else if (has_joined(h, a->rank))
    snprintf(
        why, sizeof why,
        "two processes have connected as rank %d: each process needs a RANK of its own",
        a->rank);
  else if (a->at.host[NET_HOST - 1] || (named && !net_is_host(a->at.host)))
    snprintf(why, sizeof why, "rank %d has sent an invalid host name", a->rank);
  if (why[0]) {
    refuse(h, fd, a->nonce, REFUSED, why);
    close(fd);
    return refuse_all(h, why, e);
  }
  h->fd[a->rank] = fd;
  memcpy(h->nonce[a->rank], a->nonce, NONCE);
  h->joined++;
  h->net->peer[a->rank] = a->at;
  return WEFT_OK;
}

static weft_status check_answer(Host *h, const Accepted *from, weft_error *e) {
  Answer a;
  uint8_t mac[SHA256_BYTES];
  memcpy(&a, from->message, sizeof a);
  authenticate(h->m, &a, offsetof(Answer, mac), mac);
  bool fresh = memcmp(a.question, from->nonce, NONCE) == 0;
  if (fresh && sha256_same(mac, a.mac)) return admit_rank(h, from->fd, &a, e);
  h->rejected++;
  refuse(h, from->fd, a.nonce, WRONG_SECRET, "");
  close(from->fd);
  return WEFT_OK;
}

static weft_status too_late(Host *h, weft_error *e) {
  char text[NET_TEXT];
  drop_ended(h);
  TextBuf why = textbuf(text, sizeof text);
  int missing = 0;
  textbuf_printf(
      &why, "at %.*s:%d only %d of %d processes have connected within %.0f s; missing:",
      NET_HOST, h->m->addr, h->m->port, h->joined + 1, h->m->size, h->m->seconds);
  for (int i = 1; i < h->m->size; i++)
    if (h->fd[i] < 0 && missing++ < 8) textbuf_printf(&why, " rank %d", i);
  if (missing > 8) textbuf_printf(&why, " and %d more", missing - 8);
  if (h->rejected)
    textbuf_printf(&why, "; %d connected with another WEFT_SECRET", h->rejected);
  return refuse_all(h, text, e);
}

static weft_status interrupted(const Host *h, weft_error *e) {
  refuse_all(h, "rank 0 was interrupted while it waited for the others", NULL);
  return err_set(
      e, WEFT_EINTR,
      "interrupted while rank 0 waited for the others: %d of %d processes had connected",
      h->joined + 1, h->m->size);
}

static weft_status admit_all(Host *h, Listener *door, weft_error *e) {
  while (h->joined + 1 < h->m->size) {
    Accepted from;
    TRY(listener_next(door, h->until, &from, e));
    if (from.fd >= 0)
      TRY(check_answer(h, &from, e));
    else
      return until_stopped(h->until) ? interrupted(h, e) : too_late(h, e);
    if (h->joined + 1 == h->m->size) drop_ended(h);
  }
  Reply r = {.verdict = ADMITTED};
  net_random(r.run, NONCE);
  hash_table(h->net, r.table);
  make_key(h->m, r.run, h->net);
  for (int i = 1; i < h->m->size; i++) {
    reply(h, h->fd[i], h->nonce[i], &r, 5);
    net_put(h->fd[i], h->net->peer, (size_t)h->m->size * sizeof *h->net->peer,
            until_in(5));
  }
  return WEFT_OK;
}

/* Whether this is said to be an address that only this machine can reach. */
static bool is_local(const char *at) {
  return strcmp(at, "localhost") == 0 || strncmp(at, "127.", 4) == 0 ||
         strcmp(at, "::1") == 0;
}

/* At MASTER_ADDR; at all addresses if that is the machine's name and leads to a loopback
 * address, as Debian's installer has it (127.0.1.1), or if it reaches this machine
 * through NAT and is no address of it. */
static int listen_at_master(const Rendezvous *m) {
  int door = net_listen(m->addr, m->port);
  if (door >= 0 && !is_local(m->addr) && net_is_loopback(door)) {
    close(door);
    door = net_listen(NULL, m->port);
  }
  if (door < 0 && errno == EADDRNOTAVAIL) door = net_listen(NULL, m->port);
  return door;
}

static weft_status serve(Host *h, weft_error *e) {
  const Rendezvous *m = h->m;
  int door = m->door >= 0 ? m->door : listen_at_master(m);
  if (door < 0)
    return err_set(e, WEFT_EUSAGE,
                   "rank 0 cannot listen at %s:%d: %s; MASTER_ADDR must be an address of "
                   "its machine, MASTER_PORT a free port",
                   m->addr, m->port, strerror(errno));
  Listener l;
  listener_init(&l, h->net->alloc, door, magic, sizeof(Answer), true);
  h->net->peer[0].port = net_port(h->net->listener.fd);
  if (m->host) snprintf(h->net->peer[0].host, NET_HOST, "%s", m->host);
  weft_status st = admit_all(h, &l, e);
  listener_close(&l);
  for (int i = 0; i < m->size; i++) {
    NetPeer *p = &h->net->peer[i];
    if (!p->host[0]) snprintf(p->host, sizeof p->host, "%s", "localhost");
    if (h->fd[i] >= 0) close(h->fd[i]);
  }
  return st;
}

/* ---- other ranks ---- */

static weft_status unknown_host(const Rendezvous *m, const char *why, weft_error *e) {
  return err_set(
      e, WEFT_EUSAGE,
      "rank %d cannot reach rank 0 at %s:%d within %.0f s: %s; MASTER_ADDR and "
      "MASTER_PORT must be where rank 0 listens",
      m->rank, m->addr, m->port, m->seconds, why);
}

static weft_status not_weft(const Rendezvous *m, weft_error *e) {
  return err_set(e, WEFT_EUSAGE,
                 "rank %d: the process that answers at %s:%d is not rank 0 of this run "
                 "(or has ended)",
                 m->rank, m->addr, m->port);
}

static weft_status interrupted_peer(const Rendezvous *m, weft_error *e) {
  return err_set(e, WEFT_EINTR, "rank %d was interrupted while it waited for rank 0",
                 m->rank);
}

/* Reads the reply to an answer. *gone: the connection was closed without one. */
static weft_status read_reply(const Rendezvous *m, int fd, const Answer *a, Net *n,
                              bool *gone, weft_error *e) {
  Reply r;
  uint8_t mac[SHA256_BYTES], table[SHA256_BYTES];
  /* Rank 0 replies only when the last rank has joined. */
  Until u = until_or(m->seconds + 5, m->stop);
  *gone = !net_get(fd, &r, sizeof r, u);
  if (until_stopped(u)) return interrupted_peer(m, e);
  if (*gone) return not_weft(m, e);
  authenticate(m, &r, offsetof(Reply, mac), mac);
  if (r.verdict == WRONG_SECRET || !sha256_same(mac, r.mac) ||
      memcmp(r.nonce, a->nonce, NONCE) != 0)
    return err_set(
        e, WEFT_EUSAGE,
        "rank %d has another WEFT_SECRET than rank 0 at %s:%d: all processes of "
        "a run need the same",
        m->rank, m->addr, m->port);
  r.text[sizeof r.text - 1] = 0;
  if (r.verdict != ADMITTED) return err_set(e, WEFT_EUSAGE, "%s", r.text);
  if (!net_get(fd, n->peer, (size_t)n->size * sizeof *n->peer, until_in(5)))
    return not_weft(m, e);
  hash_table(n, table);
  if (!sha256_same(table, r.table)) return not_weft(m, e);
  make_key(m, r.run, n);
  return WEFT_OK;
}

static weft_status send_answer(const Rendezvous *m, int fd, const Question *q, Net *n,
                               bool *gone, weft_error *e) {
  Answer a = {.rank = m->rank, .size = m->size, .at.port = net_port(n->listener.fd)};
  memcpy(a.magic, magic, sizeof magic);
  memcpy(a.question, q->nonce, NONCE);
  net_random(a.nonce, NONCE);
  if (m->host)
    snprintf(a.at.host, NET_HOST, "%s", m->host);
  else
    net_own_host(fd, a.at.host);
  authenticate(m, &a, offsetof(Answer, mac), a.mac);
  *gone = !net_put(fd, &a, sizeof a, until_in(5));
  if (*gone) return not_weft(m, e);
  TRY(read_reply(m, fd, &a, n, gone, e));
  for (int i = 0; i < n->size; i++) {
    n->peer[i].host[NET_HOST - 1] = 0;
    if (!n->peer[i].host[0]) net_peer_host(fd, n->peer[i].host);
  }
  return WEFT_OK;
}

/* One attempt. *gone: the connection was closed before rank 0 replied: rank 0 was not
 * listening yet, or all its slots were taken. */
static weft_status try_join(const Rendezvous *m, int fd, Until u, Net *n, bool *asked,
                            bool *gone, weft_error *e) {
  Question q;
  *gone = !net_get(fd, &q, sizeof q, u);
  if (*gone || memcmp(q.magic, magic, sizeof magic) != 0) return not_weft(m, e);
  *asked = true;
  return send_answer(m, fd, &q, n, gone, e);
}

/* Retries until the deadline; but a rank 0 that answered and then stopped listening has
 * ended. */
static weft_status join(const Rendezvous *m, Net *n, weft_error *e) {
  char why[NET_TEXT] = "";
  Until u = until_or(m->seconds, m->stop);
  for (bool asked = false, gone;; usleep(50000)) {
    weft_error last = NO_ERROR;
    int fd = net_reach(m->addr, m->port, asked ? until_or(1, m->stop) : u, why);
    if (until_stopped(u)) {
      if (fd >= 0) close(fd);
      return interrupted_peer(m, e);
    }
    if (fd < 0) return asked ? not_weft(m, e) : unknown_host(m, why, e);
    weft_status st = try_join(m, fd, u, n, &asked, &gone, &last);
    close(fd);
    if (st == WEFT_OK) return WEFT_OK;
    if (until_stopped(u)) return interrupted_peer(m, e);
    if (!gone || now_s() + 0.1 > u.deadline)
      return err_set(e, last.code, "%s", last.text);
  }
}

/* ---- all ranks ---- */

static weft_status host(const Rendezvous *m, const weft_alloc *a, Net *n, weft_error *e) {
  size_t size = (size_t)m->size;
  Host h = {.m = m, .net = n, .until = until_or(m->seconds, m->stop)};
  h.fd = mem_new(a, size * sizeof *h.fd);
  h.nonce = mem_new(a, size * sizeof *h.nonce);
  for (int i = 0; h.fd && i < m->size; i++) h.fd[i] = -1;
  weft_status st = h.fd && h.nonce
                       ? serve(&h, e)
                       : err_set(e, WEFT_ENOMEM, "no memory for %d processes", m->size);
  mem_free(a, h.nonce, size * sizeof *h.nonce);
  mem_free(a, h.fd, size * sizeof *h.fd);
  return st;
}

/* The address at which a process listens for other ranks; NULL: all addresses. A run
 * within one machine must not be reachable from others. */
static const char *own_address(const Rendezvous *m) {
  const char *at = m->host ? m->host : m->addr;
  return is_local(at) ? at : NULL;
}

weft_status rendezvous(const Rendezvous *meet, const weft_alloc *a, Net *out,
                       weft_error *e) {
  Rendezvous m = *meet;
  if (m.seconds <= 0) m.seconds = MEET_S;
  TRY(net_open(out, a, m.rank, m.size, own_address(&m), e));
  out->seconds = m.seconds;
  out->stop = m.stop;
  weft_status st = m.rank == 0 ? host(&m, a, out, e) : join(&m, out, e);
  if (st != WEFT_OK) net_close(out);
  return st;
}
