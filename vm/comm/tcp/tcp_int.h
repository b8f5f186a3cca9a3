/* tcp_int.h - shared by the files of the TCP backend.
 *
 * Every group and every pair of ranks has connections of its own, and operations go over
 * them in the order of their starts, so nothing arrives that is not expected. All data
 * moves inside start and wait: a wait for one operation makes progress on all operations
 * that this rank has started. Sums are made in group order, so they have the bits of
 * virtual ranks. */
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
  int *raw; /* [size]: links for bytes of the host, made when they are needed */
  int bell; /* an eventfd that rings when the world has ended */
  pthread_mutex_t lock; /* of the reason */
  atomic_bool ended;
  weft_status code;
  int culprit; /* -1: unknown */
  char why[768];
} TcpWorld;

typedef struct TcpHandle {
  CommOp op;
  bool done;
  int next; /* in the queue of its communicator; -1: the last */
} TcpHandle;

/* Operations in the order of their starts; the head is the one that moves. */
typedef struct TcpQueue {
  int head, tail; /* -1: empty */
} TcpQueue;

/* Of the head, with one member: bytes that have gone and come. */
typedef struct TcpPeer {
  int fd; /* -1: this rank itself */
  uint64_t sent, got;
} TcpPeer;

typedef struct TcpGroup {
  int n, me;        /* members; which of them this is; 0 members: not one of them */
  const int *rank;  /* [n], world ranks */
  TcpPeer *peer;    /* [n] */
  char *stage;      /* [n][TCP_STAGE]: what is to be added up */
  uint64_t reduced; /* bytes of the head that are */
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
  struct pollfd *poll; /* room for all connections and the bell */
  int npoll;           /* that are looked at */
  size_t block;        /* bytes of this block, which holds all of these */
} TcpEndpoint;

enum { TCP_STAGE = 1 << 16, TCP_SMALL = 2048 };

/* tcp.c */
bool tcp_ended(TcpWorld *w);
/* Why the world has ended. */
weft_status tcp_why(TcpWorld *w, weft_error *e);
void tcp_end(TcpWorld *w, int rank, weft_status code, const char *why);
/* As send and recv, but never block: bytes moved, 0 if it would; -1 if the other end is
 * gone, which is an error. */
int64_t tcp_push(int fd, const void *p, uint64_t n);
int64_t tcp_pull(int fd, void *p, uint64_t n);

/* tcp_group.c: moves what can be moved of the head, and notes in `p` for what it waits.
 * False if a member is gone: *lost is its world rank. */
bool tcp_group_move(TcpEndpoint *p, TcpGroup *g, int *lost);
/* tcp_pair.c */
bool tcp_pair_move(TcpEndpoint *p, TcpPair *q, int *lost);

/* tcp_join.c */
weft_status tcp_join(World *world, int rank, Device *d, const CommNeeds *needs, Comm *c,
                     weft_error *e);
void tcp_look_at(TcpEndpoint *p, int fd, short events);
/* The head is done. */
void tcp_next(TcpEndpoint *p, TcpQueue *q);

#endif
