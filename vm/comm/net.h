/* net.h - TCP connections between the processes of a run.
 *
 * A Net is the door of one process: a socket that listens, the key that all of them have,
 * and where the others listen. A link is a connection of two ranks with a tag: the higher
 * one connects, which needs nobody to accept yet, the lower one takes it out of those
 * that have come, so that links may be made in any order that both sides agree on. Who
 * connects says who he is and shows that he has the key; nothing is encrypted. */
#ifndef WEFT_NET_H
#define WEFT_NET_H

#include "vm/base/base.h"
#include "vm/base/sha256.h"

enum { NET_HOST = 64, NET_TEXT = 300 };

typedef struct NetPeer {
  char host[NET_HOST]; /* a number or a name */
  int32_t port;
} NetPeer;

typedef struct Net {
  const weft_alloc *alloc;
  int rank, size;
  int door;       /* -1: none */
  double seconds; /* for which a link is waited for */
  uint8_t key[SHA256_BYTES];
  NetPeer *peer;          /* [size] */
  struct NetGuest *guest; /* connections that nobody has taken yet */
  int nguest, capguest;
} Net;

/* What links are for. Those of groups begin at NET_GROUP. */
enum { NET_CONTROL, NET_RAW, NET_PAIR, NET_GROUP };

/* Opens a door at `host` (NULL: all addresses) and any port. The caller fills key, peer
 * and seconds before the first link. */
weft_status net_open(Net *n, const weft_alloc *a, int rank, int size, const char *host,
                     weft_error *e);
void net_close(Net *n);
int net_port(int fd); /* where a socket listens */
/* An endpoint of the link with this tag to another rank. */
weft_status net_link(Net *n, int peer, uint32_t tag, int *fd, weft_error *e);

/* ---- sockets, also for the rendezvous ---- */
/* Listens; port 0: any. -1 with errno. */
int net_listen(const char *host, int port);
/* Tries until `deadline`, by now_s(), as nobody may listen there yet. -1 with `why`. */
int net_reach(const char *host, int port, double deadline, char why[NET_TEXT]);
/* All n bytes, or false: closed, broken or too late. */
bool net_put(int fd, const void *p, size_t n, double deadline);
bool net_get(int fd, void *p, size_t n, double deadline);
/* Waits for `events` of poll(); false: too late. */
bool net_ready(int fd, short events, double deadline);
/* Unpredictable bytes. */
void net_random(void *p, size_t n);
/* The number of the address at the other end. */
void net_name(int fd, char host[NET_HOST]);
bool net_loopback(int fd); /* whether the other end is on this machine */

#endif
