/* mpi_int.h - shared by the files of the MPI backend: operations, and its own large sums.
 */
#ifndef WEFT_MPI_INT_H
#define WEFT_MPI_INT_H

#include <mpi.h>

#include "vm/comm/reduce.h"
#include "vm/comm/world.h"

/* ---- sums ---- */

/* Steps on their way, and the rows of requests of each, one for every member. */
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
  char *room;     /* [MPI_SLOTS][n][chunk]: parts */
  size_t chunk, nreq;
  MPI_Request *req; /* [MPI_SLOTS][MPI_ROWS][n] */
  MpiQueued *queue; /* a ring of `most` */
  int most, head, waiting;
  /* of the head: */
  DType dtype;
  RedOp red;
  MPI_Datatype type;
  size_t size;
  uint64_t whole, slice, len; /* elements: of all, of a member, of a step */
  char *from, *to;            /* parts of all; the slice of this member's sums */
  bool sums;                  /* all members get them */
  int steps, posted, added, freed;
} MpiSum;

/* Bytes of a sum from which on this backend makes it. */
enum { MPI_SUM_LEAST = 1 << 17 };

/* Whether sums of this group may be made here; a group that has one has room for them. */
bool mpi_sum_serves(const CommGroup *g);
/* `most`: operations that wait at once. False: no memory; free it all the same. */
bool mpi_sum_new(MpiSum *s, const weft_alloc *a, MPI_Comm comm, int n, int me, int most);
void mpi_sum_free(MpiSum *s, const weft_alloc *a);
/* An MPI error code. Neither blocks; *done becomes true inside of one of them. */
int mpi_sum_start(MpiSum *s, const CommOp *op, bool *done);
int mpi_sum_move(MpiSum *s);

/* ---- operations ---- */

typedef struct MpiWorld {
  const weft_alloc *alloc;
  int rank, size;
  bool mine;         /* MPI was not running before */
  MPI_Comm all;      /* copies of the world, so that no message meets a stranger's: */
  MPI_Comm p2p, raw; /* send and recv operations; raw bytes */
  MPI_Op half[2][2]; /* bf16, f16; by RedOp */
  uint64_t limit;    /* elements per MPI call */
} MpiWorld;

/* The requests of a handle: one, unless the operation is larger than the limit. */
typedef struct MpiHandle {
  MPI_Request one, *req;
  int n, cap;
  char *to; /* a result that is to be moved there in the end, or NULL */
  const char *from;
  size_t bytes;
  const char *what, *where; /* "all_reduce", "tp": for messages */
  bool sums, done;          /* it is one of MpiSum; which is through */
} MpiHandle;

/* One operation on its way: elements [at, at+len) of the members' pieces. */
typedef struct MpiPart {
  const CommOp *op;
  MPI_Comm comm;
  MPI_Datatype type;
  MPI_Op red;
  int n, rank;   /* members; which of them this is */
  bool in_place; /* the piece of this rank lies in its place of the whole */
  size_t size;   /* of an element */
  uint64_t at;
  int len;
} MpiPart;

MPI_Datatype mpi_type(DType t);
/* An MPI error code as an error, and as one of an operation. */
weft_status mpi_report(int rc, int rank, const char *what, weft_error *e);
weft_status mpi_report_op(int rc, int rank, const MpiHandle *h, weft_error *e);
#define MPI(w, call) TRY(mpi_report((call), (w)->rank, #call, e))
/* Starts p->op from p->at on; the requests are added to the handle. */
weft_status mpi_start(MpiWorld *w, MpiPart *p, MpiHandle *h, weft_error *e);

#endif
