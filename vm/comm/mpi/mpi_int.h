/* mpi_int.h - shared by the files of the MPI backend: operations, and its own large
 * sums. */
#ifndef WEFT_MPI_INT_H
#define WEFT_MPI_INT_H

#include <mpi.h>

#include "vm/comm/reduce.h"
#include "vm/comm/world.h"

/* ---- sums ---- */

/* Steps in flight, and the rows of requests of each; a row has one request per member. */
enum { MPI_SLOTS = 4 };
typedef enum { MPI_PARTS_IN, MPI_PARTS_OUT, MPI_SUMS_IN, MPI_SUMS_OUT, MPI_ROWS } MpiRow;

typedef struct MpiQueued {
  CommOp op;
  bool *done;
} MpiQueued;

/* The sums of a group; see mpi_sum.c. */
typedef struct MpiSum {
  MPI_Comm comm;
  int n, me;
  uint64_t limit; /* elements per MPI call */
  char *room;     /* [MPI_SLOTS][n][chunk]: received parts */
  size_t chunk, nreq;
  MPI_Request *req; /* [MPI_SLOTS][MPI_ROWS][n] */
  MpiQueued *queue; /* a ring of `most` */
  int most, head, waiting;
  /* of the head: */
  DType dtype;
  RedOp red;
  MPI_Datatype type;
  size_t size;
  uint64_t whole, slice, len; /* elements: of the whole, of a member's slice, of a step */
  char *from, *to;            /* parts of the whole; this member's slice of the result */
  bool sums;                  /* all members get the sums (all_reduce) */
  int steps, posted, added, freed;
} MpiSum;

/* Sums of at least this many bytes are made by this backend. */
enum { MPI_SUM_LEAST = 1 << 17 };

/* True if large sums of this group may be made here; such a group needs room for them. */
bool mpi_sum_serves(const CommGroup *g);
/* `most`: queued operations at once. False: no memory; mpi_sum_free is needed, too. */
bool mpi_sum_new(MpiSum *s, const weft_alloc *a, MPI_Comm comm, int n, int me, int most);
void mpi_sum_free(MpiSum *s, const weft_alloc *a);
/* Both return an MPI error code and never block; *done is set inside one of them. */
int mpi_sum_start(MpiSum *s, const CommOp *op, bool *done);
int mpi_sum_move(MpiSum *s);

/* ---- operations ---- */

typedef struct MpiWorld {
  const weft_alloc *alloc;
  int rank, size;
  bool mine;         /* this backend initialized MPI */
  MPI_Comm all;      /* duplicates of the world, apart from other code: */
  MPI_Comm p2p, raw; /* send and recv operations; host messages */
  MPI_Op half[2][2]; /* bf16, f16; by RedOp */
  uint64_t limit;    /* elements per MPI call */
} MpiWorld;

/* The requests of a handle: one, unless the operation exceeds the count limit. */
typedef struct MpiHandle {
  MPI_Request one, *req;
  int n, cap;
  char *to; /* where to move the result in the end, or NULL */
  const char *from;
  size_t bytes;
  const char *what, *where; /* "all_reduce", "tp": for messages */
  bool sums, done;          /* handled by MpiSum; and has completed */
} MpiHandle;

/* A part of an operation: elements [at, at+len) of the members' pieces. */
typedef struct MpiPart {
  const CommOp *op;
  MPI_Comm comm;
  MPI_Datatype type;
  MPI_Op red;
  int n, rank;   /* members; this rank's index */
  bool in_place; /* this rank's piece lies at its place in the whole buffer */
  size_t size;   /* of an element */
  uint64_t at;
  int len;
} MpiPart;

MPI_Datatype mpi_type(DType t);
/* An MPI error code as a weft error; and as one of an operation. */
weft_status mpi_report(int rc, int rank, const char *what, weft_error *e);
weft_status mpi_report_op(int rc, int rank, const MpiHandle *h, weft_error *e);
#define MPI(w, call) TRY(mpi_report((call), (w)->rank, #call, e))
/* Starts p->op from p->at on and adds its requests to the handle. */
weft_status mpi_start(MpiWorld *w, MpiPart *p, MpiHandle *h, weft_error *e);

#endif
