/* move_timing.c - runs one collective, or one transfer between two ranks, in a world of
 * its members alone. */
#include "calibrate.h"
#include "vm/comm/world.h"

typedef struct Moving {
  const Bench *b;
  const WantedMove *w;
  World world;
  int *rank; /* of its only group */
} Moving;

typedef struct Member {
  Device device;
  Comm comm;
  char *in, *out;
  size_t in_bytes, out_bytes;
  CommOp op;
  bool joined;
} Member;

enum { WARM = 3 };

static bool pair(const WantedMove *w) { return w->kind == COLL_SEND; }

/* The larger of what it takes and what it gives is so large. */
static uint64_t count_of(const WantedMove *w) {
  const CollInfo *is = &coll_info[w->kind];
  uint64_t all = MAX(w->bytes / (uint64_t)dtype_size(w->dtype), 1);
  bool pieces = is->in || is->out;
  return pieces ? MAX(all / (uint64_t)w->ranks, 1) : all;
}

static weft_status open_member(const Moving *m, int i, Member *x, weft_error *e) {
  const WantedMove *w = m->w;
  const CollInfo *is = &coll_info[w->kind];
  uint64_t count = count_of(w), n = (uint64_t)w->ranks;
  size_t size = (size_t)dtype_size(w->dtype);
  void *p;
  TRY(device_open(&x->device, m->b->device, NULL, i, i, m->b->threads, e));
  x->in_bytes = (size_t)(count * (is->in ? n : 1)) * size;
  x->out_bytes = (size_t)(count * (is->out ? n : 1)) * size;
  TRY(device_alloc(&x->device, x->in_bytes, &p, e));
  x->in = p;
  TRY(device_alloc(&x->device, x->out_bytes, &p, e));
  x->out = p;
  if (m->b->kind->host) memset(x->in, 0, x->in_bytes), memset(x->out, 0, x->out_bytes);
  CommGroup group = {.rank = m->rank,
                     .n = w->ranks,
                     .in_flight = 1,
                     .uses = 1u << w->kind,
                     .name = "measured"};
  int peer = 1 - i;
  CommNeeds needs = {.group = &group, .ngroup = 1, .nhandle = 1};
  if (pair(w)) needs = (CommNeeds){.peer = &peer, .npeer = 1, .nhandle = 1};
  bool sends = pair(w) && i == 0;
  x->op = (CommOp){.coll = pair(w) && !sends ? COLL_RECV : (uint8_t)w->kind,
                   .red = (uint8_t)w->red,
                   .dtype = (uint8_t)w->dtype,
                   .by = w->by,
                   .group = pair(w) ? -1 : 0,
                   .peer = pair(w) ? peer : -1,
                   .in = pair(w) && !sends ? NULL : x->in,
                   .out = sends ? NULL : x->out,
                   .count = count};
  World *world = (World *)&m->world;
  TRY(world_join(world, i, &x->device, &needs, &x->comm, e));
  x->joined = true;
  return WEFT_OK;
}

static void close_member(Member *x) {
  if (x->joined) comm_close(&x->comm);
  if (x->in) device_free(&x->device, x->in, x->in_bytes);
  if (x->out) device_free(&x->device, x->out, x->out_bytes);
  device_close(&x->device);
}

static weft_status once(Member *x, weft_error *e) {
  TRY(comm_start(&x->comm, &x->op, 0, device_record(&x->device), e));
  TRY(comm_wait(&x->comm, 0, e));
  return device_sync(&x->device, e);
}

/* How often: the same on all members, whatever their clocks say. */
static int rounds(const Moving *m) {
  enum { FEW = 15, MANY = 400 };
  const double slow = 1e9; /* bytes/s, of a machine that is busy otherwise */
  double each = 20e-6 + (double)m->w->bytes * m->w->ranks / slow;
  double n = m->b->seconds / each;
  return (int)(n < FEW ? FEW : n > MANY ? MANY : n);
}

/* One sample for all rounds: which rank moves the data differs from round to round. */
static weft_status repeat(const Moving *m, Member *x, Samples *out, weft_error *e) {
  int n = rounds(m);
  for (int k = 0; k < WARM; k++) TRY(once(x, e));
  double from = bench_now(m->b);
  for (int k = 0; k < n; k++) {
    if (m->b->stop && *m->b->stop) return err_set(e, WEFT_EINTR, "interrupted");
    TRY(once(x, e));
  }
  out->at[out->n++] = (bench_now(m->b) - from) / n;
  return WEFT_OK;
}

static weft_status member(void *ud, int i, Samples *out, weft_error *e) {
  const Moving *m = ud;
  Member x = {0};
  weft_status st = open_member(m, i, &x, e);
  if (st == WEFT_OK) st = repeat(m, &x, out, e);
  if (st != WEFT_OK) world_abort((World *)&m->world, i, st, e->text);
  close_member(&x);
  return st;
}

/* The processor time of all members, on as many cores as they can use. */
static double on_all_cores(const Bench *b, double each, int members) {
  return b->processor ? each * members / MIN(members, bench_cores()) : each;
}

weft_status time_move(const Bench *b, const WantedMove *w, double *seconds,
                      weft_error *e) {
  Moving m = {.b = b, .w = w};
  int n = w->ranks;
  size_t bytes = sizeof(int) * (size_t)n;
  m.rank = mem_new(NULL, bytes);
  if (!m.rank) return err_set(e, WEFT_ENOMEM, "out of memory");
  for (int i = 0; i < n; i++) m.rank[i] = i;
  weft_status st =
      world_start(&m.world, world_default(false, false, b->kind->host), NULL, n, NULL, e);
  if (st == WEFT_OK) st = median_of_threads(n, member, &m, seconds, e);
  if (st == WEFT_OK) *seconds = on_all_cores(b, *seconds, n);
  world_close(&m.world);
  mem_free(NULL, m.rank, bytes);
  return st;
}
