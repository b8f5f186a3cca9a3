/* local.c - virtual ranks: creating the world, joining, waiting, aborting.
 *
 * A waiting rank sleeps on a counter of its own endpoint (a futex); the rank that
 * completes its operation increments it and wakes the owner. Ranks spin first if each has
 * a core. */
#include "local_int.h"

#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SPINS = 1000 };

/* ---- sleeping ---- */

static void futex(atomic_uint *word, int what, unsigned value) {
  syscall(SYS_futex, word, what | FUTEX_PRIVATE_FLAG, value, NULL, NULL, 0);
}

static void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

/* The sleeper sets `asleep` and then checks the counter once more (the kernel does,
 * atomically); the waker increments the counter and then checks `asleep`. In any
 * interleaving one of them sees the other. */
void local_wake(Endpoint *p) {
  atomic_fetch_add(&p->word, 1);
  if (atomic_load(&p->asleep)) futex(&p->word, FUTEX_WAKE, 1);
}

static void sleep_until(Endpoint *p, unsigned seen) {
  for (int i = 0; p->world->spin && i < SPINS; i++) {
    if (atomic_load_explicit(&p->word, memory_order_relaxed) != seen) return;
    relax();
  }
  atomic_store(&p->asleep, true);
  futex(&p->word, FUTEX_WAIT, seen);
  atomic_store(&p->asleep, false);
}

/* ---- aborting ---- */

bool local_enter(LocalWorld *w) {
  atomic_fetch_add(&w->moving, 1);
  if (!atomic_load(&w->aborted)) return true;
  local_leave(w);
  return false;
}

void local_leave(LocalWorld *w) { atomic_fetch_sub(&w->moving, 1); }

/* What runs between enter and leave is bounded: a short lock or a copy. */
static void drain(LocalWorld *w) {
  while (atomic_load(&w->moving) > 0) sched_yield();
}

weft_status local_gave_up(LocalWorld *w, weft_error *e) {
  drain(w);
  bool first = e && e->code == WEFT_OK;
  err_set(e, w->code, "%s", w->why);
  if (first) e->rank = w->culprit;
  return w->code;
}

void local_end(LocalWorld *w, int rank, weft_status code, const char *why) {
  pthread_mutex_lock(&w->lock);
  if (!atomic_load(&w->aborted)) {
    w->code = code == WEFT_OK ? WEFT_ERUN : code;
    w->culprit = rank;
    if (rank < 0)
      snprintf(w->why, sizeof w->why, "%s", why);
    else
      snprintf(w->why, sizeof w->why, "rank %d failed: %s", rank, why);
    atomic_store(&w->aborted, true);
    for (int i = 0; i < w->size; i++) local_wake(&w->end[i]);
  }
  pthread_mutex_unlock(&w->lock);
  drain(w);
}

/* ---- the backend ---- */

static weft_status start(Comm *c, const CommOp *op, int handle, DeviceEvent ready,
                         weft_error *e) {
  Endpoint *p = c->ctx;
  assert(handle < p->nhandle);
  LocalRec *r = &p->rec[handle];
  assert(!r->busy && "a handle is in use from start to wait");
  r->op = *op;
  r->ready = ready;
  r->slot = NULL;
  r->ref = NULL;
  atomic_store(&r->done, false);
  if (op->coll == COLL_SEND || op->coll == COLL_RECV) {
    TRY(local_transfer(p, r, e));
    r->busy = true;
    return WEFT_OK;
  }
  assert(op->group >= 0 && op->group < p->ngroup);
  GroupRef *ref = &p->ref[op->group];
  if (ref->g && ref->flying == ref->g->in_flight)
    return err_set(e, WEFT_EINTERNAL,
                   "communicator %s: rank %d has more than %d operations in flight",
                   ref->g->name, p->rank, ref->g->in_flight);
  TRY(local_collective(p, r, e));
  ref->flying += ref->g != NULL;
  r->busy = true;
  return WEFT_OK;
}

static weft_status wait(Comm *c, int handle, weft_error *e) {
  Endpoint *p = c->ctx;
  assert(handle < p->nhandle);
  LocalRec *r = &p->rec[handle];
  assert(r->busy && "a wait follows its start");
  for (;;) {
    unsigned seen = atomic_load(&p->word);
    if (atomic_load(&p->world->aborted)) return local_gave_up(p->world, e);
    if (atomic_load(&r->done)) break;
    if (!r->slot || !local_help(p, r)) sleep_until(p, seen);
  }
  if (device_apart(p->device)) device_wait(p->device, r->after);
  if (r->ref) r->ref->flying--;
  r->busy = false;
  return WEFT_OK;
}

/* A device captures the step of a single local rank only. */
static void drop(Comm *c) {
  Endpoint *p = c->ctx;
  assert(p->world->size == 1);
  for (int i = 0; i < p->nhandle; i++) p->rec[i].busy = false;
  p->from[p->rank] = (Fifo){0};
}

/* The handles live until the world is freed: a rank that is still copying or waking
 * others may read them. */
static void leave(Comm *c) {}

static const CommVtable local_comm = {
    .name = "local",
    .version = 1,
    .start = start,
    .wait = wait,
    .drop = drop,
    .close = leave,
};

/* ---- making and joining a world ---- */

