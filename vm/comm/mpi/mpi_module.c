/* mpi_module.c - the MPI backend: nonblocking collectives, one communicator per group.
 *
 * Large reductions are weft's own (mpi_sum.c). Built as weft_mpi.so, which exports one
 * symbol. One rank per process, one thread that calls MPI. Progress happens inside MPI
 * calls: a rank that computes may delay others, a rank that waits does not. */
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "mpi_int.h"
#include "vm/base/terminal.h"

/* For another process to report the reason and end all processes. */
enum { LAST_WORDS_S = 3 };

typedef struct MpiGroup {
  MPI_Comm comm; /* MPI_COMM_NULL for a group of one or none */
  int n;
  char name[32];
  bool sums; /* this backend makes large sums itself: */
  MpiSum sum;
} MpiGroup;

typedef struct MpiEndpoint {
  MpiWorld *w;
  MpiGroup *group;
  MpiHandle *handle;
  int ngroup, nhandle;
} MpiEndpoint;

/* ---- errors ---- */

/* Prints the reason and ends all processes (MPI_Abort). */
static void end_all(MpiWorld *w, int exit_code, const char *why) {
  fprintf(stderr, "weft: rank %d failed: %s\n", w->rank, SHOWN(why));
  fflush(stderr);
  MPI_Abort(w->all, exit_code);
}

/* Turns the MPI result of a host message to or from `peer` into a status. */
static weft_status host_call(const MpiWorld *w, int rc, const char *what, int peer,
                             weft_error *e) {
  char text[64];
  if (rc == MPI_SUCCESS) return WEFT_OK;
  snprintf(text, sizeof text, "%s rank %d", what, peer);
  return mpi_report(rc, w->rank, text, e);
}

/* ---- operations ---- */

/* Sums make progress inside start and wait: a wait for one moves all of them. */
static weft_status move_sums(MpiEndpoint *p, weft_error *e) {
  for (int i = 0; i < p->ngroup; i++)
    if (p->group[i].sums && p->group[i].sum.waiting)
      MPI(p->w, mpi_sum_move(&p->group[i].sum));
  return WEFT_OK;
}

static bool any_sum(const MpiEndpoint *p) {
  bool any = false;
  for (int i = 0; i < p->ngroup; i++) any |= p->group[i].sums && p->group[i].sum.waiting;
  return any;
}

static bool is_own_sum(const MpiGroup *g, const CommOp *op, size_t size) {
  return g->sums && (op->coll == COLL_ALL_REDUCE || op->coll == COLL_REDUCE_SCATTER) &&
         op->count * size >= MPI_SUM_LEAST;
}

static const char *const name[COLL_N] = {
#define COLL(id, name, in, out, is, doc) name,
#include "vm/program/coll.def"
};

static MPI_Op mpi_op(const MpiWorld *w, const CommOp *op) {
  if (op->dtype == DT_BF16) return w->half[0][op->red];
  if (op->dtype == DT_F16) return w->half[1][op->red];
  return op->red == RED_SUM ? MPI_SUM : MPI_MAX;
}

/* True if the piece lies at rank's place in the whole buffer. */
static bool in_its_place(const CommOp *op, int rank, size_t size) {
  size_t at = (size_t)rank * op->count * size;
  if (op->coll == COLL_ALL_GATHER) return (const char *)op->in == (char *)op->out + at;
  return op->coll == COLL_REDUCE_SCATTER &&
         (const char *)op->out == (const char *)op->in + at;
}

static weft_status start(Comm *c, const CommOp *op, int handle, DeviceEvent ready,
                         weft_error *e) {
  MpiEndpoint *p = c->ctx;
  MpiWorld *w = p->w;
  assert(handle < p->nhandle);
  MpiHandle *h = &p->handle[handle];
  assert(h->n == 0 && "a handle is in use from start to wait");
  int size;
  MpiPart part = {.op = op, .comm = w->p2p, .type = mpi_type((DType)op->dtype), .n = 2};
  assert(part.type != MPI_DATATYPE_NULL);
  MPI(w, MPI_Type_size(part.type, &size));
  part.size = (size_t)size;
  h->what = name[op->coll];
  h->where = "pp";
  if (op->coll != COLL_SEND && op->coll != COLL_RECV) {
    assert(op->group >= 0 && op->group < p->ngroup);
    const MpiGroup *g = &p->group[op->group];
    assert(g->n > 0 && "the rank is a member");
    bool copies = op->coll == COLL_ALL_REDUCE || g->n == 1;
    if (copies && op->count && op->in != op->out)
      memcpy(op->out, op->in, comm_alone(op) * part.size);
    if (g->n == 1) return WEFT_OK;
    h->where = g->name;
    h->sums = is_own_sum(g, op, part.size);
    if (h->sums) {
      p->group[op->group].sum.limit = w->limit;
      MPI(w, mpi_sum_start(&p->group[op->group].sum, op, &h->done));
      return WEFT_OK;
    }
    part.comm = g->comm;
    part.n = g->n;
    MPI(w, MPI_Comm_rank(g->comm, &part.rank));
    part.in_place = op->count && in_its_place(op, part.rank, part.size);
    part.red = mpi_op(w, op);
  }
  return mpi_start(w, &part, h, e);
}

