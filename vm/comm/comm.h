/* comm.h - how ranks exchange data.
 *
 * A Comm is one rank's endpoint. Every operation is start + wait; start never blocks
 * and never needs a peer to wait. Operations of one group (and of one ordered pair of
 * ranks, for send and recv) match in the order in which they are started. `ready` is
 * the event on the compute queue after which all operands may be read or written: what a
 * receive writes may just have been read there. On devices that complete at once it is
 * ignored. wait makes the compute queue wait; on the CPU it
 * blocks. After an abort, every wait on every rank returns WEFT_ERUN. */
#ifndef WEFT_COMM_H
#define WEFT_COMM_H

#include <stdatomic.h>

#include "vm/device/device.h"
#include "vm/program/program.h"

typedef struct CommGroup {
  const int *rank; /* world ranks, in mesh order */
  int n;
  int in_flight;    /* most operations started and not yet waited for, per rank */
  unsigned uses;    /* a bit for each CollKind that is started on it */
  const char *name; /* "tp": for messages */
} CommGroup;

/* What a rank connects to when it joins. */
typedef struct CommNeeds {
  const CommGroup *group;
  int ngroup;
  const int *peer; /* world ranks that it sends to or receives from, each once */
  int npeer;
  int nhandle;
  void *memory;   /* of the device, that operands of collectives lie in; NULL: */
  uint64_t bytes; /* it is not known. For libraries that register it */
} CommNeeds;

typedef struct CommOp {
  uint8_t coll;   /* CollKind */
  uint8_t red;    /* RedOp */
  uint8_t dtype;  /* DType; bf16 sums accumulate in f32 */
  int group;      /* collectives: index of the group; send/recv: -1 */
  int peer;       /* send/recv: world rank */
  const void *in; /* all_reduce: may equal `out`; all_gather and reduce_scatter: on
                     all members the piece may lie in its place of the whole */
  void *out;
  uint64_t count; /* elements of: the whole (all_reduce, send, recv), the piece of
                     one rank (all_gather: input; reduce_scatter: output;
                     all_to_all: what goes to one member; all_to_all_v: its place;
                     shift: all of it) */
  /* all_to_all_v: [members][each], in memory of the host, as they are until the wait. Of
   * the rows of a place, `row` elements each, as many as the counts for a member add up
   * to are given and taken; what lies behind them stays as it is. NULL in all others. */
  const int32_t *give, *take;
  int members, each;
  uint64_t row;
  uint32_t what; /* the caller's name for it: see CommInside */
} CommOp;

/* all_to_all_v: elements that go to member k by `give`, that come from it by `take`. */
static inline uint64_t comm_rows(const CommOp *op, const int32_t *counts, int k) {
  uint64_t rows = 0;
  for (int i = 0; i < op->each; i++) rows += (uint64_t)counts[k * op->each + i];
  return rows * op->row;
}

/* Elements that a group of one moves. */
static inline uint64_t comm_alone(const CommOp *op) {
  return op->give ? comm_rows(op, op->give, 0) : op->count;
}

/* Where the queues of a device have come to, which the host is ahead of. */
typedef struct CommInside {
  bool in;        /* one operation at least has begun there and not ended: */
  uint32_t what;  /* its name, */
  uint64_t nth;   /* and which its queue has counted so */
  uint64_t ticks; /* grows with all that begin or end */
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
  /* NULL where there is nothing to forget. */
  void (*drop)(Comm *c);
  void (*close)(Comm *c);
} CommVtable;

typedef struct CommStats {
  uint64_t starts[COLL_N], bytes[COLL_N]; /* bytes: of CommOp.count elements; what is
                                             counted: all that was given */
  uint64_t waits;
} CommStats;

/* Operations of a communicator, or of all pairs together, that the rank has started since
 * it joined, without those that a device replays (CommInside has these); may be read by
 * other threads at any time. */
typedef struct CommCount {
  _Atomic uint64_t started, done;
} CommCount;

struct Comm {
  const CommVtable *vt;
  World *world;
  int rank, size;
  bool counts; /* the host sees operands, so all_to_all_v can be started */
  void *ctx;
  CommStats stats;  /* kept by the wrappers below */
  CommCount *count; /* [ngroup + 1], by group; the last one: pairs */
  int *counted;     /* [nhandle]: where the operation of a handle is counted */
  int ngroup, nhandle;
  uint64_t calls;   /* of comm_start and comm_wait together */
  uint64_t fail_at; /* tests: the call (from 1) that fails; 0: none */
};

/* Handles are small integers below `nhandle`, chosen by the caller; one handle is in use
 * from start to wait. */
weft_status comm_start(Comm *c, const CommOp *op, int handle, DeviceEvent ready,
                       weft_error *e);
weft_status comm_wait(Comm *c, int handle, weft_error *e);
/* What was started and not waited for never ran: a device was to keep it and could not.
 */
void comm_drop(Comm *c);
const CommCount *comm_count(const Comm *c, int group); /* -1: pairs */
CommInside comm_inside(const Comm *c);
/* What a rank takes for its counters. */
uint64_t comm_bytes(int ngroup, int nhandle);
/* This rank gives up: `why` reaches the others, whose waits fail. */
void comm_abort(Comm *c, const char *why);
void comm_close(Comm *c);

#endif
