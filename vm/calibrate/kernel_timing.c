/* kernel_timing.c - runs kernels by turns, on several ranks at once: operands in memory
 * of the device, filled with small numbers, in several places if all together are small.
 */
#include <math.h>
#include <stdlib.h>

#include "calibrate.h"
#include "kernel_operands.h"

/* One kernel on one rank. `places` sets of operands lie behind each other. */
typedef struct Setup {
  Device *device;
  const TimedKernel *t;
  const Kernel *kernel;
  KernelArgs args;
  Places at; /* `own` is the first set */
  char *work, *state;
  size_t bytes, set, work_bytes, state_bytes;
  int places, next; /* the place that is used next */
  int times;        /* runs between two looks at the clock */
} Setup;

typedef struct Timing {
  const Bench *b;
  const TimedKernel *t; /* [n] */
  int n;
} Timing;

/* At least so many bytes of their own are used by turns, so that kernels do not find them
 * in the nearest cache; in a step they do not, either. */
enum { TURNS = 4 << 20, PLACES_MOST = 16, WARM = 2, LEAST = 5 };
/* Kernels that are measured together, and bytes of their own on each rank. */
enum { TOGETHER_MOST = 64, ROOM = 64 << 20 };

static weft_status prepare(Setup *s, const Bench *b, weft_error *e) {
  KernelArgs *a = &s->args;
  *a = s->t->args;
  s->kernel = device_kernel(s->device, s->t->op, a);
  if (!s->kernel || !s->kernel->run)
    return err_set(e, WEFT_ERUN, "device %s has no kernel for op %s", b->kind->name,
                   op_info[s->t->op].name);
  s->state_bytes = b->kind->state(s->t->op, a);
  s->work_bytes = b->kind->work(s->t->op, a);
  if (s->state_bytes) {
    enum { STATE_ALIGN = 64 };
    size_t room = (s->state_bytes + STATE_ALIGN - 1) / STATE_ALIGN * STATE_ALIGN;
    s->state = aligned_alloc(STATE_ALIGN, room);
    if (!s->state) return err_set(e, WEFT_ENOMEM, "out of memory");
    memset(s->state, 0, room);
    a->state = s->state;
  }
  if (s->kernel->prepare) TRY(s->kernel->prepare(s->device, a, e));
  if (s->work_bytes) {
    void *work;
    TRY(device_alloc(s->device, s->work_bytes, &work, e));
    s->work = work;
    a->work = work;
  }
  return WEFT_OK;
}

/* Memory of the device with what host memory of the same size is given by `make`. */
typedef void Make(void *ud, char *to, size_t bytes);
static weft_status filled(Device *d, size_t bytes, size_t times, Make *make, void *ud,
                          char **out, weft_error *e) {
  void *memory;
  TRY(device_alloc(d, bytes * times, &memory, e));
  *out = memory;
  char *host = mem_new(NULL, bytes);
  if (!host) return err_set(e, WEFT_ENOMEM, "out of memory");
  make(ud, host, bytes);
  for (size_t i = 0; i < times; i++) device_upload(d, *out + i * bytes, host, bytes);
  weft_status st = device_sync(d, e);
  mem_free(NULL, host, bytes);
  return st;
}

static void make_own(void *ud, char *to, size_t bytes) { operands_fill(ud, to); }
static void make_passed(void *ud, char *to, size_t bytes) {
  passed_fill(*(int *)ud, to, bytes);
}

static weft_status fill(Setup *s, size_t all, weft_error *e) {
  s->set = operands_bytes(s->t);
  s->places = (int)MAX(MIN(TURNS / MAX(all, 1), PLACES_MOST), 1);
  s->bytes = s->set * (size_t)s->places;
  return filled(s->device, s->set, (size_t)s->places, make_own, (void *)s->t, &s->at.own,
                e);
}

static void close_setup(Setup *s) {
  if (s->kernel && s->kernel->release) s->kernel->release(s->device, &s->args);
  if (s->at.own) device_free(s->device, s->at.own, s->bytes);
  if (s->work) device_free(s->device, s->work, s->work_bytes);
  free(s->state);
}

/* ---- places that all share ---- */

static PassedBytes shared_bytes(const Timing *x) {
  PassedBytes n = {0};
  for (int i = 0; i < x->n; i++) passed_bytes(&x->t[i], &n);
  return n;
}

static weft_status share(Device *d, const PassedBytes *n, Places *to, weft_error *e) {
  void *written = NULL;
  for (int i = 0; i < PASSED_TYPES; i++)
    if (n->read[i]) TRY(filled(d, n->read[i], 1, make_passed, &i, &to->read[i], e));
  if (n->written) TRY(device_alloc(d, n->written, &written, e));
  to->written = written;
  return WEFT_OK;
}

static void unshare(Device *d, const PassedBytes *n, const Places *from) {
  for (int i = 0; i < PASSED_TYPES; i++)
    if (from->read[i]) device_free(d, from->read[i], n->read[i]);
  if (from->written) device_free(d, from->written, n->written);
}

/* ---- samples ---- */

/* `times` runs; `*took` of each. */
static weft_status runs(Setup *s, const Bench *b, int times, double *took,
                        weft_error *e) {
  double from = bench_now(b);
  for (int k = 0; k < times; k++) {
    Places at = s->at;
    at.own += (size_t)s->next * s->set;
    operands_place(s->t, &s->args, &at);
    s->next = (s->next + 1) % s->places;
    device_launch(s->device, s->kernel, &s->args);
  }
  TRY(device_sync(s->device, e));
  *took = (bench_now(b) - from) / times;
  return WEFT_OK;
}

/* Short kernels are run several times between two looks at the clock, but on a host no
 * more often than the looks ask for: in a step they do not follow themselves. */