static weft_status wait(Comm *c, int handle, weft_error *e) {
  MpiEndpoint *p = c->ctx;
  assert(handle < p->nhandle);
  MpiHandle *h = &p->handle[handle];
  int rc = MPI_SUCCESS;
  TRY(move_sums(p, e));
  for (int done = 0; rc == MPI_SUCCESS && !done && any_sum(p);) {
    TRY(move_sums(p, e));
    if (h->sums)
      done = h->done;
    else
      rc = MPI_Testall(h->n, h->req, &done, MPI_STATUSES_IGNORE);
  }
  if (rc == MPI_SUCCESS) rc = MPI_Waitall(h->n, h->req, MPI_STATUSES_IGNORE);
  h->sums = false;
  h->n = 0;
  if (h->to) memcpy(h->to, h->from, h->bytes);
  h->to = NULL;
  return mpi_report_op(rc, c->rank, h, e);
}

/* Freeing a communicator is collective: all ranks do it in order of creation, see
 * join. */
static void leave(Comm *c) {
  MpiEndpoint *p = c->ctx;
  const weft_alloc *a = p->w->alloc;
  for (int i = 0; p->group && i < p->ngroup; i++)
    if (p->group[i].sums) mpi_sum_free(&p->group[i].sum, a);
  for (int i = 0; p->group && i < p->ngroup; i++)
    if (p->group[i].comm != MPI_COMM_NULL) MPI_Comm_free(&p->group[i].comm);
  for (int i = 0; p->handle && i < p->nhandle; i++) {
    MpiHandle *h = &p->handle[i];
    if (h->req != &h->one) mem_free(a, h->req, (size_t)h->cap * sizeof *h->req);
  }
  mem_free(a, p->group, (size_t)p->ngroup * sizeof *p->group);
  mem_free(a, p->handle, (size_t)p->nhandle * sizeof *p->handle);
  mem_free(a, p, sizeof *p);
}

static const CommVtable mpi_comm = {
    .name = "mpi",
    .version = 1,
    .start = start,
    .wait = wait,
    .close = leave,
};

/* ---- joining ---- */

static weft_status connect(MpiWorld *w, MpiGroup *g, const CommGroup *from, int i,
                           int nhandle, weft_error *e) {
  MPI_Group all, some;
  g->n = from->n;
  snprintf(g->name, sizeof g->name, "%s", from->name ? from->name : "?");
  if (from->n < 2) return WEFT_OK;
  MPI(w, MPI_Comm_group(w->all, &all));
  MPI(w, MPI_Group_incl(all, from->n, from->rank, &some));
  MPI(w, MPI_Comm_create_group(w->all, some, i, &g->comm));
  MPI(w, MPI_Group_free(&some));
  MPI(w, MPI_Group_free(&all));
  MPI(w, MPI_Comm_set_errhandler(g->comm, MPI_ERRORS_RETURN));
  int me;
  MPI(w, MPI_Comm_rank(g->comm, &me));
  g->sums = mpi_sum_serves(from);
  if (g->sums && !mpi_sum_new(&g->sum, w->alloc, g->comm, g->n, me, nhandle))
    return err_set(e, WEFT_ENOMEM, "no memory for the sums of %s", g->name);
  return WEFT_OK;
}

/* Only members take part in creating a communicator. All ranks create groups in the same
 * order, so this cannot deadlock: of the groups that are waited for, the members of the
 * first are all in it or on their way. */
