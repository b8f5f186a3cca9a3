/* local_device.c - collectives and transfers of virtual ranks in device memory: the last
 * member to start enqueues the whole operation behind the events of all members, and each
 * member's wait makes its compute queue wait for the end. */
#include "local_int.h"

static bool most(const CommOp *op) { return op->red == RED_MAX; }

/* Enqueues out[..] = merge of in[..]; skips an output that is its own only input. */
static void merge(Device *d, DeviceMerge *m) {
  bool there = m->nin == 1 && m->nout == 1 && m->in[0] == m->out[0];
  if (m->count && !there) d->vt->merge(d, m);
}

static void all_reduce(Device *d, const LocalSlot *s, int n, DeviceMerge *m) {
  m->nin = m->nout = n;
  m->count = s->op.count;
  for (int k = 0; k < n; k++) m->in[k] = s->part[k].in, m->out[k] = s->part[k].out;
  merge(d, m);
}

/* Piece k of all inputs. */
static void scatter(Device *d, const LocalSlot *s, int n, uint64_t bytes,
                    DeviceMerge *m) {
  m->nin = n, m->nout = 1;
  m->count = s->op.count;
  for (int k = 0; k < n; k++) {
    for (int i = 0; i < n; i++) m->in[i] = s->part[i].in + (uint64_t)k * bytes;
    m->out[0] = s->part[k].out;
    merge(d, m);
  }
}

static void gather(Device *d, const LocalSlot *s, int n, uint64_t bytes, DeviceMerge *m) {
  m->nin = 1;
  m->count = s->op.count;
  for (int k = 0; k < n; k++) {
    m->in[0] = s->part[k].in;
    m->nout = 0;
    for (int i = 0; i < n; i++) {
      char *out = s->part[i].out + (uint64_t)k * bytes;
      if (out != s->part[k].in) m->out[m->nout++] = out;
    }
    if (m->nout) merge(d, m);
  }
}

static void one(Device *d, DeviceMerge *m, const char *in, char *out) {
  m->nin = m->nout = 1;
  m->in[0] = in, m->out[0] = out;
  merge(d, m);
}

/* Member i's piece for member k, or the rows of it that i gives. */
static void exchange(Device *d, const LocalSlot *s, int n, uint64_t bytes,
                     DeviceMerge *m) {
  for (int k = 0; k < n; k++)
    for (int i = 0; i < n; i++) {
      const CommOp *from = &s->part[i].rec->op;
      m->count = from->give ? comm_rows(from, from->give, k) : s->op.count;
      one(d, m, s->part[i].in + (uint64_t)k * bytes,
          s->part[k].out + (uint64_t)i * bytes);
    }
}

static void shift(Device *d, const LocalSlot *s, int n, DeviceMerge *m) {
  m->count = s->op.count;
  for (int k = 0; k < n; k++) one(d, m, s->part[k].in, s->part[(k + s->op.by) % n].out);
}

void local_device_move(Endpoint *p, const LocalSlot *s, int n) {
  DeviceEvent ready[DEVICE_RANKS];
  Device *d = p->device;
  DeviceMerge m = {.dtype = (DType)s->op.dtype, .most = most(&s->op)};
  uint64_t piece = s->op.count * (uint64_t)dtype_size((DType)s->op.dtype);
  for (int k = 0; k < n; k++) ready[k] = s->part[k].rec->ready;
  d->vt->beside(d, ready, n);
  switch ((CollKind)s->op.coll) {
  case COLL_ALL_REDUCE: all_reduce(d, s, n, &m); break;
  case COLL_REDUCE_SCATTER: scatter(d, s, n, piece, &m); break;
  case COLL_ALL_GATHER: gather(d, s, n, piece, &m); break;
  case COLL_ALL_TO_ALL:
  case COLL_ALL_TO_ALL_V: exchange(d, s, n, piece, &m); break;
  case COLL_SHIFT: shift(d, s, n, &m); break;
  default: assert(!"a collective");
  }
  DeviceEvent end = d->vt->beside_end(d);
  for (int k = 0; k < n; k++) s->part[k].rec->after = end;
}

static DeviceEvent copy(Device *d, const DeviceEvent *ready, int n, const CommOp *from,
                        void *out) {
  DeviceMerge m = {
      .dtype = (DType)from->dtype, .nin = 1, .nout = 1, .count = comm_alone(from)};
  m.in[0] = from->in, m.out[0] = out;
  d->vt->beside(d, ready, n);
  merge(d, &m);
  return d->vt->beside_end(d);
}

void local_device_copy(Endpoint *p, LocalRec *from, LocalRec *to) {
  const DeviceEvent ready[] = {from->ready, to->ready};
  from->after = to->after = copy(p->device, ready, 2, &from->op, to->op.out);
}

void local_device_alone(Endpoint *p, LocalRec *r) {
  r->after = copy(p->device, &r->ready, 1, &r->op, r->op.out);
}
