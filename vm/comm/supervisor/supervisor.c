/* supervisor.c - see supervisor.h. The thread owns the connections and the table; other
 * threads hand it only `own`, under the lock. */
#include "supervisor.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "vm/base/c_locale.h"

enum { HUBS = 2, WHY = 900, PERIOD_MS = 200 };
/* From the first sign of a failure to the message: time for blocked ranks to report where
 * they are, and for the failed one to report its reason before its peers report a lost
 * connection. */
static const double SETTLE_S = 0.5;
/* For CAUSE_MISSED: a peer may notice the lost connection long before the failed rank's
 * reason, or the close of its connection, reaches this hub on a busy machine. */
static const double MISSED_S = 3;
/* For the acting hub to report who has failed. */
static const double ANSWER_S = 5;
/* A process that was suspended received nothing meanwhile: a check counts at most
 * this. */
static const double CHECK_MAX_S = 1;

typedef enum { LINE_HERE, LINE_FAILED, LINE_END, LINE_LEAVES } LineKind;

/* One message on a connection. */
typedef struct Line {
  int32_t kind, culprit, code;
  RankNote note;
  char why[WHY];
} Line;

typedef struct Conn {
  int fd;            /* -1: none */
  bool write_closed; /* accepts no more lines; what it sent before can still be read */
  size_t got;
  Line in; /* the first `got` bytes of it */
} Conn;

/* Ordered by authority: a rank's own report outranks a peer's lost connection. */
typedef enum {
  CAUSE_NONE,
  CAUSE_MISSED,
  CAUSE_STUCK,
  CAUSE_SILENT,
  CAUSE_LOST,
  CAUSE_GAVE_UP
} CauseKind;
typedef struct Cause {
  CauseKind kind;
  int culprit;
  weft_status code;
  char why[WHY];
} Cause;

struct Supervisor {
  const weft_alloc *alloc;
  SupervisorHost host;
  int rank, size;
  Conn *conn;          /* [size]: to the hubs, and from a hub to all ranks */
  RankSeen *table;     /* [size] */
  struct pollfd *poll; /* [size + 1] */
  Cause cause;         /* why the run is about to end */
  double first;        /* when the first cause was known */
  double last;         /* time of the last check */
  bool over;           /* the run has ended and the host was notified */
  int bell;
  pthread_t thread;
  bool has_thread;
  pthread_mutex_t lock; /* guards what follows */
  pthread_cond_t ended;
  Cause own; /* set by supervisor_fail, taken by the thread */
  bool quit, has_ended;
};

static bool is_hub(const Supervisor *c, int rank) { return rank < MIN(HUBS, c->size); }

/* Rank 1 acts if rank 0 is lost or silent. */
static int acting_hub(const Supervisor *c) {
  bool gone = c->cause.kind == CAUSE_LOST || c->cause.kind == CAUSE_SILENT;
  return c->rank != 0 && gone && c->cause.culprit == 0 ? 1 : 0;
}

/* ---- lines ---- */

/* A LINE_HERE that does not fit into the socket buffer is dropped; other lines are waited
 * for, a second at most. A failed write does not close the connection: the peer's last
 * lines arrive before its end and have to be read. */
static void send_line(Supervisor *c, int peer, const Line *l) {
  Conn *k = &c->conn[peer];
  if (k->fd < 0 || k->write_closed) return;
  bool matters = l->kind != LINE_HERE;
  if (!matters && !net_ready(k->fd, POLLOUT, until_in(0))) return;
  k->write_closed = !net_put(k->fd, l, sizeof *l, until_in(1));
}

static void send_to_hubs(Supervisor *c, const Line *l) {
  for (int i = 0; i < HUBS; i++)
    if (is_hub(c, i) && i != c->rank) send_line(c, i, l);
}

/* ---- causes ---- */

static void record_cause(Supervisor *c, CauseKind kind, int culprit, weft_status code,
                         const char *why) {
  if (!c->cause.kind) c->first = now_s();
  if (kind <= c->cause.kind) return;
  c->cause = (Cause){.kind = kind, .culprit = culprit, .code = code};
  snprintf(c->cause.why, sizeof c->cause.why, "%s", why);
}

static void connection_lost(Supervisor *c, int peer) {
  char why[128];
  close(c->conn[peer].fd);
  c->conn[peer].fd = -1;
  if (c->table[peer].left) return;
  c->table[peer].lost = true;
  snprintf(why, sizeof why, "the process of rank %d has ended", peer);
  record_cause(c, CAUSE_LOST, peer, WEFT_ERUN, why);
}

static void finish(Supervisor *c, int culprit, weft_status code, const char *why,
                   bool speaks) {
  if (c->over) return;
  c->over = true;
  c->host.end(c->host.ud, culprit, code, why, speaks);
  pthread_mutex_lock(&c->lock);
  c->has_ended = true;
  pthread_cond_broadcast(&c->ended);
  pthread_mutex_unlock(&c->lock);
}

