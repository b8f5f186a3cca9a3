/* net.h - TCP connections between the processes of a run.
 *
 * A Net is one process's end of them: a listening socket, the shared key, and the
 * addresses of all ranks. A link is a connection of two ranks with a tag. The higher rank
 * connects, which needs no accept to be pending; the lower one picks the link out of the
 * connections that have arrived. So links may be made in any order that both sides agree
 * on. The connecting side proves that it has the key; nothing is encrypted. */
#ifndef WEFT_NET_H
#define WEFT_NET_H

#include "vm/comm/listener.h"
#include "vm/base/sha256.h"

typedef struct NetPeer {
  char host[NET_HOST]; /* a name, an address in digits, or several: see net_reach */
  int32_t port;
} NetPeer;

typedef struct Net {
  const weft_alloc *alloc;
  int rank, size;
  double seconds;        /* timeout for a link */
  bool watched;          /* the supervisor ends the wait for a peer that does not come */
  const StopFlag *stop;  /* set by the user; ends these waits; NULL: nothing does */
  const StopFlag *ended; /* set when the run has ended; likewise */
  uint8_t key[SHA256_BYTES];
  NetPeer *peer; /* [size] */
  Listener listener;
  struct NetGuest *guest; /* accepted connections that no net_link has asked for yet */
  int nguest, capguest;
} Net;

/* Tags of links. Those of groups begin at NET_GROUP. */
enum { NET_CONTROL, NET_RAW, NET_PAIR, NET_GROUP };

/* Listens at `host` (NULL: all addresses), any port. The caller fills key, peer and
 * seconds before the first link. */
weft_status net_open(Net *n, const weft_alloc *a, int rank, int size, const char *host,
                     weft_error *e);
void net_close(Net *n); /* a zeroed one is fine */
/* This rank's end of the link with this tag to another rank. WEFT_ERUN if it does not
 * come about: the peer is one of the run, so its process or machine, or the network, has
 * failed. WEFT_EINTR after *stop. */
weft_status net_link(Net *n, int peer, uint32_t tag, int *fd, weft_error *e);

#endif
