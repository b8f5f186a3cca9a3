/* local_group.c - collectives of virtual ranks.
 *
 * Start records a member's buffers in the slot of its next operation. Once all members
 * have started, the data is moved in segments that any member may claim while it waits,
 * so a waiter depends on the others' starts and never on their waits. An operation of a
 * single segment is moved by the last member to start, which saves a wake-up.
 *
 * How many slots a group needs. Each member has at most F = in_flight operations started
 * and not waited for; start refuses more. Call an operation live from its first start
 * until its data is moved, and let m be the member with the fewest starts, s.
 * - Live operations that m has started: m has not waited for them, because a wait returns
 *   only when the data is moved. So there are at most F.
 * - Live operations that m has not started have numbers >= s. The member f with the most
 *   starts has started them all and cannot have waited for any of them. At most F.
 * So 2F slots suffice, whatever the order of waits. By the second point the operations
 * that are not started by all members have at most F consecutive numbers: `open`, a table
 * indexed by number modulo F, finds them without a search. */
#include "local_int.h"

#include <stdio.h>

#include "vm/comm/reduce.h"

enum { SEGMENT = 16 * REDUCE_BLOCK }; /* elements */

/* ---- making groups ---- */

static LocalGroup *find(LocalWorld *w, const CommGroup *group, int twin) {
  size_t n = sizeof *group->rank * (size_t)group->n;
  for (LocalGroup *g = w->groups; g; g = g->next)
    if (g->n == group->n && g->twin == twin && memcmp(g->rank, group->rank, n) == 0)
      return g;
  return NULL;
}

uint64_t local_group_bytes(int n, int in_flight) {
  uint64_t members = (uint64_t)n, f = (uint64_t)MAX(in_flight, 1), nslot = 2 * f;
  return sizeof(LocalGroup) + nslot * sizeof(LocalSlot) + nslot * members * sizeof(Part) +
         f * sizeof(LocalSlot *) + members * (sizeof(uint64_t) + sizeof(int));
}

/* One block holds the group and its arrays, widest alignment first. */
static LocalGroup *make(LocalWorld *w, const CommGroup *group, int twin, int flight) {
  size_t n = (size_t)group->n, f = (size_t)flight, nslot = 2 * f;
  size_t bytes = local_group_bytes(group->n, flight);
  LocalGroup *g = mem_new(&w->alloc, bytes);
  if (!g) return NULL;
  g->bytes = bytes;
  g->n = group->n;
  g->twin = twin;
  g->in_flight = flight;
  snprintf(g->name, sizeof g->name, "%s", group->name ? group->name : "?");
  pthread_mutex_init(&g->lock, NULL);
  g->slot = (LocalSlot *)(g + 1);
  Part *part = (Part *)(g->slot + nslot);
  g->open = (LocalSlot **)(part + nslot * n);
  g->seq = (uint64_t *)(g->open + f);
  int *rank = (int *)(g->seq + n);
  memcpy(rank, group->rank, n * sizeof *rank);
  g->rank = rank;
  for (size_t i = 0; i < nslot; i++) {
    g->slot[i].part = part + i * n;
    g->slot[i].free = g->free;
    g->free = &g->slot[i];
  }
  return g;
}

weft_status local_group_get(LocalWorld *w, const CommGroup *group, int twin,
                            LocalGroup **out, weft_error *e) {
  int flight = MAX(group->in_flight, 1);
  LocalGroup *g = find(w, group, twin);
  if (!g) {
    g = make(w, group, twin, flight);
    if (!g) return err_set(e, WEFT_ENOMEM, "no memory for communicator %s", group->name);
    g->next = w->groups;
    w->groups = g;
  }
  if (g->in_flight != flight)
    return err_set(e, WEFT_EINTERNAL,
                   "communicator %s: its members disagree on the operations in flight, "
                   "%d and %d",
                   g->name, g->in_flight, flight);
  *out = g;
  return WEFT_OK;
}

void local_group_free(LocalWorld *w, LocalGroup *g) {
  pthread_mutex_destroy(&g->lock);
  mem_free(&w->alloc, g, g->bytes);
}

/* ---- moving data ---- */

static void copy(void *out, const void *in, size_t n) {
  if (n && out != in) memcpy(out, in, n);
}

/* Reduces elements [a, a+n) of the members' inputs into each of `nto` outputs at byte
 * `at`. All inputs of a block are read before an output of it is written: out may be
 * in. */
