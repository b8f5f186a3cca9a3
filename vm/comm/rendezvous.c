/* rendezvous.c - see rendezvous.h. Rank 0 asks with a number that is used once; an answer
 * holds the other's own number and a hash of both with the word, and so does the reply,
 * so that both sides know that the other has it, and nobody can use it a second time.
 * The key of the links that follow is made of the word and of a number of this run. */
#include "rendezvous.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

enum { NONCE = 16 };
static const char magic[8] = "weft-r1";

typedef struct Question {
  char magic[8];
  uint8_t nonce[NONCE];
} Question;

typedef struct Answer {
  char magic[8];
  uint8_t question[NONCE], nonce[NONCE];
  int32_t rank, size, port;
  uint8_t mac[SHA256_BYTES];
} Answer;

typedef enum { COME_IN, OTHER_WORD, OTHER_RUN } Verdict;

/* The table of peers follows if the verdict is COME_IN. An empty host is that of rank 0,
 * by whatever name it was reached. */
typedef struct Reply {
  int32_t verdict;
  char text[NET_TEXT];              /* why not */
  uint8_t nonce[NONCE], run[NONCE]; /* of the answer; of this run */
  uint8_t table[SHA256_BYTES];
  uint8_t mac[SHA256_BYTES];
} Reply;

typedef struct Host {
  const Meet *m;
  Net *net;
  int *fd; /* [size]: who is there */
  uint8_t (*nonce)[NONCE];
  int here, strangers;
  double deadline;
} Host;

static void seal(const Meet *m, const void *p, size_t n, uint8_t *mac) {
  sha256_hmac(m->secret, strlen(m->secret), p, n, mac);
}

static void hash_table(const Net *n, uint8_t out[SHA256_BYTES]) {
  Sha256 s;
  sha256_begin(&s);
  sha256_add(&s, n->peer, (size_t)n->size * sizeof *n->peer);
  sha256_end(&s, out);
}

static void make_key(const Meet *m, const uint8_t run[NONCE], Net *n) {
  char text[NONCE + 5] = "links";
  memcpy(text + 5, run, NONCE);
  seal(m, text, sizeof text, n->key);
}

/* ---- rank 0 ---- */

static void reply(const Host *h, int fd, const uint8_t *nonce, Reply *r) {
  memcpy(r->nonce, nonce, NONCE);
  seal(h->m, r, offsetof(Reply, mac), r->mac);
  net_put(fd, r, sizeof *r, now_s() + 5);
}

static void refuse(const Host *h, int fd, const Answer *a, Verdict v, const char *why) {
  Reply r = {.verdict = v};
  snprintf(r.text, sizeof r.text, "%s", why);
  reply(h, fd, a->nonce, &r);
}

/* Tells all who are there why nothing comes of it. */
static weft_status call_off(const Host *h, const char *why, weft_error *e) {
  for (int i = 1; i < h->m->size; i++) {
    Answer a = {0};
    memcpy(a.nonce, h->nonce[i], NONCE);
    if (h->fd[i] >= 0) refuse(h, h->fd[i], &a, OTHER_RUN, why);
  }
  return err_set(e, WEFT_EUSAGE, "%s", why);
}

static bool ask(const Host *h, int fd, Answer *a) {
  Question q;
  memcpy(q.magic, magic, sizeof magic);
  net_random(q.nonce, NONCE);
  double soon = MIN(now_s() + 2, h->deadline);
  return net_put(fd, &q, sizeof q, soon) && net_get(fd, a, sizeof *a, soon) &&
         memcmp(a->magic, magic, sizeof magic) == 0 &&
         memcmp(a->question, q.nonce, NONCE) == 0;
}

/* Who comes with another number of processes or somebody else's rank belongs to this run
 * and is wrong: then nothing comes of it. */
static weft_status look_at(Host *h, int fd, const Answer *a, weft_error *e) {
  const Meet *m = h->m;
  char why[NET_TEXT] = "";
  if (a->size != m->size)
    snprintf(why, sizeof why,
             "rank %d was told that there are %d processes, rank 0 that there are %d: "
             "WORLD_SIZE must be the same everywhere",
             a->rank, a->size, m->size);
  else if (a->rank < 1 || a->rank >= m->size)
    snprintf(why, sizeof why, "a process came as rank %d of %d: RANK must be in 0..%d",
             a->rank, m->size, m->size - 1);
  else if (h->fd[a->rank] >= 0)
    snprintf(why, sizeof why,
             "two processes came as rank %d: RANK must be different everywhere", a->rank);
  if (why[0]) {
    refuse(h, fd, a, OTHER_RUN, why);
    close(fd);
    return call_off(h, why, e);
  }
  NetPeer *p = &h->net->peer[a->rank];
  h->fd[a->rank] = fd;
  memcpy(h->nonce[a->rank], a->nonce, NONCE);
  h->here++;
  p->port = a->port;
  if (!net_loopback(fd)) net_name(fd, p->host);
  return WEFT_OK;
}