static weft_status warm(Setup *s, const Bench *b, weft_error *e) {
  enum { TIMES_MOST = 100 };
  const double look = b->kind->host ? 4e-6 : 20e-6;
  double took;
  TRY(runs(s, b, MAX(WARM, s->places), &took, e));
  TRY(runs(s, b, 1, &took, e));
  s->times = took * TIMES_MOST < look ? TIMES_MOST : took < look ? (int)(look / took) : 1;
  return WEFT_OK;
}

static weft_status sample(Setup *s, const Timing *x, Samples *out, weft_error *e) {
  double begin = now_s();
  for (int i = 0; i < x->n; i++) TRY(warm(&s[i], x->b, e));
  while (out->n < SAMPLES_MOST) {
    if (x->b->stop && *x->b->stop) return err_set(e, WEFT_EINTR, "interrupted");
    if (out->n >= LEAST && now_s() - begin > x->b->seconds * x->n) break;
    for (int i = 0; i < x->n; i++)
      TRY(runs(&s[i], x->b, s[i].times, &out[i].at[out[i].n++], e));
  }
  return WEFT_OK;
}

static size_t bytes_of_all(const TimedKernel *t, int n) {
  size_t bytes = 0;
  for (int i = 0; i < n; i++) bytes += operands_bytes(&t[i]);
  return bytes;
}

static weft_status on_rank(void *ud, int i, Samples *out, weft_error *e) {
  const Timing *x = ud;
  Device device;
  Places shared = {0};
  Setup s[TOGETHER_MOST] = {0};
  size_t all = bytes_of_all(x->t, x->n);
  PassedBytes passed = shared_bytes(x);
  TRY(device_open(&device, x->b->device, NULL, i, i, x->b->threads, e));
  weft_status st = share(&device, &passed, &shared, e);
  for (int k = 0; k < x->n && st == WEFT_OK; k++) {
    s[k] = (Setup){.device = &device, .t = &x->t[k], .at = shared};
    st = prepare(&s[k], x->b, e);
    if (st == WEFT_OK) st = fill(&s[k], all, e);
  }
  if (st == WEFT_OK) st = sample(s, x, out, e);
  for (int k = 0; k < x->n && s[k].device; k++) close_setup(&s[k]);
  unshare(&device, &passed, &shared);
  device_close(&device);
  return st;
}

static TimedKernel timed_of(const WantedKernel *w) {
  return timed_instr(w->c, w->p, w->in, w->even);
}

static bool of_main(const WantedKernel *w) { return w->in < w->p->code + w->p->nmain; }

/* The optimizer goes through more memory than caches have; in a step that happens behind
 * many microbatches, so it is no neighbour of kernels of bodies. */
static int by_turns_together(const WantedKernel *list, int n) {
  size_t bytes = 0;
  int i = 0;
  for (; i < MIN(n, TOGETHER_MOST); i++) {
    TimedKernel t = timed_of(&list[i]);
    bytes += operands_bytes(&t);
    if (i > 0 && (bytes > ROOM || of_main(&list[i]) != of_main(list))) break;
  }
  return i;
}

static weft_status time_by_turns(const Bench *b, const WantedKernel *list, int n,
                                 double *seconds, weft_error *e) {
  TimedKernel t[TOGETHER_MOST];
  Timing x = {b, t, n};
  assert(n > 0 && n <= TOGETHER_MOST);
  for (int i = 0; i < n; i++) t[i] = timed_of(&list[i]);
  return mean_of_threads(b->ranks, n, on_rank, &x, true, seconds, e);
}

int kernels_together(const Bench *b, const WantedKernel *list, int n) {
  int i = 0;
  if (!ranks_in_steps(b, list->c)) return by_turns_together(list, n);
  while (i < n && list[i].c == list->c) i++;
  return i;
}

weft_status time_kernels(const Bench *b, const WantedKernel *list, int n, double *seconds,
                         weft_error *e) {
  if (!ranks_in_steps(b, list->c)) return time_by_turns(b, list, n, seconds, e);
  TRY(time_in_steps(b, list, n, seconds, e));
  for (int i = 0; i < n; i++)
    if (isnan(seconds[i])) TRY(time_by_turns(b, &list[i], 1, &seconds[i], e));
  return WEFT_OK;
}

/* ---- figures of the machine ---- */

static KTensor square(DType t, int64_t side) {
  return (KTensor){.dtype = t, .ndim = 2, .dim = {side, side}};
}

weft_status time_product(const Bench *b, DType type, double *rate, weft_error *e) {
  enum { SIDE = 768 };
  static const OpAttr plain = {0};
  KTensor x = square(type, SIDE);
  TimedKernel t = {
      .op = OP_linear,
      .args = {.attr = &plain, .in = {x, x}, .out = {x}, .nin = 2, .nout = 1}};
  double s;
  TRY(mean_of_threads(b->ranks, 1, on_rank, &(Timing){b, &t, 1}, true, &s, e));
  *rate = 2.0 * SIDE * SIDE * SIDE / s;
  return WEFT_OK;
}

weft_status time_copy(const Bench *b, double *rate, weft_error *e) {
  enum { SIDE = 2048 };
  static const OpAttr plain = {0};
  KTensor x = square(DT_F32, SIDE);
  TimedKernel t = {.op = OP_copy,
                   .args = {.attr = &plain, .in = {x}, .out = {x}, .nin = 1, .nout = 1}};
  double s;
  TRY(mean_of_threads(b->ranks, 1, on_rank, &(Timing){b, &t, 1}, true, &s, e));
  *rate = 2.0 * SIDE * SIDE * sizeof(float) / s;
  return WEFT_OK;
}