static void reduce(const LocalSlot *s, int nin, uint64_t a, uint64_t n, const Part *to,
                   int nto, size_t at) {
  DType t = (DType)s->op.dtype;
  size_t size = (size_t)dtype_size(t);
  ReduceAcc acc;
  for (uint64_t i = 0; i < n; i += REDUCE_BLOCK) {
    size_t len = (size_t)MIN(n - i, (uint64_t)REDUCE_BLOCK), o = at + i * size;
    reduce_load(t, &acc, s->part[0].in + (a + i) * size, len);
    for (int k = 1; k < nin; k++)
      reduce_add(t, (RedOp)s->op.red, &acc, s->part[k].in + (a + i) * size, len);
    reduce_store(t, to[0].out + o, &acc, len);
    for (int k = 1; k < nto; k++) memcpy(to[k].out + o, to[0].out + o, len * size);
  }
}

/* How many of the n elements from `at` on in the sender's place receiver k gets. */
static uint64_t counted(const LocalSlot *s, const Part *from, int k, uint64_t at,
                        uint64_t n) {
  if (s->op.coll != COLL_ALL_TO_ALL_V) return n;
  const CommOp *op = &from->rec->op;
  uint64_t end = comm_rows(op, op->give, k);
  return at < end ? MIN(n, end - at) : 0;
}

/* Moves segment `seg` of the buffer, which consists of one piece per member for
 * operations with pieces. */
static void move(const LocalGroup *g, const LocalSlot *s, uint64_t seg) {
  size_t size = (size_t)dtype_size((DType)s->op.dtype);
  uint64_t a = seg * SEGMENT, end = MIN(a + SEGMENT, s->total);
  if (s->op.coll == COLL_ALL_REDUCE) {
    reduce(s, g->n, a, end - a, s->part, g->n, a * size);
    return;
  }
  if (s->op.coll == COLL_SHIFT) {
    for (int k = 0; k < g->n; k++)
      copy(s->part[(k + s->op.by) % g->n].out + a * size, s->part[k].in + a * size,
           (end - a) * size);
    return;
  }
  for (uint64_t n; a < end; a += n) {
    uint64_t piece = a / s->op.count, at = a % s->op.count;
    n = MIN(end - a, s->op.count - at);
    const Part *p = &s->part[piece];
    if (s->op.coll == COLL_REDUCE_SCATTER) {
      reduce(s, g->n, a, n, p, 1, at * size);
    } else if (s->op.coll == COLL_ALL_TO_ALL || s->op.coll == COLL_ALL_TO_ALL_V) {
      for (int k = 0; k < g->n; k++)
        copy(s->part[k].out + a * size, p->in + ((uint64_t)k * s->op.count + at) * size,
             counted(s, p, k, at, n) * size);
    } else {
      for (int k = 0; k < g->n; k++)
        copy(s->part[k].out + a * size, p->in + at * size, n * size);
    }
  }
}

static void wake(LocalWorld *w, const LocalGroup *g) {
  for (int k = 0; k < g->n; k++) local_wake(&w->end[g->rank[k]]);
}

/* Counts a moved segment; the last one ends the operation and frees its slot. Members are
 * woken after the lock is released, since they take it next. */
static void finish(LocalWorld *w, LocalGroup *g, LocalSlot *s) {
  pthread_mutex_lock(&g->lock);
  bool done = ++s->finished == s->nseg;
  if (done) {
    for (int k = 0; k < g->n; k++) atomic_store(&s->part[k].rec->done, true);
    s->free = g->free;
    g->free = s;
  }
  pthread_mutex_unlock(&g->lock);
  if (done) wake(w, g);
}

bool local_help(Endpoint *p, LocalRec *r) {
  if (!local_enter(p->world)) return true;
  LocalGroup *g = r->ref->g;
  pthread_mutex_lock(&g->lock);
  LocalSlot *s = atomic_load(&r->done) ? NULL : r->slot;
  if (s && (s->started < g->n || s->next == s->nseg)) s = NULL;
  uint64_t seg = s ? s->next++ : 0;
  pthread_mutex_unlock(&g->lock);
  if (s) {
    move(g, s, seg);
    finish(p->world, g, s);
  }
  local_leave(p->world);
  return s != NULL;
}

/* ---- starting ---- */

static bool same(const CommOp *a, const CommOp *b) {
  return a->coll == b->coll && a->dtype == b->dtype && a->count == b->count &&
         a->row == b->row && a->each == b->each &&
         (!(coll_info[a->coll].is & COLL_SUMS) || a->red == b->red);
}

