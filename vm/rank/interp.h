/* interp.h - one loaded rank: rank_load.c creates it, interp.c runs it. */
#ifndef WEFT_INTERP_INT_H
#define WEFT_INTERP_INT_H

#include <stdatomic.h>

#include "rank.h"
#include "trace.h"

/* A KERNEL instruction made ready: everything but the pointers is set once. */
typedef struct Bound {
  const Kernel *kernel;
  KernelArgs args;
  uint8_t loaded; /* see needs_loading in interp.c */
} Bound;

/* A transfer between its start and its wait. */
typedef struct Pending {
  const Instr *instr;
  CommOp op;
  uint64_t nth; /* of its communicator */
  int64_t from; /* if there is a trace */
} Pending;

/* A loaded rank begins a block that holds its tables, what its kernels keep, and what is
 * on its way to or from the arena; the arena is a block of its own. */
struct Rank {
  const weft_alloc *alloc;
  size_t block; /* bytes of this block */
  const Compiled *c;
  const Program *p;
  Device *dev;
  Rank *under; /* whose arenas and staging this one has, or NULL */
  Comm *comm;
  int rank;
  char *arena, *host; /* host: NULL if nothing is offloaded */
  bool keeps,
      looks;     /* its device keeps steps; at what is launched: see graph_capture.c */
  uint64_t *off; /* [p->noperand] Operand.off, of a shard that of this rank's */
  Bound *bound;  /* [nbound], in the order of KERNEL instructions */
  uint32_t nbound;
  uint32_t *bound_of; /* instruction -> bound */
  CommGroup *group;   /* [p->ncomm] */
  int *member;        /* of all groups */
  size_t nmember;
  int *peer; /* pp rank -> world rank with this rank's other coordinates */
  int *met;  /* [nmet]: those of them that it sends to or receives from */
  int nmet;
  const Call *call; /* the running one, or the last */
  uint64_t *base;   /* [nbase] slots of the running body */
  uint32_t nbase;
  Pending *pending; /* [p->nhandle] */
  int32_t *rows;    /* [p->nhandle][2][nrows] row counts of exchanges, fetched from a */
  size_t nrows;     /* device whose memory the host does not see */
  char *states;     /* of prepared kernels */
  double *scalars;  /* [nscalar], here and below: staging, see rank_step */
  int32_t *input[IN_N]; /* of a step; NULL if this rank does not read it */
  Tracer *tracer;       /* NULL: there is no trace */
  const Instr *bad;     /* see rank_bad */
  const char *gave;
  /* Written by this rank, read by the watchdog. */
  _Atomic int state;
  _Atomic uint64_t ticks;
  _Atomic(const Instr *) at;
  _Atomic uint64_t nth; /* when it waits: see Pending */
};

/* ---- graph_capture.c ---- the main part of a step on a device that keeps it */
typedef enum {
  CAPTURE_NEVER, /* each step is launched anew */
  CAPTURE_FIRST, /* so is the next one, and what it launches is noted */
  CAPTURE_NOW,   /* the next one is kept, and compared with that */
  CAPTURE_REPLAY
} CaptureStage;

/* Behind the Rank if Rank.keeps. */
typedef struct GraphCapture {
  CaptureStage stage;
  bool captures, broken; /* now; it cannot be captured */
  void *kept;
  uint64_t *print; /* [nprint]: what the first step launched and started, in order */
  uint32_t nprint, at;
  bool said;     /* why */
  char why[512]; /* the step could not be kept; "": nothing is known of that */
} GraphCapture;

static inline GraphCapture *capture_of(const Rank *r) {
  size_t behind = (sizeof *r + 15) & ~(size_t)15;
  return r->keeps ? (GraphCapture *)((char *)r + behind) : NULL;
}
/* Kernels and operations of a step. */
uint32_t capture_fingerprints(const Program *p);
/* Runs main as the stage has it; on another device, or with `check`, plainly. */
weft_status capture_main(Rank *r, bool check, StepEnd *end, weft_error *e);
/* After a launch or before the start of an operation, while Rank.looks; `given` is a
 * number of what the operation was given. */
weft_status capture_check(Rank *r, uint64_t given, weft_error *e);
void capture_free(Rank *r);

/* ---- result_check.c ---- */
/* Whether n elements at p, a result of the instruction where the device has it, are
 * finite: WEFT_ERUN says which rank and op gave what, and so does rank_bad() then. */
weft_status check_result(Rank *r, const Instr *in, const void *p, DType t, uint64_t n,
                         weft_error *e);
/* Whether a `permute` had room for all rows; else the factor that would do. */
weft_status check_permuted(Rank *r, const KernelArgs *a, weft_error *e);

/* ---- interp.c ---- */
/* The main list, once. */
weft_status interp_main(Rank *r, bool check, StepEnd *end, weft_error *e);

/* Goes through the main list for a device that loads kernels when they are first
 * launched: in a step that could wait for operations that wait for other ranks. Before
 * anything is in the arena. */
weft_status interp_load(Rank *r, weft_error *e);

/* ---- operand_layout.c ---- */
/* Sets CommGroup.layout of the rank's groups; of a rank over another one, goes on with
 * those of that one, whose communicators both use. */
void rank_layouts(Rank *r);

/* Where an offset lies, see HOST_BASE. */
static inline char *rank_place(const Rank *r, uint64_t off) {
  return on_host(off) ? r->host + (off - HOST_BASE) : r->arena + off;
}

#endif
