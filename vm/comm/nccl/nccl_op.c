/* nccl_op.c - start and wait of the NCCL backend, and the progress words of its streams.
 */
#include "nccl_int.h"

/* ---- progress words ---- */

/* Before and after each operation the stream writes a word: the upper half is the number
 * of the operation on the line, the lower half its name plus one, or 0 when it has ended.
 * The GPU counts itself, because the host does not when a captured step is replayed. */
static void mark(const NcclEndpoint *p, const NcclLine *l, bool begins, uint32_t name) {
  p->d->vt->tell(p->d, l->queue, l->nth, (uint64_t *)l->at, begins, name);
}

void nccl_inside(const Comm *c, CommInside *out) {
  const NcclEndpoint *p = c->ctx;
  for (int i = 0; i < p->nline; i++) {
    uint64_t at = atomic_load(p->line[i].at);
    uint32_t name = (uint32_t)at;
    out->ticks += 2 * (at >> 32) - (name != 0);
    if (!name || out->in) continue;
    out->in = true;
    out->what = name - 1;
    out->nth = at >> 32;
  }
}

/* ---- operations ---- */

static ncclDataType_t type_of(const CommOp *op) {
  switch ((DType)op->dtype) {
  case DT_BF16: return ncclBfloat16;
  case DT_F16: return ncclFloat16;
  case DT_F64: return ncclFloat64;
  case DT_I32: return ncclInt32;
  case DT_U8: return ncclUint8;
  default: return ncclFloat32;
  }
}

static size_t bytes_of(const CommOp *op, uint64_t count) {
  return count * (size_t)dtype_size((DType)op->dtype);
}

/* Joins the results of several calls that make one operation. */
static ncclResult_t first_error(ncclResult_t a, ncclResult_t b) {
  return a != ncclSuccess && a != ncclInProgress ? a : b;
}

/* A piece for each member, or the rows of it that there are: of none there is no message,
 * as both sides know. */
static ncclResult_t exchange(const NcclLine *l, const CommOp *op) {
  size_t piece = bytes_of(op, op->count);
  ncclDataType_t t = type_of(op);
  ncclResult_t r = ncclGroupStart();
  for (int i = 0; i < l->n; i++) {
    const char *in = (const char *)op->in + (size_t)i * piece;
    char *out = (char *)op->out + (size_t)i * piece;
    uint64_t give = op->give ? comm_rows(op, op->give, i) : op->count;
    uint64_t take = op->take ? comm_rows(op, op->take, i) : op->count;
    if (give) r = first_error(r, ncclSend(in, give, t, i, l->comm, l->queue));
    if (take) r = first_error(r, ncclRecv(out, take, t, i, l->comm, l->queue));
  }
  return first_error(r, ncclGroupEnd());
}

static ncclResult_t shift(const NcclLine *l, const CommOp *op) {
  ncclDataType_t t = type_of(op);
  int next = (l->me + op->by) % l->n, last = (l->me + l->n - op->by) % l->n;
  ncclResult_t r = ncclGroupStart();
  r = first_error(r, ncclSend(op->in, op->count, t, next, l->comm, l->queue));
  r = first_error(r, ncclRecv(op->out, op->count, t, last, l->comm, l->queue));
  return first_error(r, ncclGroupEnd());
}

/* A piece may lie in its place of the whole (in place), which NCCL detects itself. */
static ncclResult_t enqueue(const NcclLine *l, const CommOp *op) {
  ncclRedOp_t red = op->red == RED_MAX ? ncclMax : ncclSum;
  ncclDataType_t t = type_of(op);
  switch ((CollKind)op->coll) {
  case COLL_ALL_REDUCE:
    return ncclAllReduce(op->in, op->out, op->count, t, red, l->comm, l->queue);
  case COLL_ALL_GATHER:
    return ncclAllGather(op->in, op->out, op->count, t, l->comm, l->queue);
  case COLL_REDUCE_SCATTER:
    return ncclReduceScatter(op->in, op->out, op->count, t, red, l->comm, l->queue);
  case COLL_ALL_TO_ALL:
  case COLL_ALL_TO_ALL_V: return exchange(l, op);
  case COLL_SHIFT: return shift(l, op);
  case COLL_SEND: return ncclSend(op->in, op->count, t, 1, l->comm, l->queue);
  case COLL_RECV: return ncclRecv(op->out, op->count, t, 0, l->comm, l->queue);
  default: assert(!"an operation that NCCL backend knows"); return ncclInvalidArgument;
  }
}

static weft_status alone(const NcclEndpoint *p, const NcclLine *l, const CommOp *op,
                         weft_error *e) {
  size_t n = bytes_of(op, comm_alone(op));
  if (n && op->in != op->out)
    CUDA(p, cudaMemcpyAsync(op->out, op->in, n, cudaMemcpyDefault, l->queue));
  return WEFT_OK;
}

