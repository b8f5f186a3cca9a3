/* mpi_op.c - starts an operation: its MPI calls, split where it exceeds MPI's count
 * limit. The limit is the same everywhere, so all members split alike. */
#include <stdio.h>

#include "mpi_int.h"

/* ---- errors ---- */

weft_status mpi_report(int rc, int rank, const char *what, weft_error *e) {
  if (rc == MPI_SUCCESS) return WEFT_OK;
  char text[MPI_MAX_ERROR_STRING];
  int n = 0;
  if (MPI_Error_string(rc, text, &n) != MPI_SUCCESS) snprintf(text, sizeof text, "?");
  return err_set(e, WEFT_ERUN, "rank %d: MPI: %s: %.400s", rank, what, text);
}

weft_status mpi_report_op(int rc, int rank, const MpiHandle *h, weft_error *e) {
  char what[64];
  if (rc == MPI_SUCCESS) return WEFT_OK;
  snprintf(what, sizeof what, "%s over %s", h->what, h->where);
  return mpi_report(rc, rank, what, e);
}

MPI_Datatype mpi_type(DType t) {
  switch (t) {
  case DT_F32: return MPI_FLOAT;
  case DT_BF16:
  case DT_F16: return MPI_UINT16_T;
  case DT_F64: return MPI_DOUBLE;
  case DT_I32: return MPI_INT32_T;
  case DT_U8: return MPI_UINT8_T;
  case DT_Q8: /* states are not sent */
  case DT_UQ8:
  case DT_ACT:
  case DT_GRAD: break;
  }
  return MPI_DATATYPE_NULL;
}

/* ---- starting ---- */

/* Room for one more request; the array is kept for the next use of the handle. */
static MPI_Request *request(const MpiWorld *w, MpiHandle *h) {
  if (h->n == h->cap) {
    int cap = 2 * h->cap;
    MPI_Request *req = mem_new(w->alloc, (size_t)cap * sizeof *req);
    if (!req) return NULL;
    memcpy(req, h->req, (size_t)h->n * sizeof *req);
    if (h->req != &h->one) mem_free(w->alloc, h->req, (size_t)h->cap * sizeof *req);
    h->req = req;
    h->cap = cap;
  }
  return &h->req[h->n];
}

/* All members have to agree on MPI_IN_PLACE but not on in == out, so start has copied the
 * input and the call is always in place. */
static int all_reduce(const MpiPart *p, MPI_Request *req) {
  char *out = (char *)p->op->out + p->at * p->size;
  return MPI_Iallreduce(MPI_IN_PLACE, out, p->len, p->type, p->red, p->comm, req);
}

/* This member's contribution: MPI forbids overlapping buffers. */
static const void *own(const MpiPart *p, const void *in) {
  return p->in_place ? MPI_IN_PLACE : in;
}

/* An MPI type for a part of a piece, with the stride of whole pieces. */
static int part_of_piece(const MpiPart *p, MPI_Datatype *piece) {
  MPI_Datatype run;
  int rc = MPI_Type_contiguous(p->len, p->type, &run);
  if (rc != MPI_SUCCESS) return rc;
  rc = MPI_Type_create_resized(run, 0, (MPI_Aint)(p->op->count * p->size), piece);
  MPI_Type_free(&run);
  return rc == MPI_SUCCESS ? MPI_Type_commit(piece) : rc;
}

static int all_gather_part(const MpiPart *p, MPI_Request *req) {
  MPI_Datatype piece;
  int rc = part_of_piece(p, &piece);
  if (rc == MPI_SUCCESS)
    rc =
        MPI_Iallgather(own(p, (const char *)p->op->in + p->at * p->size), p->len, p->type,
                       (char *)p->op->out + p->at * p->size, 1, piece, p->comm, req);
  if (rc == MPI_SUCCESS) MPI_Type_free(&piece); /* freed once the operation completes */
  return rc;
}

static int all_to_all(const MpiPart *p, MPI_Request *req) {
  MPI_Datatype piece;
  int rc = part_of_piece(p, &piece);
  if (rc != MPI_SUCCESS) return rc;
  rc = MPI_Ialltoall((const char *)p->op->in + p->at * p->size, 1, piece,
                     (char *)p->op->out + p->at * p->size, 1, piece, p->comm, req);
  MPI_Type_free(&piece);
  return rc;
}

static int all_gather(const MpiPart *p, MPI_Request *req) {
  if ((uint64_t)p->len < p->op->count) return all_gather_part(p, req);
  return MPI_Iallgather(own(p, p->op->in), p->len, p->type, p->op->out, p->len, p->type,
                        p->comm, req);
}

/* In place, MPI leaves the result at the start of the buffer: see then_move. */
static int reduce_scatter(const MpiPart *p, MPI_Request *req) {
  if (p->in_place)
    return MPI_Ireduce_scatter_block(MPI_IN_PLACE, (void *)p->op->in, p->len, p->type,
                                     p->red, p->comm, req);
  return MPI_Ireduce_scatter_block(p->op->in, p->op->out, p->len, p->type, p->red,
                                   p->comm, req);
}

static int send(const MpiPart *p, MPI_Request *req) {
  return MPI_Isend((const char *)p->op->in + p->at * p->size, p->len, p->type,
                   p->op->peer, 0, p->comm, req);
}