static weft_status meet_one(Host *h, int fd, weft_error *e) {
  Answer a;
  uint8_t mac[SHA256_BYTES];
  if (!ask(h, fd, &a)) {
    close(fd);
    return WEFT_OK;
  }
  seal(h->m, &a, offsetof(Answer, mac), mac);
  if (sha256_same(mac, a.mac)) return look_at(h, fd, &a, e);
  h->strangers++;
  refuse(h, fd, &a, OTHER_WORD, "");
  close(fd);
  return WEFT_OK;
}

static weft_status too_late(const Host *h, weft_error *e) {
  char why[NET_TEXT];
  int n = 0, missing = 0;
  n = snprintf(why, sizeof why,
               "at %s:%d only %d of %d processes have come within %.0f s; "
               "not there:",
               h->m->addr, h->m->port, h->here + 1, h->m->size, h->m->seconds);
  for (int i = 1; i < h->m->size; i++) {
    if (h->fd[i] >= 0) continue;
    if (missing++ < 8) n += snprintf(why + n, sizeof why - (size_t)n, " rank %d", i);
  }
  if (missing > 8)
    n += snprintf(why + n, sizeof why - (size_t)n, " and %d more", missing - 8);
  if (h->strangers)
    snprintf(why + n, sizeof why - (size_t)n, "; %d came with another WEFT_SECRET",
             h->strangers);
  return call_off(h, why, e);
}

static weft_status meet_all(Host *h, int door, weft_error *e) {
  while (h->here + 1 < h->m->size) {
    if (!net_ready(door, POLLIN, h->deadline)) return too_late(h, e);
    int fd = accept(door, NULL, NULL);
    if (fd >= 0) TRY(meet_one(h, fd, e));
  }
  Reply r = {.verdict = COME_IN};
  net_random(r.run, NONCE);
  hash_table(h->net, r.table);
  make_key(h->m, r.run, h->net);
  for (int i = 1; i < h->m->size; i++) {
    reply(h, h->fd[i], h->nonce[i], &r);
    net_put(h->fd[i], h->net->peer, (size_t)h->m->size * sizeof *h->net->peer,
            now_s() + 5);
  }
  return WEFT_OK;
}

static weft_status be_host(Host *h, weft_error *e) {
  const Meet *m = h->m;
  int door = m->door >= 0 ? m->door : net_listen(m->addr, m->port);
  /* A name of this machine that is not an address of it, as behind a translation. */
  if (door < 0 && errno == EADDRNOTAVAIL) door = net_listen(NULL, m->port);
  if (door < 0)
    return err_set(e, WEFT_EUSAGE,
                   "rank 0 cannot listen at %s:%d: %s; MASTER_ADDR must be an address of "
                   "its machine, MASTER_PORT one that nobody uses",
                   m->addr, m->port, strerror(errno));
  h->net->peer[0].port = net_port(h->net->door);
  weft_status st = meet_all(h, door, e);
  close(door);
  for (int i = 0; i < m->size; i++) {
    NetPeer *p = &h->net->peer[i];
    if (!p->host[0]) snprintf(p->host, sizeof p->host, "%s", "localhost");
    if (h->fd[i] >= 0) close(h->fd[i]);
  }
  return st;
}

/* ---- the others ---- */

static weft_status unknown_host(const Meet *m, const char *why, weft_error *e) {
  return err_set(
      e, WEFT_EUSAGE,
      "rank %d cannot reach rank 0 at %s:%d within %.0f s: %s; MASTER_ADDR and "
      "MASTER_PORT must be where rank 0 listens",
      m->rank, m->addr, m->port, m->seconds, why);
}

static weft_status not_weft(const Meet *m, weft_error *e) {
  return err_set(
      e, WEFT_EUSAGE,
      "rank %d: what answers at %s:%d is not rank 0 of this run (or has ended)", m->rank,
      m->addr, m->port);
}

