/* tcp_int.h - shared by the files of the TCP backend.
 *
 * Every group and every pair of ranks has its own connections, on which operations run in
 * the order of their starts, so no unexpected data can arrive. All data moves inside
 * start and wait: a wait for one operation makes progress on all operations that this
 * rank has started. Sums are made in group order and have the bits of virtual ranks. */
#ifndef WEFT_TCP_INT_H
#define WEFT_TCP_INT_H

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

#include "vm/comm/supervisor/net.h"
#include "vm/comm/world.h"

typedef struct TcpWorld {
  const weft_alloc *alloc;
  Net net;
  int *raw;             /* [size]: links for host messages, made on first use */
  int bell;             /* an eventfd, written when the world has ended */
  pthread_mutex_t lock; /* guards the reason */
  StopFlag ended;
  weft_status code;
  int culprit; /* -1: unknown */
  char why[768];
} TcpWorld;

typedef struct TcpHandle {
  CommOp op;
  bool done;
  int next; /* in the queue of its communicator; -1: the last */
} TcpHandle;

/* Operations in the order of their starts; only the head moves data. */
typedef struct TcpQueue {
  int head, tail; /* -1: empty */
} TcpQueue;

/* Progress of the head with one member: bytes sent and received. */
typedef struct TcpPeer {
  int fd; /* -1: this rank itself */
  uint64_t sent, got;
} TcpPeer;

typedef struct TcpGroup {
  int n, me;        /* members; this rank's index; 0 members: not one of them */
  const int *rank;  /* [n], world ranks */
  TcpPeer *peer;    /* [n] */
  char *stage;      /* [n][TCP_STAGE]: received parts to be reduced */
  uint64_t reduced; /* bytes of the head that are reduced */
  TcpQueue queue;
} TcpGroup;

typedef struct TcpPair {
  int rank, fd;
  TcpQueue out, in;
  uint64_t sent, got;
} TcpPair;

typedef struct TcpEndpoint {
  TcpWorld *w;
  TcpGroup *group;
  int ngroup;
  TcpPair *pair;
  int npair;
  TcpHandle *handle;
  int nhandle;
  struct pollfd *poll; /* room for all connections and the eventfd */
  int npoll;           /* entries in use */
  size_t block;        /* bytes of this block, which holds all of these */
} TcpEndpoint;

enum { TCP_STAGE = 1 << 16, TCP_SMALL = 2048 };

/* tcp.c */
bool tcp_ended(TcpWorld *w);
/* Why the world has ended. */
weft_status tcp_why(TcpWorld *w, weft_error *e);
void tcp_end(TcpWorld *w, int rank, weft_status code, const char *why);
/* A link to another rank; a failure ends the world. */
weft_status tcp_link(World *world, int peer, uint32_t tag, int *fd, weft_error *e);
/* Like send and recv, but never block: bytes moved; 0 if it would block; -1 if the peer
 * has closed, which is an error. */
int64_t tcp_push(int fd, const void *p, uint64_t n);
int64_t tcp_pull(int fd, void *p, uint64_t n);

/* tcp_group.c: moves as much of the head as possible, and adds what it waits for to
 * `p->poll`. False if a member has closed its connection: *lost is its world rank. */
bool tcp_group_move(TcpEndpoint *p, TcpGroup *g, int *lost);
/* tcp_pair.c */
bool tcp_pair_move(TcpEndpoint *p, TcpPair *q, int *lost);

/* tcp_join.c */
weft_status tcp_join(World *world, int rank, Device *d, const CommNeeds *needs, Comm *c,
                     weft_error *e);
void tcp_look_at(TcpEndpoint *p, int fd, short events);
/* Removes the head, which is done. */
void tcp_next(TcpEndpoint *p, TcpQueue *q);

#endif