static void handle_line(Supervisor *c, int peer, const Line *l) {
  RankSeen *r = &c->table[peer];
  r->silent = 0;
  switch ((LineKind)l->kind) {
  case LINE_HERE:
    r->note = l->note;
    r->heard = true;
    return;
  case LINE_FAILED:
    record_cause(c, l->culprit == peer ? CAUSE_GAVE_UP : CAUSE_MISSED, l->culprit,
                 (weft_status)l->code, l->why);
    return;
  case LINE_END: finish(c, l->culprit, (weft_status)l->code, l->why, false); return;
  case LINE_LEAVES: r->left = true;
  }
}

static void read_lines(Supervisor *c, int peer) {
  Conn *k = &c->conn[peer];
  while (k->fd >= 0) {
    ssize_t n = recv(k->fd, (char *)&k->in + k->got, sizeof k->in - k->got, 0);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
    if (n <= 0) {
      connection_lost(c, peer);
      return;
    }
    k->got += (size_t)n;
    if (k->got < sizeof k->in) continue;
    k->got = 0;
    k->in.why[WHY - 1] = 0;
    handle_line(c, peer, &k->in);
  }
}

/* ---- periodic checks ---- */

static void report_own_state(Supervisor *c) {
  Line l = {.kind = LINE_HERE};
  c->host.here(c->host.ud, &l.note);
  c->table[c->rank].note = l.note;
  c->table[c->rank].heard = true;
  for (int i = 0; i < c->size; i++) send_line(c, i, &l);
}

static void take_own_cause(Supervisor *c) {
  pthread_mutex_lock(&c->lock);
  Cause own = c->own;
  c->own.kind = CAUSE_NONE;
  pthread_mutex_unlock(&c->lock);
  if (!own.kind) return;
  record_cause(c, own.kind, own.culprit, own.code, own.why);
  Line l = {.kind = LINE_FAILED, .culprit = own.culprit, .code = own.code};
  snprintf(l.why, sizeof l.why, "%s", own.why);
  report_own_state(c);
  send_to_hubs(c, &l);
}

static void check_silence(Supervisor *c, double passed) {
  char why[160];
  for (int i = 0; i < c->size; i++) {
    RankSeen *r = &c->table[i];
    if (i == c->rank || r->left || r->lost || c->conn[i].fd < 0) continue;
    r->silent += passed;
    if (r->silent < c->host.limit(c->host.ud)) continue;
    snprintf(why, sizeof why,
             "rank %d has not answered for %.0f s: its process is suspended, or its "
             "machine is down",
             i, r->silent);
    record_cause(c, CAUSE_SILENT, i, WEFT_ERUN, why);
  }
}

static void check_ranks(Supervisor *c) {
  double now = now_s(), passed = MIN(now - c->last, CHECK_MAX_S);
  char why[WHY];
  c->last = now;
  report_own_state(c);
  check_silence(c, passed);
  if (is_hub(c, c->rank) && c->host.stuck(c->host.ud, c->table, why, sizeof why))
    record_cause(c, CAUSE_STUCK, -1, WEFT_ERUN, why);
}

/* Makes the one message, sends it to all ranks and ends the run here. */
static void end_all(Supervisor *c) {
  Text t = {0};
  Line l = {.kind = LINE_END, .culprit = c->cause.culprit, .code = c->cause.code};
  text_add(&t, c->cause.why);
  if (c->cause.code != WEFT_EINTR)
    c->host.others(c->host.ud, c->table, c->cause.culprit, &t);
  snprintf(l.why, sizeof l.why, "%s", t.s && !t.oom ? t.s : c->cause.why);
  text_free(&t);
  for (int i = 0; i < c->size; i++)
    if (i != c->rank) send_line(c, i, &l);
  finish(c, c->cause.culprit, c->cause.code, l.why, true);
}

/* The acting hub ends the run; other ranks wait for it. If it does not answer in time,
 * each rank ends the run with what it knows. */
static void end_if_due(Supervisor *c) {
  if (!c->cause.kind || c->over) return;
  double waited = now_s() - c->first;
  bool acts = acting_hub(c) == c->rank;
  double moment = c->cause.kind == CAUSE_MISSED ? MISSED_S : SETTLE_S;
  if (acts && waited >= moment) end_all(c);
  if (!acts && waited >= ANSWER_S) end_all(c);
}

static bool wants_to_quit(Supervisor *c) {
  pthread_mutex_lock(&c->lock);
  bool quit = c->quit;
  pthread_mutex_unlock(&c->lock);
  return quit;
}

