/* nccl_int.h - shared by the files of the NCCL backend.
 *
 * A line is a communicator with its own stream: one per group and one per ordered pair of
 * ranks, because a communicator runs operations in the order of their starts and lines
 * need not agree on an order among them. The host never waits: start makes the line's
 * stream wait for the compute stream, wait makes the compute stream wait for the line's.
 * Communicators are nonblocking, so that another thread can abort them. All NCCL calls
 * are made under one lock, since an abort destroys communicators. */
#ifndef WEFT_NCCL_INT_H
#define WEFT_NCCL_INT_H

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <pthread.h>
#include <stdatomic.h>

#include "vm/comm/world.h"

/* Since when NCCL has windows, see nccl_memory.c. An older header does not know them. */
enum { WINDOWS_SINCE = 22700 };
#if NCCL_VERSION_CODE < 22700
typedef void *ncclWindow_t;
#endif

typedef struct NcclLine {
  ncclComm_t comm;      /* NULL: no other member, or aborted */
  cudaStream_t queue;   /* that of NcclEndpoint.self if there is no other member */
  int n, me;            /* members; this rank's index */
  uint64_t *nth;        /* operations begun, counted by the stream; GPU memory */
  _Atomic uint64_t *at; /* progress word, see nccl_op.c; pinned host memory */
  void *registered;     /* registration handle; NULL: none */
  ncclWindow_t window;  /* of the arena, symmetric; NULL: none */
  bool windows;         /* it has been asked for */
  bool alone;           /* members have other kinds of memory: nothing is registered */
  char name[48];        /* "tp", "rank 0 to rank 3" */
} NcclLine;

typedef struct NcclHandle {
  cudaEvent_t end;
  CommOp op; /* an unmatched send or receive of the rank with itself: */
  int next;  /* next in the list of these; -1: last */
  bool alone;
} NcclHandle;

typedef struct NcclEndpoint {
  struct NcclWorld *w;
  Device *d;
  int rank, ngroup, npeer, nhandle, nline;
  int ends;       /* number of events */
  NcclLine *line; /* groups; per peer one to it and one from it; self */
  int *peer;
  NcclLine *self; /* sends of the rank to itself, without a communicator */
  bool failed;    /* it did not join: what is under way may never end */
  int out, in;    /* its first unmatched send and receive; -1: none */
  NcclHandle *handle;
  _Atomic uint64_t *at;
  uint64_t *nth;
  size_t block; /* bytes of this block, which holds everything but `at` and `nth` */
} NcclEndpoint;

typedef struct NcclWorld {
  const weft_alloc *alloc;
  World *world;
  double seconds; /* timeout of a join */
  int version;    /* NCCL's: 22809 */
  int group_ctas, pair_ctas;
  WorldArena arena;     /* as the plan says */
  DeviceArenas arenas;  /* NCCL's memory, for the device */
  void *taken;          /* the arena, if it lies there; NULL: it does not */
  pthread_mutex_t lock; /* guards everything below and all NCCL calls */
  NcclEndpoint *joined;
  atomic_bool ended;
  weft_status code;
  int culprit; /* -1: unknown */
  char why[768];
} NcclWorld;

/* ---- nccl_module.c ---- */
/* The reason for which the world has ended. */
weft_status nccl_why(NcclWorld *w, weft_error *e);
weft_status nccl_failed(const NcclLine *l, ncclResult_t r, const char *what,
                        weft_error *e);
weft_status nccl_cuda_failed(const NcclEndpoint *p, cudaError_t r, const char *what,
                             weft_error *e);
/* After a call that returned `r`: polls until NCCL has completed it, the world has ended,
 * or the timeout has passed. The caller holds the lock. */
weft_status nccl_settle(NcclEndpoint *p, NcclLine *l, ncclResult_t r, const char *what,
                        weft_error *e);

/* ---- nccl_ctas.c ---- */
/* CTAs of a communicator of a group, and of one of a pair for each direction. */
typedef struct NcclCtas {
  int group, pair;
} NcclCtas;
/* Whether the rank is alone in a group, or sends to itself: such copies have one queue.
 */
bool nccl_copies_alone(const NcclEndpoint *p, const CommNeeds *needs);
/* Whether each queue of the rank has a connection of its own; `crowded`: not also each
 * stream of NCCL's. */
weft_status nccl_check_queues(const NcclEndpoint *p, const CommNeeds *needs,
                              bool *crowded, weft_error *e);
/* As the plan says, else by how many communicators the rank has; an error where all of
 * them together do not fit on the GPU. */
weft_status nccl_share_ctas(const NcclEndpoint *p, const CommNeeds *needs, NcclCtas *out,
                            weft_error *e);

/* ---- nccl_memory.c ---- */
/* For WorldVtable.arenas. */
const DeviceArenas *nccl_arenas(World *world);
/* What the members of a group compare of their arenas before one is a window. */
typedef struct ArenaFacts {
  uint64_t bytes;       /* 0: it cannot be a window here */
  uint64_t layout;      /* CommGroup.layout */
  uint64_t machine;     /* a number of the one that it is in */
  uint64_t nccl_memory; /* whether it lies in NCCL's memory: members register alike */
} ArenaFacts;
/* g NULL: of a pair. */
ArenaFacts nccl_arena_facts(const NcclEndpoint *p, const CommNeeds *needs,
                            const CommGroup *g);
/* Whether members with these may have symmetric windows together. */
bool nccl_arenas_alike(const ArenaFacts *a, const ArenaFacts *b);
/* Registers the arena with a line's communicator: as a symmetric window, which all of its
 * members do or none, or else alone. */
weft_status nccl_register(NcclEndpoint *p, NcclLine *l, const CommNeeds *needs,
                          bool window, weft_error *e);
/* Before the end of the communicator; the caller holds the lock. False: that failed. */
bool nccl_deregister(NcclEndpoint *p, NcclLine *l);
/* Comm.arena, when all lines are there. */
void nccl_tell_arena(const NcclEndpoint *p, const CommNeeds *needs, char *text,
                     size_t size);

/* ---- nccl_abort.c ---- */
/* Ends all that communicators do, and destroys them. */
void nccl_abort(World *world, int rank, weft_status code, int exit_code, const char *why);

/* ---- nccl_join.c ---- */
weft_status nccl_join(World *world, int rank, Device *d, const CommNeeds *needs, Comm *c,
                      weft_error *e);
/* The stream of a line, of the highest priority. */
weft_status nccl_queue(NcclEndpoint *p, NcclLine *l, weft_error *e);

/* ---- nccl_op.c ---- */
weft_status nccl_start(Comm *c, const CommOp *op, int handle, DeviceEvent ready,
                       weft_error *e);
weft_status nccl_wait(Comm *c, int handle, weft_error *e);
void nccl_inside(const Comm *c, CommInside *out);
void nccl_drop(Comm *c);

#define CUDA(p, call)                                                                    \
  do {                                                                                   \
    cudaError_t r_ = (call);                                                             \
    if (r_ != cudaSuccess) return nccl_cuda_failed(p, r_, #call, e);                     \
  } while (0)

#endif
