/* net.c - see net.h. */
#include "net.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

/* What the one who connects sends first. */
typedef struct Hello {
  char magic[8];
  int32_t from, to;
  uint32_t tag;
  uint8_t mac[SHA256_BYTES]; /* of all before */
} Hello;

typedef struct NetGuest {
  int fd, from;
  uint32_t tag;
} NetGuest;

static const char magic[8] = "weft-l1";
/* For who has connected to say the first word: others wait behind him. */
static const double FIRST_WORD_S = 2;

/* ---- sockets ---- */

static void prepare(int fd) {
  int on = 1;
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

bool net_ready(int fd, short events, double deadline) {
  struct pollfd p = {.fd = fd, .events = events};
  for (;;) {
    double left = deadline - now_s();
    int n = poll(&p, 1, left > 0 ? (int)(left * 1e3) + 1 : 0);
    if (n > 0) return true;
    if (n == 0 && left <= 0) return false;
    if (n < 0 && errno != EINTR) return false;
  }
}

static bool again(void) {
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

bool net_put(int fd, const void *p, size_t n, double deadline) {
  const char *from = p;
  while (n > 0) {
    ssize_t some = send(fd, from, n, MSG_NOSIGNAL);
    if (some < 0 && !again()) return false;
    if (some < 0 && !net_ready(fd, POLLOUT, deadline)) return false;
    if (some > 0) from += some, n -= (size_t)some;
  }
  return true;
}

bool net_get(int fd, void *p, size_t n, double deadline) {
  char *to = p;
  while (n > 0) {
    ssize_t some = recv(fd, to, n, 0);
    if (some == 0 || (some < 0 && !again())) return false;
    if (some < 0 && !net_ready(fd, POLLIN, deadline)) return false;
    if (some > 0) to += some, n -= (size_t)some;
  }
  return true;
}

static struct addrinfo *resolve(const char *host, int port, int flags, int *why) {
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = flags}, *list = NULL;
  char text[16];
  snprintf(text, sizeof text, "%d", port);
  *why = getaddrinfo(host, text, &hints, &list);
  return *why ? NULL : list;
}

static int listen_at(const struct addrinfo *a) {
  int on = 1, fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
  if (fd < 0) return -1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, SOMAXCONN) == 0) {
    prepare(fd);
    return fd;
  }
  int why = errno;
  close(fd);
  errno = why;
  return -1;
}

/* An address of IPv6 that means all of them takes those of IPv4, too. */
int net_listen(const char *host, int port) {
  int why, fd = -1;
  struct addrinfo *list = resolve(host, port, AI_PASSIVE, &why);
  errno = EADDRNOTAVAIL;
  for (int six = !host; six >= 0 && fd < 0; six--)
    for (struct addrinfo *a = list; a && fd < 0; a = a->ai_next)
      if (host || (a->ai_family == AF_INET6) == six) fd = listen_at(a);
  if (list) freeaddrinfo(list);
  return fd;
}

int net_port(int fd) {
  struct sockaddr_storage s;
  socklen_t n = sizeof s;
  if (getsockname(fd, (struct sockaddr *)&s, &n)) return 0;
  return ntohs(s.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&s)->sin6_port
                                       : ((struct sockaddr_in *)&s)->sin_port);
}

static int connect_to(const struct addrinfo *a, double deadline) {
  int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol), why = 0;
  socklen_t n = sizeof why;
  if (fd < 0) return -1;
  prepare(fd);
  if (connect(fd, a->ai_addr, a->ai_addrlen) == 0) return fd;
  why = errno;
  if (why == EINPROGRESS) {
    why = ETIMEDOUT;
    if (net_ready(fd, POLLOUT, deadline)) getsockopt(fd, SOL_SOCKET, SO_ERROR, &why, &n);
  }
  if (!why) return fd;
  close(fd);
  errno = why;
  return -1;
}

/* Who sends SYNs to a machine that swallows them is answered by nobody: an attempt gets
 * five seconds. */
int net_reach(const char *host, int port, double deadline, char why[NET_TEXT]) {
  for (;;) {
    int bad, fd = -1;
    struct addrinfo *list = resolve(host, port, 0, &bad);
    if (!list) snprintf(why, NET_TEXT, "%s", gai_strerror(bad));
    for (struct addrinfo *a = list; a && fd < 0; a = a->ai_next) {
      fd = connect_to(a, MIN(deadline, now_s() + 5));
      if (fd < 0) snprintf(why, NET_TEXT, "%s", strerror(errno));
    }
    if (list) freeaddrinfo(list);
    if (fd >= 0) return fd;
    if (now_s() + 0.1 > deadline || bad == EAI_NONAME) return -1;
    usleep(50000);
  }
}

void net_random(void *p, size_t n) {
  char *to = p;
  while (n > 0) {
    ssize_t some = getrandom(to, MIN(n, (size_t)256), 0);
    if (some > 0) to += some, n -= (size_t)some;
  }
}

void net_name(int fd, char host[NET_HOST]) {
  struct sockaddr_storage s;
  socklen_t n = sizeof s;
  host[0] = 0;
  if (getpeername(fd, (struct sockaddr *)&s, &n) == 0)
    getnameinfo((struct sockaddr *)&s, n, host, NET_HOST, NULL, 0, NI_NUMERICHOST);
}

