/* nccl_module.c - the NCCL backend: start, failures, end. Unique ids and host messages
 * travel over the world below it (mpi or tcp). */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "nccl_int.h"
#include "vm/comm/supervisor/rendezvous.h"

enum { OLDEST = 21900, JOIN_S = 120 }; /* ncclCommRegister */

/* ---- failures ---- */

weft_status nccl_why(NcclWorld *w, weft_error *e) {
  bool first = e && e->code == WEFT_OK;
  err_set(e, w->code, "%s", w->why);
  if (first) e->rank = w->culprit;
  return w->code;
}

weft_status nccl_failed(const NcclLine *l, ncclResult_t r, const char *what,
                        weft_error *e) {
  const char *more = ncclGetLastError(l->comm);
  return err_set(e, WEFT_ERUN, "NCCL: %s over %s: %s%s%.300s", what, l->name,
                 ncclGetErrorString(r), more && *more ? ": " : "", more ? more : "");
}

weft_status nccl_cuda_failed(const NcclEndpoint *p, cudaError_t r, const char *what,
                             weft_error *e) {
  return err_set(e, WEFT_ERUN, "rank %d: %s: %s (%s)", p->rank, what,
                 cudaGetErrorString(r), cudaGetErrorName(r));
}

/* Releases the lock for a moment. */
static void pause(NcclWorld *w, int round) {
  enum { AT_ONCE = 200 };
  const struct timespec t = {.tv_nsec = 200000};
  pthread_mutex_unlock(&w->lock);
  if (round < AT_ONCE)
    sched_yield();
  else
    nanosleep(&t, NULL);
  pthread_mutex_lock(&w->lock);
}

weft_status nccl_settle(NcclEndpoint *p, NcclLine *l, ncclResult_t r, const char *what,
                        weft_error *e) {
  NcclWorld *w = p->w;
  double until = now_s() + w->seconds;
  for (int i = 0; r == ncclSuccess || r == ncclInProgress; i++) {
    if (atomic_load(&w->ended)) return nccl_why(w, e);
    ncclResult_t state;
    r = ncclCommGetAsyncError(l->comm, &state);
    if (r == ncclSuccess) r = state;
    if (r == ncclSuccess) return WEFT_OK;
    if (r == ncclInProgress && now_s() > until)
      return err_set(e, WEFT_ERUN,
                     "NCCL: %s over %s of %d ranks was not done within %.0f s; look at "
                     "NCCL_DEBUG=INFO and at the network that NCCL_SOCKET_IFNAME names%s",
                     what, l->name, l->n, w->seconds,
                     w->taken ? ", and try nccl.arena = \"cuda\"" : "");
    if (r == ncclInProgress) pause(w, i);
  }
  return nccl_failed(l, r, what, e);
}

/* Checks every communicator for an asynchronous error. */
static weft_status poll_world(World *world, weft_error *e) {
  NcclWorld *w = world->ctx;
  weft_status st = WEFT_OK;
  pthread_mutex_lock(&w->lock);
  if (atomic_load(&w->ended)) st = nccl_why(w, e);
  NcclEndpoint *p = w->joined;
  for (int i = 0; st == WEFT_OK && p && i < p->nline; i++) {
    ncclResult_t r = ncclSuccess, state = ncclSuccess;
    if (p->line[i].comm) r = ncclCommGetAsyncError(p->line[i].comm, &state);
    if (r == ncclSuccess) r = state;
    if (r != ncclSuccess && r != ncclInProgress)
      st = nccl_failed(&p->line[i], r, "an operation", e);
  }
  pthread_mutex_unlock(&w->lock);
  return st;
}

/* ---- start and end ---- */

/* Operations of a communicator wait for those before them and for nothing else: in an
 * order over all communicators, that of the host, which ranks need not agree on, they
 * could wait for each other for ever. It is set to 0 in case a file of NCCL's says
 * something else. */
