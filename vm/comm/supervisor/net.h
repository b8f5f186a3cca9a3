/* net.h - TCP connections between the processes of a run.
 *
 * A Net is what one process has of them: a socket that listens, the key that all of them
 * have, and where the others listen. A link is a connection of two ranks with a tag: the
 * higher one connects, which needs nobody to accept yet, the lower one takes it out of
 * those that have come, so that links may be made in any order that both sides agree on.
 * Who connects says which rank it is and shows that it has the key; nothing is encrypted.
 */
#ifndef WEFT_NET_H
#define WEFT_NET_H

#include "vm/comm/listener.h"
#include "vm/base/sha256.h"

typedef struct NetPeer {
  char host[NET_HOST]; /* a number or a name */
  int32_t port;
} NetPeer;

typedef struct Net {
  const weft_alloc *alloc;
  int rank, size;
  double seconds;       /* for which a link is waited for */
  const StopFlag *stop; /* ends these waits; NULL: nothing does */
  uint8_t key[SHA256_BYTES];
  NetPeer *peer; /* [size] */
  Listener listener;
  struct NetGuest *guest; /* connections that nobody has taken yet */
  int nguest, capguest;
} Net;

/* What links are for. Those of groups begin at NET_GROUP. */
enum { NET_CONTROL, NET_RAW, NET_PAIR, NET_GROUP };

/* Listens at `host` (NULL: all addresses) and any port. The caller fills key, peer and
 * seconds before the first link. */
weft_status net_open(Net *n, const weft_alloc *a, int rank, int size, const char *host,
                     weft_error *e);
void net_close(Net *n); /* one that was never opened is zero */
/* An endpoint of the link with this tag to another rank. */
weft_status net_link(Net *n, int peer, uint32_t tag, int *fd, weft_error *e);

#endif