static void *supervise(void *arg) {
  Supervisor *c = arg;
  double due = 0;
  c_locale_take();
  while (!wants_to_quit(c)) {
    int n = 0;
    uint64_t rings;
    c->poll[n++] = (struct pollfd){.fd = c->bell, .events = POLLIN};
    for (int i = 0; i < c->size; i++)
      if (c->conn[i].fd >= 0)
        c->poll[n++] = (struct pollfd){.fd = c->conn[i].fd, .events = POLLIN};
    poll(c->poll, (nfds_t)n, PERIOD_MS);
    if (read(c->bell, &rings, sizeof rings) < 0) rings = 0;
    for (int i = 0; i < c->size; i++)
      if (c->conn[i].fd >= 0) read_lines(c, i);
    take_own_cause(c);
    if (now_s() >= due) {
      check_ranks(c);
      due = now_s() + PERIOD_MS / 1e3;
    }
    end_if_due(c);
  }
  Line l = {.kind = LINE_LEAVES};
  for (int i = 0; !c->over && i < c->size; i++)
    if (i != c->rank) send_line(c, i, &l);
  return NULL;
}

/* ---- begin and end ---- */

/* Two ranks are connected if one of them is a hub. */
static bool linked(const Supervisor *c, int peer) {
  return peer != c->rank && (is_hub(c, c->rank) || is_hub(c, peer));
}

static weft_status link_all(Supervisor *c, Net *net, weft_error *e) {
  for (int i = 0; i < c->size; i++)
    if (linked(c, i)) TRY(net_link(net, i, NET_CONTROL, &c->conn[i].fd, e));
  return WEFT_OK;
}

static int start_thread(Supervisor *c) {
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &old);
  int failed = pthread_create(&c->thread, NULL, supervise, c);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  c->has_thread = !failed;
  return failed;
}

static weft_status begin(Supervisor *c, Net *net, weft_error *e) {
  size_t n = (size_t)c->size;
  c->conn = mem_new(c->alloc, n * sizeof *c->conn);
  c->table = mem_new(c->alloc, n * sizeof *c->table);
  c->poll = mem_new(c->alloc, (n + 1) * sizeof *c->poll);
  c->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  for (int i = 0; c->conn && i < c->size; i++) c->conn[i].fd = -1;
  if (!c->conn || !c->table || !c->poll || c->bell < 0)
    return err_set(e, WEFT_ENOMEM, "no memory to watch %d processes", c->size);
  TRY(link_all(c, net, e));
  c->last = now_s();
  if (start_thread(c))
    return err_set(e, WEFT_ELIMIT, "cannot start the supervisor thread");
  return WEFT_OK;
}

weft_status supervisor_start(Supervisor **out, const weft_alloc *a, Net *net,
                             const SupervisorHost *host, weft_error *e) {
  Supervisor *c = mem_new(a, sizeof *c);
  *out = NULL;
  if (!c) return err_set(e, WEFT_ENOMEM, "no memory to watch %d processes", net->size);
  c->alloc = a;
  c->host = *host;
  c->rank = net->rank;
  c->size = net->size;
  c->bell = -1;
  pthread_condattr_t attr;
  pthread_condattr_init(&attr);
  pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
  pthread_mutex_init(&c->lock, NULL);
  pthread_cond_init(&c->ended, &attr);
  pthread_condattr_destroy(&attr);
  weft_status st = begin(c, net, e);
  if (st == WEFT_OK)
    *out = c;
  else
    supervisor_close(c);
  return st;
}

static void ring(Supervisor *c) {
  uint64_t one = 1;
  while (write(c->bell, &one, sizeof one) < 0 && errno == EINTR) continue;
}

void supervisor_fail(Supervisor *c, int culprit, weft_status code, const char *why) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  t.tv_sec += (time_t)ANSWER_S + 2;
  pthread_mutex_lock(&c->lock);
  if (!c->own.kind && !c->has_ended) {
    c->own = (Cause){.kind = culprit == c->rank ? CAUSE_GAVE_UP : CAUSE_MISSED,
                     .culprit = culprit,
                     .code = code};
    snprintf(c->own.why, sizeof c->own.why, "%s", why);
  }
  ring(c);
  while (!c->has_ended && pthread_cond_timedwait(&c->ended, &c->lock, &t) != ETIMEDOUT)
    continue;
  pthread_mutex_unlock(&c->lock);
}

void supervisor_close(Supervisor *c) {
  if (!c) return;
  pthread_mutex_lock(&c->lock);
  c->quit = true;
  pthread_mutex_unlock(&c->lock);
  if (c->has_thread) {
    ring(c);
    pthread_join(c->thread, NULL);
  }
  size_t n = (size_t)c->size;
  for (int i = 0; c->conn && i < c->size; i++)
    if (c->conn[i].fd >= 0) close(c->conn[i].fd);
  if (c->bell >= 0) close(c->bell);
  mem_free(c->alloc, c->poll, (n + 1) * sizeof *c->poll);
  mem_free(c->alloc, c->table, n * sizeof *c->table);
  mem_free(c->alloc, c->conn, n * sizeof *c->conn);
  pthread_cond_destroy(&c->ended);
  pthread_mutex_destroy(&c->lock);
  mem_free(c->alloc, c, sizeof *c);
}