#define LAUNCH_ORDER "NCCL_LAUNCH_ORDER_IMPLICIT"
static weft_status check_order(weft_error *e) {
  const char *text = getenv(LAUNCH_ORDER);
  if (!text || atoi(text) == 0) return WEFT_OK;
  return err_set(
      e, WEFT_EUSAGE,
      "--comm nccl: " LAUNCH_ORDER " is %s in the environment: it orders "
      "operations as each rank starts them, and ranks of a pipeline start them "
      "in different orders; unset it",
      text);
}

/* Blocks of symmetric kernels, if it is above 0, whatever a communicator was given
 * (NCCL 2.28.9, sym_kernels.cc): nccl_ctas.c could not count them. And a policy by which
 * what lies in windows is moved by copy engines (enqueue.cc). */
#define SYM_CTAS   "NCCL_SYM_CTAS"
#define CTA_POLICY "NCCL_CTA_POLICY"
static weft_status check_ctas(const NcclWorld *w, weft_error *e) {
  static const char *const name[] = {SYM_CTAS, CTA_POLICY};
  for (int i = 0; i < LEN(name) && w->arena == ARENA_SYMMETRIC; i++) {
    const char *text = getenv(name[i]);
    if (text && atoi(text) > 0)
      return err_set(e, WEFT_EUSAGE,
                     "--comm nccl: %s is %s in the environment: what lies in symmetric "
                     "windows would not keep to nccl.group_ctas, and could wait for room "
                     "on the GPU for ever; unset it",
                     name[i], text);
  }
  return WEFT_OK;
}

/* Connections are made at join: at the first operation a rank would wait for its peers in
 * the middle of a step. Buffers are made known at join, too, and not once more during
 * graph capture, so that operations are the same with a graph and without; of memory that
 * peers can map they do so at the first operation of a kind. */
static const WorldSetting usual[] = {{"NCCL_RUNTIME_CONNECT", "0"},
                                     {"NCCL_GRAPH_REGISTER", "0"},
                                     {LAUNCH_ORDER, "0"},
                                     {SYM_CTAS, "0"}};

static void set_all(const WorldSetting *s, int n) {
  for (int i = 0; i < n; i++) setenv(s[i].name, s[i].value, 0);
}

static weft_status start_world(World *world, weft_error *e) {
  int version = 0;
  const WorldOptions *o = world->options;
  if (o) set_all(o->setting, o->nsetting);
  set_all(usual, LEN(usual));
  TRY(check_order(e));
  if (ncclGetVersion(&version) != ncclSuccess || version < OLDEST)
    return err_set(e, WEFT_EUSAGE,
                   "--comm nccl: NCCL %d.%d is too old; weft needs 2.19 or newer",
                   version / 10000, version % 10000 / 100);
  NcclWorld *w = mem_new(world->alloc, sizeof *w);
  if (!w) return err_set(e, WEFT_ENOMEM, "no memory for the NCCL backend");
  w->alloc = world->alloc;
  w->world = world;
  w->seconds = o && o->meet && o->meet->seconds > 0 ? o->meet->seconds : JOIN_S;
  w->version = version;
  w->arena = o ? o->arena : ARENA_DEVICE;
  w->group_ctas = o ? o->group_ctas : 0;
  w->pair_ctas = o ? o->pair_ctas : 0;
  weft_status st = check_ctas(w, e);
  if (st != WEFT_OK) {
    mem_free(w->alloc, w, sizeof *w);
    return st;
  }
  pthread_mutex_init(&w->lock, NULL);
  world->ctx = w;
  return WEFT_OK;
}

static void close_world(World *world) {
  NcclWorld *w = world->ctx;
  pthread_mutex_destroy(&w->lock);
  mem_free(w->alloc, w, sizeof *w);
}

extern WEFT_API const WorldVtable weft_nccl_world;
const WorldVtable weft_nccl_world = {
    .name = "nccl",
    .version = WORLD_VERSION,
    .start = start_world,
    .arenas = nccl_arenas,
    .join = nccl_join,
    .poll = poll_world,
    .abort = nccl_abort,
    .close = close_world,
};