/* Unlocks the group, leaves the world and returns the error. */
static weft_status refuse(Endpoint *p, LocalGroup *g, const char *why, weft_error *e) {
  pthread_mutex_unlock(&g->lock);
  local_leave(p->world);
  local_end(p->world, -1, WEFT_EINTERNAL, why);
  return local_gave_up(p->world, e);
}

static weft_status mismatch(Endpoint *p, LocalGroup *g, const LocalSlot *s,
                            const CommOp *op, weft_error *e) {
  char why[256];
  snprintf(why, sizeof why,
           "communicator %s: rank %d starts %s of %llu %s where rank %d started %s of "
           "%llu %s: the programs differ",
           g->name, p->rank, coll_info[op->coll].name, (unsigned long long)op->count,
           dtype_name((DType)op->dtype), s->first, coll_info[s->op.coll].name,
           (unsigned long long)s->op.count, dtype_name((DType)s->op.dtype));
  return refuse(p, g, why, e);
}

/* Ends the world (and unlocks the group) unless all members take as many rows as they
 * get. */
static weft_status agree_on_rows(Endpoint *p, LocalGroup *g, const LocalSlot *s,
                                 weft_error *e) {
  for (int i = 0; i < g->n * g->n; i++) {
    int from = i / g->n, to = i % g->n;
    const CommOp *a = &s->part[from].rec->op, *b = &s->part[to].rec->op;
    uint64_t gives = comm_rows(a, a->give, to), takes = comm_rows(b, b->take, from);
    if (gives == takes) continue;
    char why[256];
    snprintf(why, sizeof why,
             "communicator %s: rank %d gives %llu rows to rank %d, which takes %llu",
             g->name, g->rank[from], (unsigned long long)(gives / a->row), g->rank[to],
             (unsigned long long)(takes / b->row));
    return refuse(p, g, why, e);
  }
  return WEFT_OK;
}

/* The slot of a member's next operation. On a device it has one segment. */
static LocalSlot *slot_of(LocalGroup *g, uint64_t seq, const CommOp *op,
                          const Endpoint *p) {
  LocalSlot **open = &g->open[seq % (uint64_t)g->in_flight], *s = *open;
  if (s) return s;
  s = g->free;
  assert(s && "2 * in_flight slots suffice");
  g->free = s->free;
  const CollInfo *is = &coll_info[op->coll];
  uint64_t total = op->count * (is->in || is->out ? (uint64_t)g->n : 1);
  uint64_t nseg = device_apart(p->device) ? 1 : MAX((total + SEGMENT - 1) / SEGMENT, 1);
  *s = (LocalSlot){
      .op = *op, .first = p->rank, .total = total, .nseg = nseg, .part = s->part};
  return *open = s;
}

static void alone(Endpoint *p, LocalRec *r) {
  const CommOp *op = &r->op;
  if (device_apart(p->device))
    local_device_alone(p, r);
  else
    copy(op->out, op->in, comm_alone(op) * (size_t)dtype_size((DType)op->dtype));
}

weft_status local_collective(Endpoint *p, LocalRec *r, weft_error *e) {
  const CommOp *op = &r->op;
  LocalWorld *w = p->world;
  GroupRef *ref = &p->ref[op->group];
  LocalGroup *g = ref->g;
  if (!local_enter(w)) return local_gave_up(w, e);
  if (!g) {
    assert(ref->member >= 0);
    alone(p, r);
    atomic_store(&r->done, true);
    local_leave(w);
    return WEFT_OK;
  }
  pthread_mutex_lock(&g->lock);
  uint64_t seq = g->seq[ref->member]++;
  LocalSlot *s = slot_of(g, seq, op, p);
  if (!same(op, &s->op)) return mismatch(p, g, s, op, e);
  s->part[ref->member] = (Part){.in = op->in, .out = op->out, .rec = r};
  r->slot = s;
  r->ref = ref;
  bool last = ++s->started == g->n, small = s->nseg == 1;
  if (last && op->give) TRY(agree_on_rows(p, g, s, e));
  if (last) {
    g->open[seq % (uint64_t)g->in_flight] = NULL;
    if (small) s->next = 1;
  }
  pthread_mutex_unlock(&g->lock);
  if (last && small) {
    if (device_apart(p->device))
      local_device_move(p, s, g->n);
    else
      move(g, s, 0);
    finish(w, g, s);
  } else if (last) {
    wake(w, g);
  }
  local_leave(w);
  return WEFT_OK;
}
