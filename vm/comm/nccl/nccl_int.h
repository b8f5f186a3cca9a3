/* nccl_int.h - shared by the files of the NCCL backend.
 *
 * A line is a communicator with a stream of its own: one for each group and one for each
 * ordered pair of ranks, because a communicator runs operations in the order of their
 * starts, and no two lines of a plan need to agree in theirs. Nothing waits on the host:
 * start makes the line's stream wait for the compute stream, wait the compute stream for
 * the line's. Communicators are nonblocking, so that another thread can abort them. All
 * calls of NCCL are made under one lock, since an abort takes communicators away. The
 * host does not see row counts on the device, so there is no all_to_all_v here: programs
 * for GPUs move places of full size (Comm.counts, coll.def). */
#ifndef WEFT_NCCL_INT_H
#define WEFT_NCCL_INT_H

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <pthread.h>
#include <stdatomic.h>

#include "vm/comm/world.h"

typedef struct NcclLine {
  ncclComm_t comm; /* NULL: nobody else is in it, or it was aborted */
  cudaStream_t queue;
  int n, me;     /* members; which of them this is */
  uint64_t *nth; /* operations that have begun, as the queue counts: memory of the GPU */
  _Atomic uint64_t *at; /* where the queue is; see nccl_op.c. Pinned memory of the host */
  void *registered;     /* NULL: nothing is */
  char name[48];        /* "tp", "rank 0 to rank 3" */
} NcclLine;

typedef struct NcclHandle {
  cudaEvent_t end;
  CommOp op; /* of the rank with itself, until its other half is there: */
  int next;  /* -1: the last of those that wait */
  bool alone;
} NcclHandle;

typedef struct NcclEndpoint {
  struct NcclWorld *w;
  Device *d;
  int rank, ngroup, npeer, nhandle, nline;
  int ends;       /* events that there are */
  NcclLine *line; /* groups; for each peer what goes to it, and what comes; self */
  int *peer;
  NcclLine *self; /* what the rank sends to itself, without a communicator */
  int out, in;    /* the first send and the first receive there that wait; -1: none */
  NcclHandle *handle;
  _Atomic uint64_t *at;
  uint64_t *nth;
  size_t block; /* bytes of this block, which holds all but `at` and `nth` */
} NcclEndpoint;

typedef struct NcclWorld {
  const weft_alloc *alloc;
  World *world;
  double seconds; /* for which ranks wait for each other when they join */
  int group_ctas, pair_ctas;
  pthread_mutex_t lock; /* of all below, and of NCCL */
  NcclEndpoint *joined;
  atomic_bool ended;
  weft_status code;
  int culprit; /* -1: unknown */
  char why[768];
} NcclWorld;

/* ---- nccl_module.c ---- */
/* Why the world has ended. */
weft_status nccl_why(NcclWorld *w, weft_error *e);
weft_status nccl_failed(const NcclLine *l, ncclResult_t r, const char *what,
                        weft_error *e);
weft_status nccl_cuda_failed(const NcclEndpoint *p, cudaError_t r, const char *what,
                             weft_error *e);
/* After a call that gave `r`: comes back when NCCL has done what it asks for, or the
 * world has ended, or it took too long. The caller has the lock. */
weft_status nccl_settle(NcclEndpoint *p, NcclLine *l, ncclResult_t r, const char *what,
                        weft_error *e);

/* ---- nccl_join.c ---- */
weft_status nccl_join(World *world, int rank, Device *d, const CommNeeds *needs, Comm *c,
                      weft_error *e);
void nccl_leave(Comm *c);

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
