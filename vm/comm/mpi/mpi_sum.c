/* mpi_sum.c - large reductions over MPI, as a pipelined reduce-scatter and all-gather.
 *
 * Nonblocking reductions of MPI libraries reduce whole buffers on few members and move
 * them twice; these are as fast as the blocking ones. Each member reduces one slice, in
 * group order, so the bits are those of virtual ranks. A slice is cut into steps: while
 * one is reduced, the parts of the next arrive and the sums of the last are sent. A step
 * has a slot of requests and of buffers for parts. Operations of a group run one after
 * another, so messages between two members keep one order per tag. */
#include "mpi_int.h"

enum { TAG_PART = 1, TAG_SUM = 2 };
/* ALIGNED: parts of all members begin where their elements, and lines of the cache, do.
 */
enum { ROOM = 16 << 20, MOST_MEMBERS = 64, ALIGNED = 64 };

/* ---- slices ---- */

/* The place of member k's step in the whole buffer, and its elements. */
static uint64_t place(const MpiSum *s, int k, int step) {
  return (uint64_t)k * s->slice + (uint64_t)step * s->len;
}

static int length(const MpiSum *s, int k, int step) {
  uint64_t begin = MIN((uint64_t)k * s->slice, s->whole);
  uint64_t own = MIN(s->slice, s->whole - begin), at = (uint64_t)step * s->len;
  return at < own ? (int)MIN(own - at, s->len) : 0;
}

static char *part_room(const MpiSum *s, int step, int k) {
  return s->room + ((size_t)(step % MPI_SLOTS) * (size_t)s->n + (size_t)k) * s->chunk;
}

static MPI_Request *requests(const MpiSum *s, int step, MpiRow row) {
  return s->req + ((size_t)(step % MPI_SLOTS) * MPI_ROWS + row) * (size_t)s->n;
}

/* ---- receive, reduce, send ---- */

#define CALL(call)                                                                       \
  do {                                                                                   \
    int rc_ = (call);                                                                    \
    if (rc_ != MPI_SUCCESS) return rc_;                                                  \
  } while (0)

/* Sends parts to the members that reduce them, and receives this member's. */
static int post(MpiSum *s) {
  int step = s->posted++, mine = length(s, s->me, step);
  for (int k = 0; k < s->n; k++) {
    int theirs = length(s, k, step);
    if (k == s->me) continue;
    if (mine)
      CALL(MPI_Irecv(part_room(s, step, k), mine, s->type, k, TAG_PART, s->comm,
                     &requests(s, step, MPI_PARTS_IN)[k]));
    if (theirs)
      CALL(MPI_Isend(s->from + place(s, k, step) * s->size, theirs, s->type, k, TAG_PART,
                     s->comm, &requests(s, step, MPI_PARTS_OUT)[k]));
  }
  return MPI_SUCCESS;
}

static void add_up(MpiSum *s, int step) {
  size_t n = (size_t)length(s, s->me, step), size = s->size;
  const char *own = s->from + place(s, s->me, step) * size;
  char *to = s->to + (uint64_t)step * s->len * size;
  ReduceAcc acc;
  for (size_t at = 0, some; at < n; at += some) {
    some = MIN(n - at, (size_t)REDUCE_BLOCK);
    for (int k = 0; k < s->n; k++) {
      const char *in = (k == s->me ? own : part_room(s, step, k)) + at * size;
      if (k == 0)
        reduce_load(s->dtype, &acc, in, some);
      else
        reduce_add(s->dtype, s->red, &acc, in, some);
    }
    reduce_store(s->dtype, to + at * size, &acc, some);
  }
}

/* Sends sums to all members, whose parts in that place have been sent before. */
static int pass_on(MpiSum *s, int step) {
  int mine = length(s, s->me, step);
  for (int k = 0; k < s->n; k++) {
    int theirs = length(s, k, step);
    if (k == s->me) continue;
    if (theirs)
      CALL(MPI_Irecv(s->from + place(s, k, step) * s->size, theirs, s->type, k, TAG_SUM,
                     s->comm, &requests(s, step, MPI_SUMS_IN)[k]));
    if (mine)
      CALL(MPI_Isend(s->to + (uint64_t)step * s->len * s->size, mine, s->type, k, TAG_SUM,
                     s->comm, &requests(s, step, MPI_SUMS_OUT)[k]));
  }
  return MPI_SUCCESS;
}