static void free_world(LocalWorld *w) {
  weft_alloc a = w->alloc;
  size_t n = (size_t)w->size;
  for (int i = 0; w->end && i < w->size; i++) {
    Endpoint *p = &w->end[i];
    mem_free(&a, p->rec, (size_t)p->nhandle * sizeof *p->rec);
    mem_free(&a, p->ref, (size_t)MAX(p->ngroup, 1) * sizeof *p->ref);
    pthread_mutex_destroy(&p->lock);
  }
  for (LocalGroup *g = w->groups, *next; g; g = next) {
    next = g->next;
    local_group_free(w, g);
  }
  mem_free(&a, w->end, n * sizeof *w->end);
  mem_free(&a, w->fifo, n * n * sizeof *w->fifo);
  pthread_mutex_destroy(&w->lock);
  mem_free(&a, w, sizeof *w);
}

static uint64_t bytes_of_world(int size) {
  uint64_t n = (uint64_t)size;
  return sizeof(LocalWorld) + n * sizeof(Endpoint) + n * n * sizeof(Fifo);
}

static uint64_t bytes_of_rank(int ngroup, int nhandle) {
  return (uint64_t)nhandle * sizeof(LocalRec) +
         (uint64_t)MAX(ngroup, 1) * sizeof(GroupRef);
}

const WorldBytes world_local_bytes = {
    .world = bytes_of_world,
    .rank = bytes_of_rank,
    .group = local_group_bytes,
};

static weft_status start_world(World *world, weft_error *e) {
  int size = world->size;
  assert(size > 0);
  size_t n = (size_t)size;
  const weft_alloc *a = world->alloc;
  LocalWorld *w = mem_new(a, sizeof *w);
  if (!w) return err_set(e, WEFT_ENOMEM, "no memory for %d virtual ranks", size);
  if (a) w->alloc = *a;
  w->size = size;
  w->spin = size <= sysconf(_SC_NPROCESSORS_ONLN);
  pthread_mutex_init(&w->lock, NULL);
  w->end = mem_new(a, n * sizeof *w->end);
  w->fifo = mem_new(a, n * n * sizeof *w->fifo);
  for (int i = 0; w->end && i < size; i++) {
    pthread_mutex_init(&w->end[i].lock, NULL);
    w->end[i].world = w;
    w->end[i].rank = i;
    w->end[i].from = w->fifo + (size_t)i * n;
  }
  if (!w->end || !w->fifo) {
    free_world(w);
    return err_set(e, WEFT_ENOMEM, "no memory for %d virtual ranks", size);
  }
  world->ctx = w;
  return WEFT_OK;
}

static void close_world(World *w) { free_world(w->ctx); }

static void abort_world(World *w, int rank, weft_status code, int exit_code,
                        const char *why) {
  local_end(w->ctx, rank, code, why);
}

static bool same_members(const CommGroup *a, const CommGroup *b) {
  return a->n == b->n && memcmp(a->rank, b->rank, sizeof *a->rank * (size_t)a->n) == 0;
}

static weft_status join_group(Endpoint *p, const CommGroup *group, int i, weft_error *e) {
  const CommGroup *c = &group[i];
  GroupRef *ref = &p->ref[i];
  int twin = 0;
  ref->member = -1;
  for (int k = 0; k < c->n; k++)
    if (c->rank[k] == p->rank) ref->member = k;
  if (c->n > DEVICE_RANKS && device_apart(p->device))
    return err_set(e, WEFT_ELIMIT,
                   "communicator %s has %d members, but one process has room for at most "
                   "%d on device %s",
                   c->name, c->n, DEVICE_RANKS, p->device->vt->name);
  if (ref->member < 0)
    return c->n == 0 ? WEFT_OK
                     : err_set(e, WEFT_EINTERNAL, "communicator %s: rank %d is no member",
                               c->name, p->rank);
  if (c->n == 1) return WEFT_OK;
  for (int k = 0; k < i; k++) twin += same_members(&group[k], c);
  return local_group_get(p->world, c, twin, &ref->g, e);
}

static weft_status join(Endpoint *p, const CommNeeds *needs, weft_error *e) {
  const weft_alloc *a = &p->world->alloc;
  int ngroup = needs->ngroup, nhandle = needs->nhandle;
  if (p->joined)
    return err_set(e, WEFT_EINTERNAL, "rank %d joins its world a second time", p->rank);
  p->joined = true;
  p->rec = mem_new(a, (size_t)nhandle * sizeof *p->rec);
  if (p->rec) p->nhandle = nhandle;
  p->ref = mem_new(a, (size_t)MAX(ngroup, 1) * sizeof *p->ref);
  if (p->ref) p->ngroup = ngroup;
  if (!p->rec || !p->ref)
    return err_set(e, WEFT_ENOMEM, "no memory for the communication of rank %d", p->rank);
  for (int i = 0; i < nhandle; i++) p->rec[i].owner = p;
  for (int i = 0; i < ngroup; i++) TRY(join_group(p, needs->group, i, e));
  return WEFT_OK;
}

static weft_status join_world(World *world, int rank, Device *d, const CommNeeds *needs,
                              Comm *c, weft_error *e) {
  LocalWorld *w = world->ctx;
  Endpoint *p = &w->end[rank];
  p->device = d;
  pthread_mutex_lock(&w->lock);
  weft_status st = join(p, needs, e);
  pthread_mutex_unlock(&w->lock);
  if (st != WEFT_OK) return st;
  *c = (Comm){.vt = &local_comm, .rank = rank, .size = w->size, .ctx = p};
  return WEFT_OK;
}

/* Ranks are woken when one of them fails, so there is nothing to poll. */
const WorldVtable world_local = {
    .name = "local",
    .version = WORLD_VERSION,
    .start = start_world,
    .join = join_world,
    .abort = abort_world,
    .close = close_world,
};
