/* socket.c - see socket.h. */
#include "socket.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

/* poll is not interrupted if the signal handler that sets the flag runs in another
 * thread, so the flag is checked at this interval. */
enum { LOOK_MS = 50 };

/* ---- waiting ---- */

int until_ms(Until u) {
  double left = u.deadline - now_s();
  if (left <= 0 || until_stopped(u) || until_ended(u)) return 0;
  int ms = left < 1e6 ? (int)(left * 1e3) + 1 : 1000000000;
  return u.stop || u.ended ? MIN(ms, LOOK_MS) : ms;
}

bool net_ready(int fd, short events, Until u) {
  struct pollfd p = {.fd = fd, .events = events};
  for (;;) {
    int ms = until_ms(u), n = poll(&p, 1, ms);
    if (n > 0) return true;
    if (n < 0 && errno != EINTR) return false;
    if (ms == 0) return false;
  }
}

bool net_again(void) { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

bool net_put(int fd, const void *p, size_t n, Until u) {
  const char *from = p;
  while (n > 0) {
    ssize_t some = send(fd, from, n, MSG_NOSIGNAL);
    if (some < 0 && !net_again()) return false;
    if (some < 0 && !net_ready(fd, POLLOUT, u)) return false;
    if (some > 0) from += some, n -= (size_t)some;
  }
  return true;
}

bool net_get(int fd, void *p, size_t n, Until u) {
  char *to = p;
  while (n > 0) {
    ssize_t some = recv(fd, to, n, 0);
    if (some == 0 || (some < 0 && !net_again())) return false;
    if (some < 0 && !net_ready(fd, POLLIN, u)) return false;
    if (some > 0) to += some, n -= (size_t)some;
  }
  return true;
}

/* ---- listening and connecting ---- */

void net_prepare(int fd) {
  int on = 1;
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

static struct addrinfo *resolve(const char *host, int port, int flags, int *why) {
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = flags}, *list = NULL;
  char text[16];
  snprintf(text, sizeof text, "%d", port);
  *why = getaddrinfo(host, text, &hints, &list);
  return *why ? NULL : list;
}

static int listen_at(const struct addrinfo *a) {
  int on = 1, off = 0;
  int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
  if (fd < 0) return -1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (a->ai_family == AF_INET6)
    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, SOMAXCONN) == 0) {
    net_prepare(fd);
    return fd;
  }
  int why = errno;
  close(fd);
  errno = why;
  return -1;
}

/* "::" accepts IPv4 connections, too, whatever net.ipv6.bindv6only says. */
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

/* Where nobody listens at a port of this machine, the system may choose the same port for
 * this end, and TCP connects the socket with itself (a simultaneous open). */
bool net_is_self(int fd) {
  struct sockaddr_storage own = {0}, other = {0};
  socklen_t n = sizeof own, m = sizeof other;
  return getsockname(fd, (struct sockaddr *)&own, &n) == 0 &&
         getpeername(fd, (struct sockaddr *)&other, &m) == 0 && n == m &&
         memcmp(&own, &other, n) == 0;
}

/* Without a wait for last packets (TIME_WAIT), in which rank 0 could not listen there. */
static void close_at_once(int fd) {
  struct linger none = {.l_onoff = 1};
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof none);
  close(fd);
}

static int start_connection(const struct addrinfo *a, Until u) {
  int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol), why = 0;
  socklen_t n = sizeof why;
  if (fd < 0) return -1;
  net_prepare(fd);
  if (connect(fd, a->ai_addr, a->ai_addrlen) == 0) return fd;
  why = errno;
  if (why == EINPROGRESS) {
    why = ETIMEDOUT;
    if (net_ready(fd, POLLOUT, u)) getsockopt(fd, SOL_SOCKET, SO_ERROR, &why, &n);
  }
  if (!why) return fd;
  close(fd);
  errno = why;
  return -1;
}

static int connect_to(const struct addrinfo *a, Until u) {
  int fd = start_connection(a, u);
  if (fd < 0 || !net_is_self(fd)) return fd;
  close_at_once(fd);
  errno = ECONNREFUSED;
  return -1;
}

/* One attempt. A firewall may drop the SYN without an answer, so an address gets five
 * seconds. */
static int reach(const char *host, int port, Until u, char why[NET_TEXT]) {
  int bad, fd = -1;
  struct addrinfo *list = resolve(host, port, 0, &bad);
  if (!list) snprintf(why, NET_TEXT, "%s", gai_strerror(bad));
  for (struct addrinfo *a = list; a && fd < 0; a = a->ai_next) {
    Until try = u;
    double soon = now_s() + 5;
    try.deadline = MIN(u.deadline, soon);
    fd = connect_to(a, try);
    if (fd < 0) snprintf(why, NET_TEXT, "%s", strerror(errno));
  }
  if (list) freeaddrinfo(list);
  return fd;
}

/* A name that is not known may be known later: that of a pod appears when the pod is
 * ready. */
int net_reach(const char *hosts, int port, Until u, char why[NET_TEXT]) {
  for (;;) {
    char host[NET_HOST];
    for (const char *s = hosts; *s; s += strcspn(s, ","), s += *s == ',') {
      snprintf(host, sizeof host, "%.*s", (int)strcspn(s, ","), s);
      int fd = reach(host, port, u, why);
      if (fd >= 0) return fd;
    }
    if (now_s() + 0.1 > u.deadline || !until_ms(u)) return -1;
    usleep(50000);
  }
}

/* ---- helpers ---- */

void net_random(void *p, size_t n) {
  char *to = p;
  while (n > 0) {
    ssize_t some = getrandom(to, MIN(n, (size_t)256), 0);
    if (some > 0) to += some, n -= (size_t)some;
  }
}

typedef int (*NameOf)(int fd, struct sockaddr *s, socklen_t *n);

int net_port(int fd) {
  struct sockaddr_storage s;
  socklen_t n = sizeof s;
  if (getsockname(fd, (struct sockaddr *)&s, &n)) return 0;
  return ntohs(s.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&s)->sin6_port
                                       : ((struct sockaddr_in *)&s)->sin_port);
}

/* An IPv4 address that arrives at an IPv6 socket (v4-mapped) is shown as IPv4. */
static void host_of(int fd, NameOf name, char host[NET_HOST]) {
  static const char mapped[] = "::ffff:";
  struct sockaddr_storage s;
  socklen_t n = sizeof s;
  size_t skip = strlen(mapped);
  host[0] = 0;
  if (name(fd, (struct sockaddr *)&s, &n) == 0)
    getnameinfo((struct sockaddr *)&s, n, host, NET_HOST, NULL, 0, NI_NUMERICHOST);
  if (strncmp(host, mapped, skip) == 0 && strchr(host, '.'))
    memmove(host, host + skip, strlen(host + skip) + 1);
}

void net_peer_host(int fd, char host[NET_HOST]) { host_of(fd, getpeername, host); }

/* Within one machine both ends have the same address or loopback addresses. */
void net_own_host(int fd, char host[NET_HOST]) {
  char other[NET_HOST];
  host_of(fd, getsockname, host);
  net_peer_host(fd, other);
  if (strcmp(host, other) == 0 || strncmp(other, "127.", 4) == 0) host[0] = 0;
}

bool net_is_loopback(int fd) {
  char host[NET_HOST];
  host_of(fd, getsockname, host);
  return strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0;
}

bool net_is_host(const char *host) {
  size_t n = strspn(host, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                          "0123456789.:-_%");
  return n > 0 && n < NET_HOST && !host[n];
}
