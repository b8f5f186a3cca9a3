/* step_timing.c - kernels timed where they are: in steps of ranks that run their programs
 * at once, each without the others (lone_comm.h). So a kernel finds its operands as far
 * away as a step has them: what the one before it wrote in the nearest cache, what a
 * forward pass left or another layer reads further off, beside the memory of ranks that
 * share the core. */
#include <math.h>
#include <unistd.h>

#include "calibrate.h"
#include "kernel_operands.h"
#include "lone_comm.h"
#include "vm/rank/trace.h"

enum { RANKS_MOST = 8, STEPS_LEAST = 2 };

typedef struct Stepping {
  const Bench *b;
  const Compiled *c;
  const WantedKernel *list; /* [n], all of this plan */
  int n, ranks;             /* ranks that run */
} Stepping;

typedef struct Stepper {
  const Stepping *x;
  int rank;
  Device device;
  Rank *r;
  CommNeeds needs;
  Comm comm;
  Tracer tracer;
  int *row;        /* [ncode] of the list, -1: none */
  double overhead; /* seconds between two looks at the clock */
} Stepper;

/* ---- which plans ---- */

static uint64_t bytes_of_rank(const Compiled *c) {
  uint64_t most = 0;
  for (int pp = 0; pp < c->mesh.size[AXIS_PP]; pp++) {
    RankFootprint h = rank_footprint(c, pp);
    const Program *p = &c->prog[pp];
    most = MAX(most, p->arena_bytes + p->host_bytes + h.tables + h.staging + h.states);
  }
  return most + TRACE_BYTES;
}

static double flops_of_rank(const Compiled *c) {
  double most = 0;
  for (int pp = 0; pp < c->mesh.size[AXIS_PP]; pp++)
    most = fmax(most, c->prog[pp].flops + c->prog[pp].recomputed);
  return most;
}

/* Events of a step, with a wait and a transfer for each that starts something. */
static bool fits_trace(const Program *p) {
  uint64_t n = p->nmain;
  for (uint32_t i = 0; i < p->nmain; i++)
    if (p->code[i].code == I_CALL) n += p->body[p->call[p->code[i].call].body].n;
  return 2 * n < TRACE_EVENTS;
}

/* Ranks that are timed by the wall clock do not share cores. */
int ranks_in_steps(const Bench *b, const Compiled *c) {
  const double longest = 5; /* seconds of a step */
  double rate = c->dtype == DT_F32 ? b->f32 : b->bf16;
  double room = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE) / 4;
  int fit = (int)fmin(room / (double)bytes_of_rank(c), RANKS_MOST);
  int cores = MAX(b->ranks, 1), least = MIN(cores, c->mesh.world);
  int ranks = MIN(fit, b->processor ? c->mesh.world : least);
  if (!b->kind->host || rate <= 0 || ranks < least) return 0;
  for (int pp = 0; pp < c->mesh.size[AXIS_PP]; pp++)
    if (!fits_trace(&c->prog[pp])) return 0;
  double seconds = flops_of_rank(c) / rate * MAX(ranks, cores) / cores;
  return seconds < longest ? ranks : 0;
}

/* ---- what a step begins with ---- */

/* Elements of the largest piece of a parameter. */
static int64_t largest_piece(const Compiled *c, int rank) {
  Piece p[2];
  int64_t most = 1;
  for (int i = 0; i < c->nparam; i++)
    for (int n = state_pieces(c, rank, STATE_PARAM, i, p); n > 0; n--)
      most = MAX(most, p[n - 1].count);
  return most;
}

static weft_status fill_params(Stepper *s, weft_error *e) {
  const Compiled *c = s->x->c;
  int64_t most = largest_piece(c, s->rank);
  float *block = mem_new(NULL, (size_t)most * sizeof *block);
  if (!block) return err_set(e, WEFT_ENOMEM, "out of memory");
  rank_clear(s->r, block, most);
  for (int i = 0; i < c->nparam; i++) {
    Piece p[2];
    int n = state_pieces(c, s->rank, STATE_PARAM, i, p);
    for (int k = 0; k < n; k++) {
      piece_init(&p[k], &c->param[i], 0, block);
      rank_write(s->r, &p[k], block);
    }
  }
  mem_free(NULL, block, (size_t)most * sizeof *block);
  return device_sync(&s->device, e);
}

static bool has_ids(InputKind k) {
  return k == IN_TOKENS || k == IN_LABELS || (k >= IN_NEXT_TOKENS && k < IN_SEED);
}

static void fill_inputs(Stepper *s) {
  const Compiled *c = s->x->c;
  size_t n = staged_bytes(c) / sizeof(int32_t), tokens = (size_t)c->tokens;
  for (int k = 0; k < IN_SEED; k++) {
    int32_t *to = rank_input(s->r, (InputKind)k);
    bool place = k == IN_POSITIONS || k == IN_TOKEN_NUMBERS;
    if (!to) continue;
    ids_fill(to, n, has_ids((InputKind)k) ? c->vocab : 0);
    for (size_t i = 0; i < n && place; i++) to[i] = (int32_t)(i % tokens);
  }
}

/* Where ranks have unequal parts of the work the clock takes the largest: that of the
 * last one of a group, or of the one that has the matrix. */