static weft_status hear(const Meet *m, int fd, const Answer *a, Net *n, weft_error *e) {
  Reply r;
  uint8_t mac[SHA256_BYTES], table[SHA256_BYTES];
  /* Rank 0 waits for the last one. */
  double patience = now_s() + m->seconds + 5;
  if (!net_get(fd, &r, sizeof r, patience)) return not_weft(m, e);
  seal(m, &r, offsetof(Reply, mac), mac);
  if (r.verdict == OTHER_WORD || !sha256_same(mac, r.mac) ||
      memcmp(r.nonce, a->nonce, NONCE) != 0)
    return err_set(
        e, WEFT_EUSAGE,
        "rank %d has another WEFT_SECRET than rank 0 at %s:%d: all processes of "
        "a run need the same",
        m->rank, m->addr, m->port);
  r.text[sizeof r.text - 1] = 0;
  if (r.verdict != COME_IN) return err_set(e, WEFT_EUSAGE, "%s", r.text);
  if (!net_get(fd, n->peer, (size_t)n->size * sizeof *n->peer, now_s() + 5))
    return not_weft(m, e);
  hash_table(n, table);
  if (!sha256_same(table, r.table)) return not_weft(m, e);
  make_key(m, r.run, n);
  return WEFT_OK;
}

static weft_status come(const Meet *m, int fd, const Question *q, Net *n, weft_error *e) {
  Answer a = {.rank = m->rank, .size = m->size, .port = net_port(n->door)};
  memcpy(a.magic, magic, sizeof magic);
  memcpy(a.question, q->nonce, NONCE);
  net_random(a.nonce, NONCE);
  seal(m, &a, offsetof(Answer, mac), a.mac);
  if (!net_put(fd, &a, sizeof a, now_s() + 5)) return not_weft(m, e);
  TRY(hear(m, fd, &a, n, e));
  for (int i = 0; i < n->size; i++) {
    n->peer[i].host[NET_HOST - 1] = 0;
    if (!n->peer[i].host[0]) net_name(fd, n->peer[i].host);
  }
  return WEFT_OK;
}

/* Whoever hangs up without a question was not rank 0, or not yet. */
static weft_status be_guest(const Meet *m, Net *n, weft_error *e) {
  char why[NET_TEXT] = "";
  double deadline = now_s() + m->seconds;
  Question q;
  for (;;) {
    int fd = net_reach(m->addr, m->port, deadline, why);
    if (fd < 0) return unknown_host(m, why, e);
    bool asked = net_get(fd, &q, sizeof q, deadline);
    bool known = asked && memcmp(q.magic, magic, sizeof magic) == 0;
    weft_status st = known ? come(m, fd, &q, n, e) : WEFT_OK;
    close(fd);
    if (known) return st;
    if (asked || now_s() + 0.1 > deadline) return not_weft(m, e);
    usleep(50000);
  }
}

/* ---- both ---- */

static weft_status host(const Meet *m, const weft_alloc *a, Net *n, weft_error *e) {
  size_t size = (size_t)m->size;
  Host h = {.m = m, .net = n, .deadline = now_s() + m->seconds};
  h.fd = mem_new(a, size * sizeof *h.fd);
  h.nonce = mem_new(a, size * sizeof *h.nonce);
  for (int i = 0; h.fd && i < m->size; i++)
    h.fd[i] = -1;
  weft_status st = h.fd && h.nonce
                       ? be_host(&h, e)
                       : err_set(e, WEFT_ENOMEM, "no memory for %d processes", m->size);
  mem_free(a, h.nonce, size * sizeof *h.nonce);
  mem_free(a, h.fd, size * sizeof *h.fd);
  return st;
}

/* Who meets on this machine alone is not to be reached from others. */
static bool is_local(const char *addr) {
  return strcmp(addr, "localhost") == 0 || strncmp(addr, "127.", 4) == 0 ||
         strcmp(addr, "::1") == 0;
}

weft_status rendezvous(const Meet *meet, const weft_alloc *a, Net *out, weft_error *e) {
  Meet m = *meet;
  if (m.seconds <= 0) m.seconds = MEET_S;
  TRY(net_open(out, a, m.rank, m.size, is_local(m.addr) ? m.addr : NULL, e));
  out->seconds = m.seconds;
  weft_status st = m.rank == 0 ? host(&m, a, out, e) : be_guest(&m, out, e);
  if (st != WEFT_OK) net_close(out);
  return st;
}
