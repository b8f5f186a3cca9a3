/* socket.h - TCP sockets that never block: each call that waits is told for how long. */
#ifndef WEFT_SOCKET_H
#define WEFT_SOCKET_H

#include "vm/base/base.h"

enum { NET_HOST = 128, NET_TEXT = 640 };

/* When a wait ends: at a moment of now_s(), or soon after *stop is set (NULL: it is not
 * looked at). */
typedef struct Until {
  double deadline;
  const StopFlag *stop;
} Until;
static inline Until until_in(double seconds) { return (Until){now_s() + seconds, NULL}; }
static inline bool until_stopped(Until u) { return u.stop && *u.stop; }
/* The milliseconds of one poll() of such a wait; 0: it is over. */
int until_ms(Until u);

/* Listens; port 0: any. `host` NULL: at all addresses. -1 with errno. */
int net_listen(const char *host, int port);
int net_port(int fd); /* where a socket listens */
/* Tries again until it is too late, as nobody may listen there yet. -1 with `why`. */
int net_reach(const char *host, int port, Until u, char why[NET_TEXT]);
/* Waits for `events` of poll(); false: the wait is over. */
bool net_ready(int fd, short events, Until u);
/* All n bytes, or false: closed, broken or too late. */
bool net_put(int fd, const void *p, size_t n, Until u);
bool net_get(int fd, void *p, size_t n, Until u);
/* Never to block, to send at once, and not for programs that this one starts. */
void net_prepare(int fd);
/* Whether a call failed only because nothing can be moved now (of errno). */
bool net_again(void);

/* Unpredictable bytes. */
void net_random(void *p, size_t n);
/* The address of this end as a number; "" if both ends are on this machine. */
void net_own_host(int fd, char host[NET_HOST]);
/* That of the other end. */
void net_peer_host(int fd, char host[NET_HOST]);
/* Whether it can be a name or an address: what another process says of itself is looked
 * at before it is used or shown. */
bool net_is_host(const char *host);

#endif
