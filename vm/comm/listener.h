/* listener.h - a listening socket with many handshakes in progress at once.
 *
 * Anyone who reaches the port can connect. Until its first message is complete, a
 * connection is pending: it takes a slot, and nothing waits for it. It is closed at once
 * if its message begins with the wrong bytes, after LISTENER_S if the message is
 * incomplete, and if it is the oldest when all slots are taken. So a silent, slow or
 * endless connection delays no rank. */
#ifndef WEFT_LISTENER_H
#define WEFT_LISTENER_H

#include "socket.h"

enum {
  LISTENER_PENDING = 1024, /* pending connections at most */
  LISTENER_MESSAGE = 256,  /* the longest first message */
  LISTENER_S = 10,         /* timeout of a first message, seconds */
  MAGIC = 8,
  NONCE = 16
};

/* What a listener with `asks` sends as soon as it has accepted. */
typedef struct Question {
  char magic[MAGIC];
  uint8_t nonce[NONCE];
} Question;

typedef struct Listener {
  const weft_alloc *alloc;
  int fd;            /* -1: none */
  const char *magic; /* how every first message begins */
  size_t message;    /* bytes of a first message */
  bool asks;
  struct Pending *pending;
  struct pollfd *poll; /* [cap + 1] */
  int n, cap;
} Listener;

/* A connection whose first message is complete; nothing beyond it was read. */
typedef struct Accepted {
  int fd;               /* owned by the caller; -1: none arrived in time */
  uint8_t nonce[NONCE]; /* the nonce of the question, if the listener asks */
  char message[LISTENER_MESSAGE];
} Accepted;

/* Takes ownership of the socket. */
void listener_init(Listener *l, const weft_alloc *a, int fd, const char magic[MAGIC],
                   size_t message, bool asks);
void listener_close(Listener *l); /* with all pending connections */
/* The next complete connection. Errors are local ones only: no memory, no descriptors. */
weft_status listener_next(Listener *l, Until u, Accepted *out, weft_error *e);

#endif