static int recv(const MpiPart *p, MPI_Request *req) {
  return MPI_Irecv((char *)p->op->out + p->at * p->size, p->len, p->type, p->op->peer, 0,
                   p->comm, req);
}

/* One half of a shift, in the order of starts on its communicator, like a collective. */
static int to_next(const MpiPart *p, MPI_Request *req) {
  return MPI_Isend((const char *)p->op->in + p->at * p->size, p->len, p->type,
                   (p->rank + p->op->by) % p->n, 0, p->comm, req);
}

static int from_last(const MpiPart *p, MPI_Request *req) {
  return MPI_Irecv((char *)p->op->out + p->at * p->size, p->len, p->type,
                   (p->rank + p->n - p->op->by) % p->n, 0, p->comm, req);
}

/* The MPI calls of each collective: one, or two where it takes two requests. */
static int (*const coll[COLL_N][2])(const MpiPart *p, MPI_Request *req) = {
    [COLL_ALL_REDUCE] = {all_reduce},
    [COLL_ALL_GATHER] = {all_gather},
    [COLL_REDUCE_SCATTER] = {reduce_scatter},
    [COLL_ALL_TO_ALL] = {all_to_all},
    [COLL_SHIFT] = {from_last, to_next},
    [COLL_SEND] = {send},
    [COLL_RECV] = {recv},
};

static weft_status no_memory(weft_error *e) {
  return err_set(e, WEFT_ENOMEM, "no memory for the requests of a large operation");
}

/* A reduce_scatter above the limit: no MPI type describes parts of all pieces to a
 * reduction, so each part of each piece is reduced to its owner. */
static weft_status scatter_parts(MpiWorld *w, MpiPart *p, MpiHandle *h, weft_error *e) {
  for (int root = 0; root < p->n; root++)
    for (p->at = 0; p->at < p->op->count; p->at += (uint64_t)p->len) {
      p->len = (int)MIN(p->op->count - p->at, w->limit);
      uint64_t from = (uint64_t)root * p->op->count + p->at;
      MPI_Request *req = request(w, h);
      if (!req) return no_memory(e);
      const char *in = (const char *)p->op->in + from * p->size;
      MPI(w, MPI_Ireduce(root == p->rank ? own(p, in) : in,
                         (char *)p->op->out + p->at * p->size, p->len, p->type, p->red,
                         root, p->comm, req));
      h->n++;
    }
  return WEFT_OK;
}

/* Counted rows are sent member to member, in the order of starts like a shift: MPI's
 * arrays of counts would have to live until the wait. */
static weft_status move_rows(MpiWorld *w, MpiPart *p, int k, bool sends, MpiHandle *h,
                             weft_error *e) {
  const CommOp *op = p->op;
  uint64_t end = comm_rows(op, sends ? op->give : op->take, k);
  size_t place = (size_t)k * op->count * p->size;
  char *from = (char *)op->in + place, *to = (char *)op->out + place;
  if (k == p->rank) {
    if (sends && end) memcpy(to, from, end * p->size);
    return WEFT_OK;
  }
  for (uint64_t at = 0; at < end; at += (uint64_t)p->len) {
    p->len = (int)MIN(end - at, w->limit);
    MPI_Request *req = request(w, h);
    if (!req) return no_memory(e);
    int rc = sends ? MPI_Isend(from + at * p->size, p->len, p->type, k, 0, p->comm, req)
                   : MPI_Irecv(to + at * p->size, p->len, p->type, k, 0, p->comm, req);
    TRY(mpi_report_op(rc, w->rank, h, e));
    h->n++;
  }
  return WEFT_OK;
}

/* Posts the receives before the sends. */
static weft_status exchange_rows(MpiWorld *w, MpiPart *p, MpiHandle *h, weft_error *e) {
  for (int sends = 0; sends < 2; sends++)
    for (int i = 0; i < p->n; i++)
      TRY(move_rows(w, p, (p->rank + i) % p->n, sends, h, e));
  return WEFT_OK;
}

static void then_move(const MpiPart *p, MpiHandle *h) {
  if (p->op->in == p->op->out) return;
  h->to = p->op->out;
  h->from = p->op->in;
  h->bytes = p->op->count * p->size;
}

weft_status mpi_start(MpiWorld *w, MpiPart *p, MpiHandle *h, weft_error *e) {
  if (p->op->coll == COLL_REDUCE_SCATTER && p->op->count > w->limit)
    return scatter_parts(w, p, h, e);
  if (p->op->coll == COLL_REDUCE_SCATTER && p->in_place) then_move(p, h);
  if (p->op->coll == COLL_ALL_TO_ALL_V) return exchange_rows(w, p, h, e);
  do {
    p->len = (int)MIN(p->op->count - p->at, w->limit);
    for (int k = 0; k < 2 && coll[p->op->coll][k]; k++) {
      MPI_Request *req = request(w, h);
      if (!req) return no_memory(e);
      TRY(mpi_report_op(coll[p->op->coll][k](p, req), w->rank, h, e));
      h->n++;
    }
    p->at += (uint64_t)p->len;
  } while (p->at < p->op->count);
  return WEFT_OK;
}