static bool tells(const Stepper *s, const Program *p, const Instr *in) {
  const OpAttr *a = &p->attr[in->attr];
  const Mesh *m = &s->x->c->mesh;
  if (!a->cut) return true;
  int index = mesh_index(m, a->cut, s->rank);
  bool matrix = in->op == OP_matrix_take || in->op == OP_matrix_put;
  return index == (matrix ? a->from : mesh_index(m, a->cut, m->world - 1));
}

static int row_of(const Stepping *x, const Program *p, const Instr *in) {
  char shape[KERNEL_SHAPE];
  kernel_shape(p, in, shape);
  for (int i = 0; i < x->n; i++)
    if (x->list[i].in->op == in->op && strcmp(x->list[i].shape, shape) == 0) return i;
  return -1;
}

static weft_status find_rows(Stepper *s, weft_error *e) {
  const Compiled *c = s->x->c;
  const Program *p = &c->prog[mesh_coord(&c->mesh, s->rank, AXIS_PP)];
  s->row = mem_new(NULL, sizeof *s->row * p->ncode);
  if (!s->row) return err_set(e, WEFT_ENOMEM, "out of memory");
  for (uint32_t i = 0; i < p->ncode; i++) {
    const Instr *in = &p->code[i];
    bool timed = in->code == I_KERNEL && tells(s, p, in);
    s->row[i] = timed ? row_of(s->x, p, in) : -1;
  }
  return WEFT_OK;
}

static double look_at_clock(const Tracer *t) {
  enum { LOOKS = 100 };
  int64_t least = INT64_MAX;
  for (int i = 0; i < LOOKS; i++) {
    int64_t from = trace_now(t), to = trace_now(t);
    least = MIN(least, to - from);
  }
  return (double)least / 1e9;
}

static weft_status open_rank(Stepper *s, weft_error *e) {
  const Bench *b = s->x->b;
  TRY(rank_new(NULL, s->x->c, s->rank, &s->device, &s->r, e));
  s->needs = rank_needs(s->r);
  TRY(lone_comm_open(&s->comm, s->rank, s->x->c->mesh.world, &s->needs, e));
  rank_connect(s->r, &s->comm);
  s->tracer.event = mem_new(NULL, TRACE_BYTES);
  if (!s->tracer.event) return err_set(e, WEFT_ENOMEM, "out of memory");
  s->tracer.processor = b->processor;
  s->overhead = look_at_clock(&s->tracer);
  rank_trace(s->r, &s->tracer);
  fill_inputs(s);
  TRY(fill_params(s, e));
  return find_rows(s, e);
}

static void close_rank(Stepper *s) {
  const Compiled *c = s->x->c;
  const Program *p = &c->prog[mesh_coord(&c->mesh, s->rank, AXIS_PP)];
  rank_disconnect(s->r);
  lone_comm_close(&s->comm);
  rank_free(s->r);
  if (s->tracer.event) mem_free(NULL, s->tracer.event, TRACE_BYTES);
  if (s->row) mem_free(NULL, s->row, sizeof *s->row * p->ncode);
}

/* ---- steps ---- */

static void keep_samples(const Stepper *s, Samples *out) {
  for (uint32_t i = 0; i < s->tracer.n; i++) {
    const TraceEvent *ev = &s->tracer.event[i];
    int row = ev->kind == TRACE_RUN ? s->row[ev->instr] : -1;
    if (row < 0 || out[row].n == SAMPLES_MOST) continue;
    double took = (double)(ev->to - ev->from) / 1e9 - s->overhead;
    out[row].at[out[row].n++] = fmax(took, 0);
  }
}

static weft_status step(Stepper *s, int n, weft_error *e) {
  StepEnd end = {.stop = s->x->b->stop, .phase = STEP_OPEN};
  int pp = mesh_coord(&s->x->c->mesh, s->rank, AXIS_PP);
  scalars_fill(rank_scalars(s->r), (size_t)s->x->c->prog[pp].nscalar);
  s->tracer.n = 0;
  trace_begin(&s->tracer, n);
  return rank_step(s->r, false, &end, e);
}

/* The first step touches memory that nobody has touched before. */
static weft_status steps(Stepper *s, Samples *out, weft_error *e) {
  const Bench *b = s->x->b;
  TRY(step(s, 0, e));
  double begin = now_s();
  for (int n = 1; n <= STEPS_LEAST || now_s() - begin < b->seconds * s->x->n; n++) {
    TRY(step(s, n, e));
    keep_samples(s, out);
  }
  return WEFT_OK;
}

static weft_status on_rank(void *ud, int i, Samples *out, weft_error *e) {
  const Stepping *x = ud;
  Stepper s = {.x = x, .rank = (i + 1) * x->c->mesh.world / x->ranks - 1};
  TRY(device_open(&s.device, x->b->device, NULL, i, i, x->b->threads, e));
  weft_status st = open_rank(&s, e);
  if (st == WEFT_OK) st = steps(&s, out, e);
  close_rank(&s);
  device_close(&s.device);
  return st;
}

weft_status time_in_steps(const Bench *b, const WantedKernel *list, int n,
                          double *seconds, weft_error *e) {
  Stepping x = {b, list->c, list, n, ranks_in_steps(b, list->c)};
  return mean_of_threads(x.ranks, n, on_rank, &x, false, seconds, e);
}
