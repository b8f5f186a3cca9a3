/* local_int.h - shared by the files of the local backend.
 *
 * Virtual ranks are threads of this process. Reductions add in group order, so results do
 * not depend on timing. One LocalWorld holds the endpoints of all ranks. A collective
 * occupies a LocalSlot of its group from the first member's start until its data has been
 * moved; waiting members move its segments, without a lock. Sends and receives are
 * matched in one FIFO per ordered pair. */
#ifndef WEFT_LOCAL_INT_H
#define WEFT_LOCAL_INT_H

#include <pthread.h>
#include <stdatomic.h>

#include "vm/comm/world.h"

typedef struct LocalWorld LocalWorld;
typedef struct Endpoint Endpoint;
typedef struct LocalGroup LocalGroup;
typedef struct LocalSlot LocalSlot;

/* One handle of one rank. `op`, `slot` and `ref` belong to the owner from start to wait.
 */
typedef struct LocalRec {
  CommOp op;
  Endpoint *owner;
  bool busy;        /* from start to wait */
  atomic_bool done; /* the data has been moved */
  LocalSlot *slot;  /* collectives; valid while not done */
  struct GroupRef *ref;
  struct LocalRec *next; /* next in the FIFO of a pair */
  DeviceEvent ready;     /* recorded at start; only if device memory is not the host's */
  DeviceEvent after;     /* there: after it the data has been moved; valid once done */
} LocalRec;

typedef struct Part {
  const char *in;
  char *out;
  LocalRec *rec;
} Part;

/* A collective. Guarded by the lock of its group, except the parts, which members read
 * while they move segments. */
struct LocalSlot {
  CommOp op;                     /* of the member that started first */
  int first;                     /* that member's world rank */
  int started;                   /* members that have started */
  uint64_t total;                /* elements to move: of the whole buffer on one rank */
  uint64_t nseg, next, finished; /* segments: in all, claimed, moved */
  Part *part;                    /* [n] */
  LocalSlot *free;               /* next in LocalGroup.free */
};

struct LocalGroup {
  pthread_mutex_t lock;
  const int *rank; /* [n] */
  int n, in_flight;
  int twin; /* number of earlier groups with the same members */
  char name[32];
  LocalSlot *slot; /* [2 * in_flight] */
  LocalSlot *free;
  LocalSlot **open; /* [in_flight]: started by some members, at seq % in_flight */
  uint64_t *seq;    /* [n]: operations that a member has started */
  LocalGroup *next;
  size_t bytes; /* of this block; the arrays above follow it */
};

/* A group as one rank sees it. */
typedef struct GroupRef {
  LocalGroup *g; /* NULL for a group of one or none */
  int member;    /* -1: not a member */
  int flying;    /* operations started and not waited for */
} GroupRef;

/* Unmatched operations of one ordered pair: all sends or all receives. */
typedef struct Fifo {
  LocalRec *head, *tail;
} Fifo;

struct Endpoint {
  LocalWorld *world;
  Device *device;
  int rank;
  bool joined;
  int nhandle, ngroup;
  LocalRec *rec;        /* [nhandle] */
  GroupRef *ref;        /* [ngroup] */
  pthread_mutex_t lock; /* guards `from` */
  Fifo *from;           /* [size]: operations with each other rank as sender */
  atomic_uint word;     /* count of wake-ups; the owner sleeps on it */
  atomic_bool asleep;   /* the owner sleeps, or is about to */
  char pad[64];         /* keeps counters of two ranks in different cache lines */
};

struct LocalWorld {
  weft_alloc alloc;
  int size;
  bool spin;            /* every rank has a core, so waits spin first */
  Endpoint *end;        /* [size] */
  Fifo *fifo;           /* [size * size] */
  pthread_mutex_t lock; /* guards `groups`, joining and the reason below */
  LocalGroup *groups;
  atomic_bool aborted;
  atomic_int moving; /* threads between local_enter and local_leave */
  weft_status code;
  int culprit; /* rank, or -1 */
  char why[768];
};

/* Other ranks' buffers and handles are accessed between these two only. enter fails once
 * aborted. */
bool local_enter(LocalWorld *w);
void local_leave(LocalWorld *w);
/* Waits until no thread is between them, then returns why the world ended. */
weft_status local_gave_up(LocalWorld *w, weft_error *e);
/* Ends the world on behalf of `rank` (or -1). Only the first reason is kept. */
void local_end(LocalWorld *w, int rank, weft_status code, const char *why);
/* Makes the owner check its operation again, whether it sleeps or not. */
void local_wake(Endpoint *p);

/* local_group.c */
weft_status local_group_get(LocalWorld *w, const CommGroup *group, int twin,
                            LocalGroup **out, weft_error *e);
uint64_t local_group_bytes(int n, int in_flight);
void local_group_free(LocalWorld *w, LocalGroup *g);
weft_status local_collective(Endpoint *p, LocalRec *r, weft_error *e);
/* Moves one segment of an operation if one is free; false if there is nothing to do. */
bool local_help(Endpoint *p, LocalRec *r);

/* local_device.c: on the device of `p`, the last to start; sets `after` of all
 * members. */
void local_device_move(Endpoint *p, const LocalSlot *s, int n);
void local_device_copy(Endpoint *p, LocalRec *from, LocalRec *to);
/* Copies in to out for a group of one. */
void local_device_alone(Endpoint *p, LocalRec *r);

/* local_pair.c */
weft_status local_transfer(Endpoint *p, LocalRec *r, weft_error *e);

#endif
