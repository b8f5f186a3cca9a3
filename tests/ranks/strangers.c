/* strangers.c - see strangers.h. */
#include "strangers.h"

#include <arpa/inet.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

typedef enum { SILENT, GARBAGE, HALF, FORGED, ENDLESS, KINDS } Kind;

typedef struct Crowd {
  int port, n;
  const void *message;
  size_t size;
  struct pollfd *fd;
  size_t *heard; /* bytes received per connection */
} Crowd;

/* The most that may be received: a question, and a refusal if it sends a rank's message.
 * An accepted rank would receive a table, too. */
static size_t most_heard(Kind k) {
  bool speaks = k == HALF || k == FORGED;
  return sizeof(Question) + (speaks ? 4 + NET_TEXT + 2 * NONCE + 2 * SHA256_BYTES : 0);
}

static void fail(const char *what) {
  printf("%s\n", what);
  fflush(stdout);
  _exit(EXIT_FAILURE);
}

static void say(int fd, const void *p, size_t n) {
  if (send(fd, p, n, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) return; /* it was closed */
}

/* Sends the first bytes of connection i. */
static void begin(const Crowd *c, int i) {
  char garbage[300];
  int fd = c->fd[i].fd;
  net_random(garbage, sizeof garbage);
  switch ((Kind)(i % KINDS)) {
  case GARBAGE: say(fd, garbage, sizeof garbage); break;
  case HALF: say(fd, c->message, c->size / 2); break;
  case FORGED: say(fd, c->message, c->size); break;
  case ENDLESS: c->fd[i].events |= POLLOUT; break;
  default: break;
  }
}

static void connect_one(const Crowd *c, int i) {
  struct sockaddr_in to = {.sin_family = AF_INET,
                           .sin_port = htons((uint16_t)c->port),
                           .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) fail("no socket for a stranger");
  c->fd[i] = (struct pollfd){.fd = fd, .events = POLLIN};
  if (connect(fd, (struct sockaddr *)&to, sizeof to)) fail("a stranger cannot connect");
  begin(c, i);
}

/* A closed connection is not opened again. */
static void go_on(Crowd *c, int i) {
  static const char zeros[4096];
  char chunk[4096];
  int fd = c->fd[i].fd;
  if (c->fd[i].revents & POLLOUT) say(fd, zeros, sizeof zeros);
  if (!(c->fd[i].revents & (POLLIN | POLLERR | POLLHUP))) return;
  ssize_t n = recv(fd, chunk, sizeof chunk, MSG_DONTWAIT);
  if (n > 0) {
    c->heard[i] += (size_t)n;
    if (c->heard[i] > most_heard((Kind)(i % KINDS))) fail("a stranger was let in");
    return;
  }
  close(fd);
  c->fd[i].fd = -1;
}

static void live(Crowd *c) {
  c->fd = calloc((size_t)c->n, sizeof *c->fd);
  c->heard = calloc((size_t)c->n, sizeof *c->heard);
  for (int i = 0; i < c->n; i++) connect_one(c, i);
  printf("all are there\n");
  fflush(stdout);
  for (;;) {
    poll(c->fd, (nfds_t)c->n, 100);
    for (int i = 0; i < c->n; i++)
      if (c->fd[i].fd >= 0 && c->fd[i].revents) go_on(c, i);
  }
}

bool strangers_fit(int n) {
  struct rlimit r;
  if (getrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_cur < r.rlim_max) {
    r.rlim_cur = r.rlim_max;
    setrlimit(RLIMIT_NOFILE, &r);
  }
  if (getrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_cur >= (rlim_t)n + 100) return true;
  printf("strangers: skipped: a process may not have %d files open here\n", n + 100);
  return false;
}

static ssize_t hear(int fd, char *text, size_t size) {
  ssize_t n = read(fd, text, size - 1);
  text[MAX(n, 0)] = 0;
  return n;
}

Strangers strangers_begin(int port, int n, const void *message, size_t size) {
  int ends[2];
  char text[NET_TEXT];
  if (pipe(ends)) return (Strangers){-1, -1};
  fflush(NULL);
  Strangers s = {.pid = fork(), .out = ends[0]};
  if (s.pid == 0) {
    dup2(ends[1], STDOUT_FILENO);
    close(ends[0]);
    close(ends[1]);
    live(&(Crowd){.port = port, .n = n, .message = message, .size = size});
  }
  close(ends[1]);
  if (hear(s.out, text, sizeof text) <= 0 || strcmp(text, "all are there\n") != 0)
    fprintf(stderr, "strangers: %s\n", text);
  return s;
}

bool strangers_end(Strangers *s, char why[NET_TEXT]) {
  int status = 0;
  bool alone = waitpid(s->pid, &status, WNOHANG) == s->pid;
  if (!alone) {
    kill(s->pid, SIGKILL);
    waitpid(s->pid, &status, 0);
  }
  hear(s->out, why, NET_TEXT);
  close(s->out);
  return !alone;
}
