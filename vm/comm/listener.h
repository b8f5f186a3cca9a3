/* listener.h - a listening socket at which many handshakes are under way at a time.
 *
 * Whoever reaches the port can connect. Until its first message has come whole, a
 * connection is pending: it has a slot, and nothing waits for it. One that begins with
 * other bytes than it should is closed at once, one that takes longer than LISTENER_S is
 * closed, too, and when all slots are taken the oldest one makes room for the newest. So
 * a connection that is silent, slow or endless delays nobody. */
#ifndef WEFT_LISTENER_H
#define WEFT_LISTENER_H

#include "socket.h"

enum {
  LISTENER_PENDING = 1024, /* slots */
  LISTENER_MESSAGE = 256,  /* the longest first message */
  LISTENER_S = 10,         /* for a first message */
  MAGIC = 8,
  NONCE = 16
};

/* What a listener that asks sends as soon as a connection is there. */
typedef struct Question {
  char magic[MAGIC];
  uint8_t nonce[NONCE];
} Question;

typedef struct Listener {
  const weft_alloc *alloc;
  int fd;            /* -1: none */
  const char *magic; /* with which a first message begins */
  size_t message;    /* its bytes */
  bool asks;
  struct Pending *pending;
  struct pollfd *poll; /* [cap + 1] */
  int n, cap;
} Listener;

/* A connection whose first message is whole; nothing of what follows it was read. */
typedef struct Accepted {
  int fd;               /* -1: none came in time */
  uint8_t nonce[NONCE]; /* of the question, if the listener asks */
  char message[LISTENER_MESSAGE];
} Accepted;

/* Takes the socket. */
void listener_init(Listener *l, const weft_alloc *a, int fd, const char magic[MAGIC],
                   size_t message, bool asks);
void listener_close(Listener *l); /* and all that is pending */
/* The next one, which belongs to the caller then. An error is one of this process: no
 * memory, no descriptors. */
weft_status listener_next(Listener *l, Until u, Accepted *out, weft_error *e);

#endif
