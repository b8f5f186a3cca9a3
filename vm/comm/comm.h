/* comm.h - how ranks exchange data.
 *
 * A Comm is one rank's endpoint. Every operation is start + wait; start never blocks and
 * needs no peer to wait. Operations of one group (for send and recv: of one ordered pair
 * of ranks) match in the order of their starts. `ready` is the event on the compute queue
 * after which all operands may be read or written: what a receive overwrites may just
 * have been read there. Devices whose calls complete at once ignore it. wait makes the
 * compute queue wait; on the CPU it blocks. After an abort, every wait on every rank
 * returns WEFT_ERUN. */
#ifndef WEFT_COMM_H
#define WEFT_COMM_H

#include <stdatomic.h>

#include "vm/device/device.h"
#include "vm/program/program.h"

typedef struct CommGroup {
  const int *rank; /* world ranks, in mesh order */
  int n;
  int in_flight;    /* most operations started and not yet waited for, per rank */
  unsigned uses;    /* bit set of the CollKinds that are started on it; all_to_all, too,
                       where shifts reach others than neighbours: who connects to whom */
  const char *name; /* "tp": for messages */
  /* A number of its operations in their order: what each is, how much it moves, and where
   * in the arena its operands lie. Members with other numbers must not take the place of
   * an operand here for that of another member. 0: unknown. */
  uint64_t layout;
} CommGroup;

/* What a rank connects to at join. */
typedef struct CommNeeds {
  const CommGroup *group;
  int ngroup;
  const int *peer; /* world ranks that it exchanges data with, each once */
  int npeer;
  int nhandle;
  void *memory;   /* device memory with the operands of collectives, for */
  uint64_t bytes; /* libraries that register it; NULL: unknown */
} CommNeeds;

typedef struct CommOp {
  uint8_t coll;   /* CollKind */
  uint8_t red;    /* RedOp */
  uint8_t dtype;  /* DType; bf16 sums accumulate in f32 */
  int by;         /* shift: member k of n gives to member (k + by) % n; 0 < by < n */
  int group;      /* collectives: index of the group; send/recv: -1 */
  int peer;       /* send/recv: world rank */
  const void *in; /* all_reduce: may equal `out`; all_gather and reduce_scatter: on all
                   * members the piece may lie at its place in the whole */
  void *out;
  uint64_t count; /* elements of: the whole (all_reduce, send, recv), the piece of one
                   * rank (all_gather: input; reduce_scatter: output; all_to_all: per
                   * member; all_to_all_v: room per member; shift: all of it) */
  /* all_to_all_v: [members][each] row counts in host memory, unchanged until the wait.
   * For each member the rows sent and received are the sum of its counts, `row` elements
   * each; the room behind them is not touched. NULL in all others. */
  const int32_t *give, *take;
  int members, each;
  uint64_t row;
  uint32_t what; /* the caller's id for it: see CommInside */
} CommOp;

/* all_to_all_v: elements sent to member k by `give`, received from it by `take`. */
static inline uint64_t comm_rows(const CommOp *op, const int32_t *counts, int k) {
  uint64_t rows = 0;
  for (int i = 0; i < op->each; i++) rows += (uint64_t)counts[k * op->each + i];
  return rows * op->row;
}

/* Elements that a group of one moves. */
static inline uint64_t comm_alone(const CommOp *op) {
  return op->give ? comm_rows(op, op->give, 0) : op->count;
}

/* Progress of a device's queues, which lag behind the host. */
typedef struct CommInside {
  bool in;        /* an operation has begun on the device and not ended: */
  uint32_t what;  /* its id (CommOp.what), */
  uint64_t nth;   /* and its number on its communicator */
  uint64_t ticks; /* grows with each begin and end */
} CommInside;

typedef struct Comm Comm;
typedef struct World World;
typedef struct CommVtable {
  const char *name;
  int version; /* 1 */
  weft_status (*start)(Comm *c, const CommOp *op, int handle, DeviceEvent ready,
                       weft_error *e);
  weft_status (*wait)(Comm *c, int handle, weft_error *e);
  /* May be called by other threads at any time; NULL where operations end in wait. */
  void (*inside)(const Comm *c, CommInside *out);
  /* NULL where there is no state to drop. */
  void (*drop)(Comm *c);
  void (*close)(Comm *c);
} CommVtable;

typedef struct CommStats {
  uint64_t starts[COLL_N], bytes[COLL_N]; /* bytes: of CommOp.count elements; of the given
                                           * rows for all_to_all_v */
  uint64_t waits;
} CommStats;

/* Operations of one communicator, or of all pairs together, that the rank has started
 * since it joined, without those in a replayed graph (CommInside counts these). Other
 * threads may read it at any time. */
typedef struct CommCount {
  _Atomic uint64_t started, done;
} CommCount;

struct Comm {
  const CommVtable *vt;
  World *world;
  int rank, size;
  /* Queues share connections to the device: what is started one by one may keep back what
   * a peer waits for, where steps that are replayed as a graph do not (docs/gpu.md). */
  bool crowded;
  char arena[160]; /* how the backend has the arena, in words; "": as any memory */
  void *ctx;
  CommStats stats;  /* kept by the wrappers below */
  CommCount *count; /* [ngroup + 1], by group; the last entry: pairs */
  int *counted;     /* [nhandle]: the entry of `count` of a handle's operation */
  int ngroup, nhandle;
  uint64_t calls;   /* comm_start and comm_wait calls together */
  uint64_t fail_at; /* tests: number of the call (from 1) that fails; 0: none */
};

/* Handles are small integers below `nhandle`, chosen by the caller; a handle is in use
 * from start to wait. */
weft_status comm_start(Comm *c, const CommOp *op, int handle, DeviceEvent ready,
                       weft_error *e);
weft_status comm_wait(Comm *c, int handle, weft_error *e);
/* Forgets operations that were started and never ran, because a graph capture failed. */
void comm_drop(Comm *c);
const CommCount *comm_count(const Comm *c, int group); /* -1: pairs */
CommInside comm_inside(const Comm *c);
/* Bytes of a rank's counters. */
uint64_t comm_bytes(int ngroup, int nhandle);
/* This rank has failed: the waits of the others fail with `why`. */
void comm_abort(Comm *c, const char *why);
void comm_close(Comm *c);

#endif
