/* socket.h - TCP sockets that never block: every call that waits takes a deadline. */
#ifndef WEFT_SOCKET_H
#define WEFT_SOCKET_H

#include "vm/base/base.h"

enum { NET_HOST = 128, NET_TEXT = 640 };

/* When a wait ends: at a time of now_s(), or soon after a flag is set (each may be
 * NULL). */
typedef struct Until {
  double deadline;
  const StopFlag *stop;  /* by the user */
  const StopFlag *ended; /* the run has ended for another reason */
} Until;
static inline Until until_or(double seconds, const StopFlag *stop) {
  return (Until){.deadline = now_s() + seconds, .stop = stop};
}
static inline Until until_in(double seconds) { return until_or(seconds, NULL); }
static inline bool until_stopped(Until u) { return u.stop && *u.stop; }
static inline bool until_ended(Until u) { return u.ended && *u.ended; }
/* The timeout in milliseconds for one poll() of such a wait; 0: it is over. */
int until_ms(Until u);

/* A listening socket; port 0: any; `host` NULL: all addresses. -1 with errno. */
int net_listen(const char *host, int port);
int net_port(int fd); /* the port of a listening socket */
/* Connects; retries, since the peer may not listen yet. Several hosts, separated by
 * commas, are tried in turn. -1 with `why`. */
int net_reach(const char *hosts, int port, Until u, char why[NET_TEXT]);
/* Whether a connection is one of a socket with itself; net_reach makes none. */
bool net_is_self(int fd);
/* Waits for `events` of poll(); false: the wait is over. */
bool net_ready(int fd, short events, Until u);
/* All n bytes, or false: closed, broken or past the deadline. */
bool net_put(int fd, const void *p, size_t n, Until u);
bool net_get(int fd, void *p, size_t n, Until u);
/* Sets nonblocking, no delay (TCP_NODELAY) and close-on-exec. */
void net_prepare(int fd);
/* True if a call failed with errno only because it would block. */
bool net_again(void);

/* Unpredictable bytes. */
void net_random(void *p, size_t n);
/* The address of this end in digits; "" if both ends are on this machine. */
void net_own_host(int fd, char host[NET_HOST]);
/* The address of the other end. */
void net_peer_host(int fd, char host[NET_HOST]);
/* Whether a socket listens where only this machine can connect. */
bool net_is_loopback(int fd);
/* True if the string can be a host name or an address: a peer's claim is checked before
 * it is used or shown. */
bool net_is_host(const char *host);

#endif