bool net_loopback(int fd) {
  char host[NET_HOST];
  net_name(fd, host);
  return strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0 ||
         strncmp(host, "::ffff:127.", 11) == 0;
}

/* ---- links ---- */

/* A rank has a connection to each member of its groups. */
static void allow_many_files(void) {
  struct rlimit r;
  if (getrlimit(RLIMIT_NOFILE, &r) || r.rlim_cur == r.rlim_max) return;
  r.rlim_cur = r.rlim_max;
  setrlimit(RLIMIT_NOFILE, &r);
}

weft_status net_open(Net *n, const weft_alloc *a, int rank, int size, const char *host,
                     weft_error *e) {
  *n = (Net){.alloc = a, .rank = rank, .size = size, .door = -1, .seconds = 30};
  n->peer = mem_new(a, (size_t)size * sizeof *n->peer);
  if (!n->peer) return err_set(e, WEFT_ENOMEM, "no memory for %d processes", size);
  allow_many_files();
  n->door = net_listen(host, 0);
  if (n->door >= 0) return WEFT_OK;
  err_set(e, WEFT_EUSAGE, "rank %d cannot listen for the others at %s: %s", rank,
          host ? host : "any address", strerror(errno));
  net_close(n);
  return WEFT_EUSAGE;
}

void net_close(Net *n) {
  if (!n->peer) return;
  for (int i = 0; i < n->nguest; i++)
    close(n->guest[i].fd);
  if (n->door >= 0) close(n->door);
  mem_free(n->alloc, n->guest, (size_t)n->capguest * sizeof *n->guest);
  mem_free(n->alloc, n->peer, (size_t)n->size * sizeof *n->peer);
  *n = (Net){.door = -1};
}

static void seal(const Net *n, Hello *h) {
  sha256_hmac(n->key, sizeof n->key, h, offsetof(Hello, mac), h->mac);
}

static weft_status go_to(Net *n, int peer, uint32_t tag, int *fd, weft_error *e) {
  const NetPeer *p = &n->peer[peer];
  char why[NET_TEXT] = "";
  double deadline = now_s() + n->seconds;
  Hello h = {.from = n->rank, .to = peer, .tag = tag};
  memcpy(h.magic, magic, sizeof h.magic);
  seal(n, &h);
  *fd = net_reach(p->host, p->port, deadline, why);
  if (*fd >= 0 && net_put(*fd, &h, sizeof h, deadline)) return WEFT_OK;
  if (*fd >= 0) close(*fd);
  return err_set(e, WEFT_EUSAGE, "rank %d cannot reach rank %d at %s:%d: %s", n->rank,
                 peer, p->host, p->port, why[0] ? why : "the connection is closed");
}

/* The oldest one: a rank that is ahead may have come for the next link already. */
static int find_guest(const Net *n, int from, uint32_t tag) {
  for (int i = 0; i < n->nguest; i++)
    if (n->guest[i].from == from && n->guest[i].tag == tag) return i;
  return -1;
}

static bool room_for_guest(Net *n) {
  if (n->nguest < n->capguest) return true;
  int cap = MAX(2 * n->capguest, 16);
  NetGuest *g = mem_resize(n->alloc, n->guest, (size_t)n->capguest * sizeof *g,
                           (size_t)cap * sizeof *g);
  if (!g) return false;
  n->guest = g;
  n->capguest = cap;
  return true;
}

/* Takes in who comes next. A stranger is sent away without a word. */
static bool let_in(Net *n) {
  Hello h, mine;
  int fd = accept(n->door, NULL, NULL);
  if (fd < 0) return true;
  prepare(fd);
  bool known = net_get(fd, &h, sizeof h, now_s() + FIRST_WORD_S);
  if (known) {
    mine = h;
    seal(n, &mine);
    known = memcmp(h.magic, magic, sizeof magic) == 0 && h.to == n->rank &&
            h.from > n->rank && h.from < n->size && sha256_same(h.mac, mine.mac);
  }
  if (!known || !room_for_guest(n)) {
    close(fd);
    return !known;
  }
  n->guest[n->nguest++] = (NetGuest){fd, h.from, h.tag};
  return true;
}

static weft_status take_in(Net *n, int peer, uint32_t tag, int *fd, weft_error *e) {
  double deadline = now_s() + n->seconds;
  for (;;) {
    int i = find_guest(n, peer, tag);
    if (i >= 0) {
      *fd = n->guest[i].fd;
      n->nguest--;
      memmove(&n->guest[i], &n->guest[i + 1], (size_t)(n->nguest - i) * sizeof *n->guest);
      return WEFT_OK;
    }
    if (!net_ready(n->door, POLLIN, deadline))
      return err_set(e, WEFT_EUSAGE, "rank %d: rank %d has not connected within %.0f s",
                     n->rank, peer, n->seconds);
    if (!let_in(n)) return err_set(e, WEFT_ENOMEM, "no memory for connections");
  }
}

weft_status net_link(Net *n, int peer, uint32_t tag, int *fd, weft_error *e) {
  assert(peer != n->rank && peer >= 0 && peer < n->size);
  return n->rank > peer ? go_to(n, peer, tag, fd, e) : take_in(n, peer, tag, fd, e);
}