/* A send of a rank to itself is copied once its receive has started, too. */
static weft_status meet_self(NcclEndpoint *p, const CommOp *op, int handle,
                             weft_error *e) {
  bool send = op->coll == COLL_SEND;
  int *mine = send ? &p->out : &p->in, *other = send ? &p->in : &p->out;
  p->handle[handle] = (NcclHandle){p->handle[handle].end, *op, -1, true};
  if (*other < 0) {
    while (*mine >= 0) mine = &p->handle[*mine].next;
    *mine = handle;
    return WEFT_OK;
  }
  NcclHandle *a = &p->handle[handle], *b = &p->handle[*other];
  CommOp both = {.in = send ? op->in : b->op.in,
                 .out = send ? b->op.out : op->out,
                 .count = op->count,
                 .dtype = op->dtype};
  *other = b->next;
  a->alone = b->alone = false;
  TRY(alone(p, p->self, &both, e));
  CUDA(p, cudaEventRecord(a->end, p->self->queue));
  CUDA(p, cudaEventRecord(b->end, p->self->queue));
  return WEFT_OK;
}

static NcclLine *line_of(NcclEndpoint *p, const CommOp *op) {
  if (op->group >= 0) {
    assert(op->group < p->ngroup);
    return &p->line[op->group];
  }
  if (op->peer == p->rank) return p->self;
  for (int i = 0; i < p->npeer; i++)
    if (p->peer[i] == op->peer)
      return &p->line[p->ngroup + 2 * i + (op->coll == COLL_RECV)];
  return NULL;
}

static const char *const name[COLL_N] = {
#define COLL(id, name, in, out, is, doc) name,
#include "vm/program/coll.def"
};

static weft_status transfer(NcclEndpoint *p, NcclLine *l, const CommOp *op,
                            weft_error *e) {
  pthread_mutex_lock(&p->w->lock);
  weft_status st = atomic_load(&p->w->ended)
                       ? nccl_why(p->w, e)
                       : nccl_settle(p, l, enqueue(l, op), name[op->coll], e);
  pthread_mutex_unlock(&p->w->lock);
  return st;
}

/* Only NCCL's own calls are made under the lock. CUDA's wait while the stream holds as
 * much as it can, about a thousand launches: behind an operation whose peer is lost that
 * is until the communicators are aborted, which needs the lock. */
static weft_status start_on(NcclEndpoint *p, NcclLine *l, const CommOp *op, int handle,
                            DeviceEvent ready, weft_error *e) {
  if (!l->queue) TRY(nccl_queue(p, l, e)); /* to itself, which it did not list */
  if (ready.id)
    CUDA(p, cudaStreamWaitEvent(l->queue, (cudaEvent_t)(uintptr_t)ready.id, 0));
  if (l == p->self) return meet_self(p, op, handle, e);
  mark(p, l, true, op->what + 1);
  if (l->n > 1)
    TRY(transfer(p, l, op, e));
  else
    TRY(alone(p, l, op, e));
  mark(p, l, false, 0);
  CUDA(p, cudaEventRecord(p->handle[handle].end, l->queue));
  return WEFT_OK;
}

weft_status nccl_start(Comm *c, const CommOp *op, int handle, DeviceEvent ready,
                       weft_error *e) {
  NcclEndpoint *p = c->ctx;
  NcclLine *l = line_of(p, op);
  assert(handle < p->nhandle);
  if (!l)
    return err_set(e, WEFT_EINTERNAL, "rank %d has no communicator with rank %d", p->rank,
                   op->peer);
  if (atomic_load(&p->w->ended)) return nccl_why(p->w, e);
  return start_on(p, l, op, handle, ready, e);
}

weft_status nccl_wait(Comm *c, int handle, weft_error *e) {
  NcclEndpoint *p = c->ctx;
  assert(handle < p->nhandle);
  if (atomic_load(&p->w->ended)) return nccl_why(p->w, e);
  const NcclHandle *h = &p->handle[handle];
  if (h->alone)
    return err_set(e, WEFT_ERUN, "rank %d waits for itself before it has started to %s",
                   p->rank, h->op.coll == COLL_SEND ? "receive" : "send");
  p->d->vt->wait(p->d, (DeviceEvent){(uint64_t)(uintptr_t)h->end});
  return WEFT_OK;
}

/* Only operations of a rank with itself leave state here. */
void nccl_drop(Comm *c) {
  NcclEndpoint *p = c->ctx;
  p->out = p->in = -1;
  for (int i = 0; i < p->nhandle; i++) p->handle[i].alone = false;
}