static weft_status join(World *world, int rank, Device *d, const CommNeeds *needs,
                        Comm *c, weft_error *e) {
  MpiWorld *w = world->ctx;
  int ngroup = needs->ngroup, nhandle = needs->nhandle;
  MpiEndpoint *p = mem_new(w->alloc, sizeof *p);
  if (!p) return err_set(e, WEFT_ENOMEM, "no memory for the MPI backend");
  *p = (MpiEndpoint){.w = w, .ngroup = ngroup, .nhandle = nhandle};
  *c = (Comm){.vt = &mpi_comm, .rank = w->rank, .size = w->size, .ctx = p};
  p->group = mem_new(w->alloc, (size_t)ngroup * sizeof *p->group);
  p->handle = mem_new(w->alloc, (size_t)nhandle * sizeof *p->handle);
  weft_status st = WEFT_OK;
  if (!p->group || !p->handle)
    st = err_set(e, WEFT_ENOMEM, "no memory for the MPI backend");
  for (int i = 0; p->group && i < ngroup; i++) p->group[i].comm = MPI_COMM_NULL;
  for (int i = 0; p->handle && i < nhandle; i++)
    p->handle[i].req = &p->handle[i].one, p->handle[i].cap = 1;
  for (int i = 0; st == WEFT_OK && i < ngroup; i++)
    st = connect(w, &p->group[i], &needs->group[i], i, nhandle, e);
  if (st != WEFT_OK) leave(c);
  return st;
}

/* ---- the world ---- */

/* MPI combines two members at a time: each such sum is computed in f32 and rounded. */
static void combine(DType t, RedOp op, char *in, char *inout, int *len) {
  ReduceAcc acc;
  const size_t size = sizeof(uint16_t);
  for (size_t i = 0, n = (size_t)*len; i < n; i += REDUCE_BLOCK) {
    size_t k = MIN(n - i, (size_t)REDUCE_BLOCK);
    reduce_load(t, &acc, in + i * size, k);
    reduce_add(t, op, &acc, inout + i * size, k);
    reduce_store(t, inout + i * size, &acc, k);
  }
}

#define COMBINE(name, t, op)                                                             \
  static void name(void *in, void *inout, int *len, MPI_Datatype *type) {                \
    combine(t, op, in, inout, len);                                                      \
  }
COMBINE(sum_bf16, DT_BF16, RED_SUM)
COMBINE(max_bf16, DT_BF16, RED_MAX)
COMBINE(sum_f16, DT_F16, RED_SUM)
COMBINE(max_f16, DT_F16, RED_MAX)

static weft_status setup(MpiWorld *w, World *world, weft_error *e) {
  MPI_Comm node, *copy[] = {&w->all, &w->p2p, &w->raw};
  for (int i = 0; i < LEN(copy); i++) {
    MPI(w, MPI_Comm_dup(MPI_COMM_WORLD, copy[i]));
    MPI(w, MPI_Comm_set_errhandler(*copy[i], MPI_ERRORS_RETURN));
  }
  static MPI_User_function *const op[2][2] = {{sum_bf16, max_bf16}, {sum_f16, max_f16}};
  for (int i = 0; i < 4; i++)
    MPI(w, MPI_Op_create(op[i / 2][i % 2], 1, &w->half[i / 2][i % 2]));
  MPI(w, MPI_Comm_split_type(w->all, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node));
  MPI(w, MPI_Comm_size(node, &world->node));
  MPI(w, MPI_Comm_rank(node, &world->place));
  world->first = w->rank;
  MPI(w, MPI_Bcast(&world->first, 1, MPI_INT, 0, node));
  MPI(w, MPI_Comm_free(&node));
  return WEFT_OK;
}

/* MPI_Init waits for its launcher, Open MPI's for ever if that ends meanwhile: until it
 * is through, this process ends with the one that started it. A process without a
 * launcher has a shell for a parent, which may leave. */
static void init_mpi(void) {
  static const char *const launched[] = {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_SIZE"};
  bool child = false;
  int level;
  for (int i = 0; i < LEN(launched); i++) child |= getenv(launched[i]) != NULL;
  if (child) prctl(PR_SET_PDEATHSIG, SIGKILL);
  MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level);
  if (child) prctl(PR_SET_PDEATHSIG, 0);
}

