/* comm.c - wrappers around the functions of a backend: they check arguments, count the
 * operations and bytes, and let a test make the N-th call fail. */
#include "world.h"

static bool inject(Comm *c) { return ++c->calls == c->fail_at; }

static weft_status injected(Comm *c, const char *what, weft_error *e) {
  return err_set(e, WEFT_ERUN, "rank %d: injected fault in %s, call %llu", c->rank, what,
                 (unsigned long long)c->calls);
}

/* Refuses row counts that are negative or exceed the room for them, which is a fault of
 * the kernel that made them. */
static weft_status check_counts(const Comm *c, const CommOp *op, weft_error *e) {
  const int32_t *const counts[] = {op->give, op->take};
  assert(op->give && op->take && op->row > 0 && op->count % op->row == 0);
  int64_t room = (int64_t)(op->count / op->row);
  for (int way = 0; way < 2; way++)
    for (int k = 0; k < op->members; k++) {
      int64_t rows = 0;
      bool right = true;
      for (int i = 0; i < op->each; i++) {
        int64_t n = counts[way][k * op->each + i];
        right &= n >= 0;
        rows += n;
      }
      if (right && rows <= room) continue;
      return err_set(
          e, WEFT_EINTERNAL,
          "rank %d: %s of %lld rows %s member %d: the buffer has room for %lld", c->rank,
          coll_info[op->coll].name, (long long)rows, way ? "from" : "to", k,
          (long long)room);
    }
  return WEFT_OK;
}

static uint64_t elements(const CommOp *op) {
  uint64_t n = 0;
  if (!(coll_info[op->coll].is & COLL_COUNTED)) return op->count;
  for (int k = 0; k < op->members; k++) n += comm_rows(op, op->give, k);
  return n;
}

weft_status comm_start(Comm *c, const CommOp *op, int handle, DeviceEvent ready,
                       weft_error *e) {
  assert(c && c->vt && c->vt->version == 1);
  assert(op->coll < COLL_N && handle >= 0);
  assert(op->count == 0 || op->coll == COLL_RECV || op->in);
  assert(op->count == 0 || op->coll == COLL_SEND || op->out);
  if (inject(c)) return injected(c, "comm_start", e);
  if (coll_info[op->coll].is & COLL_COUNTED) TRY(check_counts(c, op, e));
  c->stats.starts[op->coll]++;
  c->stats.bytes[op->coll] += elements(op) * (uint64_t)dtype_size((DType)op->dtype);
  int at = op->group < 0 ? c->ngroup : op->group;
  c->counted[handle] = at;
  atomic_fetch_add_explicit(&c->count[at].started, 1, memory_order_relaxed);
  return c->vt->start(c, op, handle, ready, e);
}

weft_status comm_wait(Comm *c, int handle, weft_error *e) {
  assert(c && c->vt && handle >= 0);
  if (inject(c)) return injected(c, "comm_wait", e);
  c->stats.waits++;
  TRY(c->vt->wait(c, handle, e));
  CommCount *count = &c->count[c->counted[handle]];
  atomic_fetch_add_explicit(&count->done, 1, memory_order_relaxed);
  return WEFT_OK;
}

void comm_drop(Comm *c) {
  for (int i = 0; i <= c->ngroup; i++)
    atomic_store(&c->count[i].done, atomic_load(&c->count[i].started));
  if (c->vt->drop) c->vt->drop(c);
}

const CommCount *comm_count(const Comm *c, int group) {
  return &c->count[group < 0 ? c->ngroup : group];
}

CommInside comm_inside(const Comm *c) {
  CommInside at = {0};
  if (c->vt->inside) c->vt->inside(c, &at);
  return at;
}

uint64_t comm_bytes(int ngroup, int nhandle) {
  return ((uint64_t)ngroup + 1) * sizeof(CommCount) + (uint64_t)nhandle * sizeof(int);
}

void comm_abort(Comm *c, const char *why) {
  assert(c && c->vt);
  world_abort(c->world, c->rank, WEFT_ERUN, why);
}

void comm_close(Comm *c) {
  if (!c || !c->vt) return;
  c->vt->close(c);
  mem_free(c->world->alloc, c->count, comm_bytes(c->ngroup, c->nhandle));
  c->vt = NULL;
  c->ctx = NULL;
}
