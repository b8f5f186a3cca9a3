/* mpi_int.h - what the files of the MPI engine share: the sums that it makes itself. */
#ifndef WEFT_MPI_INT_H
#define WEFT_MPI_INT_H

#include <mpi.h>

#include "reduce.h"
#include "world.h"

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
  uint64_t limit;       /* elements per MPI call */
  char *room;           /* [MPI_SLOTS][n][chunk]: parts */
  size_t chunk, nreq;
  MPI_Request *req;     /* [MPI_SLOTS][MPI_ROWS][n] */
  MpiQueued *queue;     /* a ring of `most` */
  int most, head, waiting;
  /* of the head: */
  DType dtype;
  RedOp red;
  MPI_Datatype type;
  size_t size;
  uint64_t whole, slice, len; /* elements: of all, of a member, of a step */
  char *from, *to;      /* parts of all; the slice of this member's sums */
  bool sums;            /* all members get them */
  int steps, posted, added, freed;
} MpiSum;

/* Bytes of a sum from which on this engine makes it. */
enum { MPI_SUM_LEAST = 1 << 17 };

MPI_Datatype mpi_type(DType t);
/* Whether sums of this group may be made here; a group that has one has room for them. */
bool mpi_sum_serves(const CommGroup *g);
/* `most`: operations that wait at once. False: no memory; free it all the same. */
bool mpi_sum_new(MpiSum *s, const weft_alloc *a, MPI_Comm comm, int n, int me, int most);
void mpi_sum_free(MpiSum *s, const weft_alloc *a);
/* An MPI error code. Neither blocks; *done becomes true inside of one of them. */
int mpi_sum_start(MpiSum *s, const CommOp *op, bool *done);
int mpi_sum_move(MpiSum *s);

#endif