static weft_status start_world(World *world, weft_error *e) {
  MpiWorld *w = mem_new(world->alloc, sizeof *w);
  if (!w) return err_set(e, WEFT_ENOMEM, "no memory for the MPI backend");
  int running = 0;
  MPI_Initialized(&running);
  w->alloc = world->alloc;
  w->mine = !running;
  w->limit = 1 << 30;
  if (w->mine) init_mpi();
  MPI_Comm_rank(MPI_COMM_WORLD, &w->rank);
  MPI_Comm_size(MPI_COMM_WORLD, &w->size);
  weft_status st = setup(w, world, e);
  if (st != WEFT_OK) {
    mem_free(world->alloc, w, sizeof *w);
    return st;
  }
  world->rank = w->rank;
  world->here = 1;
  world->size = w->size;
  world->ctx = w;
  return WEFT_OK;
}

static weft_status barrier(World *world, weft_error *e) {
  MpiWorld *w = world->ctx;
  return host_call(w, MPI_Barrier(w->all), "a barrier with", 0, e);
}

static weft_status bcast(World *world, void *p, size_t n, int root, weft_error *e) {
  MpiWorld *w = world->ctx;
  for (size_t at = 0, len; at < n; at += len) {
    len = (size_t)MIN((uint64_t)(n - at), w->limit);
    int rc = MPI_Bcast((char *)p + at, (int)len, MPI_BYTE, root, w->all);
    TRY(host_call(w, rc, "a broadcast of", root, e));
  }
  return WEFT_OK;
}

static weft_status send_raw(World *world, const void *p, size_t n, int peer,
                            weft_error *e) {
  MpiWorld *w = world->ctx;
  for (size_t at = 0, len; at < n; at += len) {
    len = (size_t)MIN((uint64_t)(n - at), w->limit);
    int rc = MPI_Send((const char *)p + at, (int)len, MPI_BYTE, peer, 0, w->raw);
    TRY(host_call(w, rc, "a send to", peer, e));
  }
  return WEFT_OK;
}

/* Checks that all requested bytes arrived. */
static weft_status check_count(const MpiWorld *w, const MPI_Status *got, size_t len,
                               int peer, weft_error *e) {
  int count = 0;
  TRY(host_call(w, MPI_Get_count(got, MPI_BYTE, &count), "a receive from", peer, e));
  if ((size_t)count == len) return WEFT_OK;
  return err_set(e, WEFT_EINTERNAL, "rank %d: rank %d has sent %d bytes of %zu", w->rank,
                 peer, count, len);
}

static weft_status recv_raw(World *world, void *p, size_t n, int peer, weft_error *e) {
  MpiWorld *w = world->ctx;
  MPI_Status got;
  for (size_t at = 0, len; at < n; at += len) {
    len = (size_t)MIN((uint64_t)(n - at), w->limit);
    int rc = MPI_Recv((char *)p + at, (int)len, MPI_BYTE, peer, 0, w->raw, &got);
    TRY(host_call(w, rc, "a receive from", peer, e));
    TRY(check_count(w, &got, len, peer, e));
  }
  return WEFT_OK;
}

static void abort_world(World *world, int rank, weft_status code, int exit_code,
                        const char *why) {
  MpiWorld *w = world->ctx;
  if (rank >= 0 && !world->quiet) end_all(w, exit_code, why);
  if (world->quiet) sleep(LAST_WORDS_S);
  if (!world->quiet) fprintf(stderr, "weft: %s\n", SHOWN(why));
  fflush(stderr);
  MPI_Abort(w->all, exit_code);
}

static void close_world(World *world) {
  MpiWorld *w = world->ctx;
  for (int i = 0; i < 4; i++) MPI_Op_free(&w->half[i / 2][i % 2]);
  MPI_Comm_free(&w->raw);
  MPI_Comm_free(&w->p2p);
  MPI_Comm_free(&w->all);
  if (w->mine) MPI_Finalize();
  mem_free(w->alloc, w, sizeof *w);
}

static void set_limit(World *world, uint64_t count) {
  MpiWorld *w = world->ctx;
  assert(count > 0 && count <= INT_MAX);
  w->limit = count;
}

extern WEFT_API const WorldVtable weft_world;
const WorldVtable weft_world = {
    .name = "mpi",
    .version = WORLD_VERSION,
    .start = start_world,
    .join = join,
    .barrier = barrier,
    .bcast = bcast,
    .send = send_raw,
    .recv = recv_raw,
    .abort = abort_world,
    .close = close_world,
    .limit = set_limit,
};
