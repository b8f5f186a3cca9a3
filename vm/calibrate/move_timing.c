/* move_timing.c - one member of a collective, or of a transfer between two ranks: its
 * operands, and the time of many rounds. See move_member.h. */
#include "move_member.h"

#include <math.h>

enum { WARM = 3 };

static bool pair(const WantedMove *w) { return w->kind == COLL_SEND; }

/* The larger of what it takes and what it gives is so large. */
static uint64_t count_of(const WantedMove *w) {
  const CollInfo *is = &coll_info[w->kind];
  uint64_t all = MAX(w->bytes / (uint64_t)dtype_size(w->dtype), 1);
  bool pieces = is->in || is->out;
  return pieces ? MAX(all / (uint64_t)w->ranks, 1) : all;
}

/* One row to each member, as long as its room: counts are 32 bits wide. They lie in host
 * memory whatever the device. */
static weft_status give_rows(MoveMember *x, int members, uint64_t count, weft_error *e) {
  x->op.members = members, x->op.each = 1, x->op.row = count;
  x->rows = mem_new(NULL, sizeof *x->rows * (size_t)members);
  if (!x->rows) return err_set(e, WEFT_ENOMEM, "out of memory");
  for (int i = 0; i < members; i++) x->rows[i] = 1;
  x->op.give = x->op.take = x->rows;
  return WEFT_OK;
}

weft_status move_member_open(MoveMember *x, const Bench *b, const WantedMove *w, int i,
                             int group, weft_error *e) {
  const CollInfo *is = &coll_info[w->kind];
  uint64_t count = count_of(w), n = (uint64_t)w->ranks;
  size_t size = (size_t)dtype_size(w->dtype);
  void *p;
  x->in_bytes = (size_t)(count * (is->in ? n : 1)) * size;
  x->out_bytes = (size_t)(count * (is->out ? n : 1)) * size;
  TRY(device_alloc(x->device, x->in_bytes, &p, e));
  x->in = p;
  TRY(device_alloc(x->device, x->out_bytes, &p, e));
  x->out = p;
  if (b->kind->host) memset(x->in, 0, x->in_bytes), memset(x->out, 0, x->out_bytes);
  bool sends = pair(w) && i == 0;
  x->op = (CommOp){.coll = pair(w) && !sends ? COLL_RECV : (uint8_t)w->kind,
                   .red = (uint8_t)w->red,
                   .dtype = (uint8_t)w->dtype,
                   .by = w->by,
                   .group = pair(w) ? -1 : group,
                   .peer = pair(w) ? 1 - i : -1,
                   .in = pair(w) && !sends ? NULL : x->in,
                   .out = sends ? NULL : x->out,
                   .count = count};
  return is->is & COLL_COUNTED ? give_rows(x, w->ranks, count, e) : WEFT_OK;
}

void move_member_close(MoveMember *x) {
  if (x->in) device_free(x->device, x->in, x->in_bytes);
  if (x->out) device_free(x->device, x->out, x->out_bytes);
  if (x->rows) mem_free(NULL, x->rows, sizeof *x->rows * (size_t)x->op.members);
  x->in = x->out = NULL, x->rows = NULL;
}

static weft_status once(MoveMember *x, weft_error *e) {
  TRY(comm_start(x->comm, &x->op, 0, device_record(x->device), e));
  TRY(comm_wait(x->comm, 0, e));
  return device_sync(x->device, e);
}

/* CPU time that each member burns before each round: in a step collectives follow
 * kernels, and where ranks share cores those that arrive first sleep and have to be
 * woken. */
#define WORK_SECONDS 300e-6

static bool works_between(const Bench *b, const WantedMove *w) {
  return b->processor && !pair(w);
}

/* Ranks that share a core, 1 where each has one. */
static double ranks_on_core(const WantedMove *w) {
  return MAX((double)w->ranks / bench_cores(), 1);
}

/* How often: the same on all members, whatever their clocks say. */
static int rounds(const Bench *b, const WantedMove *w) {
  enum { FEW = 15, MANY = 400, TIMES = 4 };
  const double slow = 1e9; /* bytes/s, of a machine that is busy otherwise */
  double each = 20e-6 + (double)w->bytes * w->ranks / slow, n = b->seconds / each;
  if (works_between(b, w))
    n = TIMES * b->seconds / (each + WORK_SECONDS * ranks_on_core(w));
  return (int)(n < FEW ? FEW : n > MANY ? MANY : n);
}

static double work(const Bench *b) {
  double from = bench_now(b), took;
  do took = bench_now(b) - from;
  while (took < WORK_SECONDS);
  return took;
}

/* `n` rounds: adds the CPU time of this thread in them to `busy`; `*wall` is the wall
 * time of a round, less that of the work before it on all cores. */
static weft_status part(MoveMember *x, const Bench *b, const WantedMove *w, int n,
                        double *busy, double *wall, weft_error *e) {
  double began = now_s(), worked = 0;
  for (int k = 0; k < n; k++) {
    if (b->stop && *b->stop) return err_set(e, WEFT_EINTR, "interrupted");
    if (works_between(b, w)) worked += work(b);
    double from = bench_now(b);
    TRY(once(x, e));
    *busy += bench_now(b) - from;
  }
  *wall = (now_s() - began - worked * ranks_on_core(w)) / n;
  return WEFT_OK;
}

/* A member also waits for the others to wake: a transfer takes at least the median of its
 * wall times. */
weft_status move_member_time(MoveMember *x, const Bench *b, const WantedMove *w,
                             double *each, weft_error *e) {
  enum { PARTS = 5 };
  int n = rounds(b, w);
  double busy = 0, wall[PARTS] = {0};
  for (int k = 0; k < WARM; k++) TRY(once(x, e));
  for (int i = 0; i < PARTS; i++)
    TRY(part(x, b, w, (i + 1) * n / PARTS - i * n / PARTS, &busy, &wall[i], e));
  *each = busy / n;
  if (b->processor) *each = MAX(*each, median_of(wall, PARTS) / ranks_on_core(w));
  return WEFT_OK;
}

double move_on_all_cores(const Bench *b, double each, int members) {
  return b->processor ? each * members / MIN(members, bench_cores()) : each;
}
