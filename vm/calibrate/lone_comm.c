/* lone_comm.c - see lone_comm.h. */
#include "lone_comm.h"

#include "kernel_operands.h"

static void copy(void *to, const void *from, size_t bytes) {
  if (to != from) memmove(to, from, bytes);
}

/* Rows of each member, as many as this rank gives it. */
static void copy_rows(const CommOp *op, size_t piece) {
  for (int k = 0; k < op->members; k++) {
    size_t at = (size_t)k * piece;
    size_t bytes = (size_t)comm_rows(op, op->give, k) * (size_t)dtype_size(op->dtype);
    copy((char *)op->out + at, (const char *)op->in + at, bytes);
  }
}

static weft_status start(Comm *c, const CommOp *op, int handle, DeviceEvent ready,
                         weft_error *e) {
  const CommNeeds *needs = c->ctx;
  const CollInfo *is = &coll_info[op->coll];
  size_t piece = (size_t)op->count * (size_t)dtype_size((DType)op->dtype);
  int members = op->group < 0 ? 1 : needs->group[op->group].n;
  if (op->coll == COLL_SEND) return WEFT_OK;
  if (op->coll == COLL_RECV)
    numbers_fill((DType)op->dtype, op->out, piece);
  else if (is->is & COLL_COUNTED)
    copy_rows(op, piece);
  else if (is->in && is->out)
    copy(op->out, op->in, piece * (size_t)members);
  else if (is->out)
    for (int k = 0; k < members; k++) copy((char *)op->out + k * piece, op->in, piece);
  else
    copy(op->out, op->in, piece);
  return WEFT_OK;
}

static weft_status wait(Comm *c, int handle, weft_error *e) { return WEFT_OK; }

static const CommVtable lone = {
    .name = "lone", .version = 1, .start = start, .wait = wait};

weft_status lone_comm_open(Comm *c, int rank, int size, const CommNeeds *needs,
                           weft_error *e) {
  CommCount *count = mem_new(NULL, comm_bytes(needs->ngroup, needs->nhandle));
  if (!count) return err_set(e, WEFT_ENOMEM, "out of memory");
  *c = (Comm){.vt = &lone,
              .rank = rank,
              .size = size,
              .ctx = (void *)needs,
              .count = count,
              .counted = (int *)(count + needs->ngroup + 1),
              .ngroup = needs->ngroup,
              .nhandle = needs->nhandle};
  return WEFT_OK;
}

void lone_comm_close(Comm *c) {
  if (c->count) mem_free(NULL, c->count, comm_bytes(c->ngroup, c->nhandle));
  *c = (Comm){0};
}