/* Tests whether two rows of requests of a step have completed. */
static int through(MpiSum *s, int step, MpiRow first, bool *yes) {
  int all = 0;
  *yes = false;
  for (int row = 0; row < 2; row++) {
    CALL(MPI_Testall(s->n, requests(s, step, (MpiRow)(first + row)), &all,
                     MPI_STATUSES_IGNORE));
    if (!all) return MPI_SUCCESS;
  }
  *yes = true;
  return MPI_SUCCESS;
}

/* ---- a sum ---- */

static void begin(MpiSum *s) {
  const CommOp *op = &s->queue[s->head].op;
  bool scatter = op->coll == COLL_REDUCE_SCATTER;
  s->dtype = (DType)op->dtype, s->red = (RedOp)op->red;
  s->type = mpi_type(s->dtype);
  s->size = (size_t)dtype_size(s->dtype);
  s->whole = scatter ? op->count * (uint64_t)s->n : op->count;
  s->slice = scatter ? op->count : (op->count + (uint64_t)s->n - 1) / (uint64_t)s->n;
  s->len = MIN(s->chunk / s->size, s->limit);
  s->steps = (int)((s->slice + s->len - 1) / s->len);
  s->from = scatter ? (char *)(uintptr_t)op->in : op->out;
  s->to = scatter ? op->out : (char *)op->out + (uint64_t)s->me * s->slice * s->size;
  s->sums = !scatter;
  s->posted = s->added = s->freed = 0;
}

static int move_head(MpiSum *s, bool *done) {
  bool moved = true, yes;
  while (moved) {
    moved = false;
    for (; s->posted < s->steps && s->posted < s->freed + MPI_SLOTS; moved = true)
      CALL(post(s));
    if (s->added < s->posted) {
      CALL(through(s, s->added, MPI_PARTS_IN, &yes));
      if (yes) {
        add_up(s, s->added);
        if (s->sums) CALL(pass_on(s, s->added));
        s->added++;
        moved = true;
      }
    }
    if (s->freed < s->added) {
      CALL(through(s, s->freed, MPI_SUMS_IN, &yes));
      if (yes) s->freed++, moved = true;
    }
  }
  *done = s->freed == s->steps;
  return MPI_SUCCESS;
}

int mpi_sum_move(MpiSum *s) {
  bool done = true;
  while (s->waiting && done) {
    CALL(move_head(s, &done));
    if (!done) break;
    *s->queue[s->head].done = true;
    s->head = (s->head + 1) % s->most;
    if (--s->waiting) begin(s);
  }
  return MPI_SUCCESS;
}

int mpi_sum_start(MpiSum *s, const CommOp *op, bool *done) {
  assert(s->waiting < s->most);
  *done = false;
  s->queue[(s->head + s->waiting) % s->most] = (MpiQueued){*op, done};
  if (s->waiting++ == 0) begin(s);
  return mpi_sum_move(s);
}

/* ---- memory ---- */

bool mpi_sum_new(MpiSum *s, const weft_alloc *a, MPI_Comm comm, int n, int me, int most) {
  *s = (MpiSum){.comm = comm, .n = n, .me = me, .most = most};
  s->chunk = ROOM / MPI_SLOTS / (size_t)n / ALIGNED * ALIGNED;
  s->nreq = (size_t)MPI_SLOTS * MPI_ROWS * (size_t)n;
  s->room = mem_new(a, s->chunk * MPI_SLOTS * (size_t)n);
  s->req = mem_new(a, s->nreq * sizeof *s->req);
  s->queue = mem_new(a, (size_t)most * sizeof *s->queue);
  for (size_t i = 0; s->req && i < s->nreq; i++) s->req[i] = MPI_REQUEST_NULL;
  return s->room && s->req && s->queue;
}

void mpi_sum_free(MpiSum *s, const weft_alloc *a) {
  mem_free(a, s->queue, (size_t)s->most * sizeof *s->queue);
  mem_free(a, s->req, s->nreq * sizeof *s->req);
  mem_free(a, s->room, s->chunk * MPI_SLOTS * (size_t)s->n);
}

bool mpi_sum_serves(const CommGroup *g) {
  unsigned sums = 1u << COLL_ALL_REDUCE | 1u << COLL_REDUCE_SCATTER;
  return g->n > 1 && g->n <= MOST_MEMBERS && g->uses & sums;
}
