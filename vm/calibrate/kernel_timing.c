/* kernel_timing.c - runs one kernel on several ranks at once: operands in memory of the
 * device, filled with small numbers, in several places that take turns. */
#include <stdlib.h>

#include "calibrate.h"
#include "kernel_operands.h"

/* One kernel on one rank. `places` sets of operands lie behind each other. */
typedef struct Setup {
  Device device;
  const Kernel *kernel;
  KernelArgs args;
  char *memory, *work, *state;
  size_t bytes, set, work_bytes, state_bytes;
  int places;
} Setup;

/* At least so many bytes are used by turns, so that a kernel does not find all that it
 * reads in the nearest cache; it does not find all of a step there, either. */
enum { TURNS = 4 << 20, PLACES_MOST = 16, WARM = 2, LEAST = 5 };

static weft_status prepare(Setup *s, const Bench *b, const TimedKernel *t,
                           weft_error *e) {
  KernelArgs *a = &s->args;
  *a = t->args;
  s->kernel = device_kernel(&s->device, t->op, a);
  if (!s->kernel || !s->kernel->run)
    return err_set(e, WEFT_ERUN, "device %s has no kernel for op %s", b->kind->name,
                   op_info[t->op].name);
  s->state_bytes = b->kind->state(t->op, a);
  s->work_bytes = b->kind->work(t->op, a);
  if (s->state_bytes) {
    enum { STATE_ALIGN = 64 };
    size_t room = (s->state_bytes + STATE_ALIGN - 1) / STATE_ALIGN * STATE_ALIGN;
    s->state = aligned_alloc(STATE_ALIGN, room);
    if (!s->state) return err_set(e, WEFT_ENOMEM, "out of memory");
    memset(s->state, 0, room);
    a->state = s->state;
  }
  if (s->kernel->prepare) TRY(s->kernel->prepare(&s->device, a, e));
  if (s->work_bytes) {
    void *work;
    TRY(device_alloc(&s->device, s->work_bytes, &work, e));
    s->work = work;
    a->work = work;
  }
  return WEFT_OK;
}

static weft_status fill(Setup *s, const TimedKernel *t, weft_error *e) {
  void *memory;
  s->set = operands_bytes(t);
  s->places = (int)MAX(MIN(TURNS / MAX(s->set, 1), PLACES_MOST), 1);
  s->bytes = s->set * (size_t)s->places;
  TRY(device_alloc(&s->device, s->bytes, &memory, e));
  s->memory = memory;
  char *host = mem_new(NULL, s->set);
  if (!host) return err_set(e, WEFT_ENOMEM, "out of memory");
  operands_fill(t, host);
  for (int i = 0; i < s->places; i++)
    device_upload(&s->device, s->memory + (size_t)i * s->set, host, s->set);
  weft_status st = device_sync(&s->device, e);
  mem_free(NULL, host, s->set);
  return st;
}

static void close_setup(Setup *s) {
  if (s->kernel && s->kernel->release) s->kernel->release(&s->device, &s->args);
  if (s->memory) device_free(&s->device, s->memory, s->bytes);
  if (s->work) device_free(&s->device, s->work, s->work_bytes);
  free(s->state);
  device_close(&s->device);
}

/* ---- samples ---- */

typedef struct Timing {
  const Bench *b;
  const TimedKernel *t;
} Timing;

/* `times` runs, from place i on; `*took` of each. */
static weft_status runs(Setup *s, const Timing *x, int i, int times, double *took,
                        weft_error *e) {
  double from = bench_now(x->b);
  for (int k = i; k < i + times; k++) {
    operands_place(x->t, &s->args, s->memory + (size_t)(k % s->places) * s->set);
    device_launch(&s->device, s->kernel, &s->args);
  }
  TRY(device_sync(&s->device, e));
  *took = (bench_now(x->b) - from) / times;
  return WEFT_OK;
}

/* Short kernels are run several times between two looks at the clock. */
static weft_status sample(Setup *s, const Timing *x, Samples *out, weft_error *e) {
  const double look = 20e-6;
  enum { TIMES_MOST = 100 };
  double took;
  TRY(runs(s, x, 0, MAX(WARM, s->places), &took, e));
  TRY(runs(s, x, 0, 1, &took, e));
  int times = took * TIMES_MOST < look ? TIMES_MOST
              : took < look            ? (int)(look / took)
                                       : 1;
  double begin = now_s();
  for (int i = 0; out->n < SAMPLES_MOST; i += times) {
    if (x->b->stop && *x->b->stop) return err_set(e, WEFT_EINTR, "interrupted");
    if (out->n >= LEAST && now_s() - begin > x->b->seconds) break;
    TRY(runs(s, x, i, times, &took, e));
    out->at[out->n++] = took;
  }
  return WEFT_OK;
}

static weft_status on_rank(void *ud, int i, Samples *out, weft_error *e) {
  const Timing *x = ud;
  Setup s = {0};
  TRY(device_open(&s.device, x->b->device, NULL, i, i, x->b->threads, e));
  weft_status st = prepare(&s, x->b, x->t, e);
  if (st == WEFT_OK) st = fill(&s, x->t, e);
  if (st == WEFT_OK) st = sample(&s, x, out, e);
  close_setup(&s);
  return st;
}

static weft_status time_it(const Bench *b, const TimedKernel *t, double *seconds,
                           weft_error *e) {
  Timing x = {b, t};
  return mean_of_threads(b->ranks, on_rank, &x, seconds, e);
}

weft_status time_kernel(const Bench *b, const WantedKernel *w, double *seconds,
                        weft_error *e) {
  TimedKernel t = timed_instr(w->c, w->p, w->in, w->even);
  return time_it(b, &t, seconds, e);
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
  TRY(time_it(b, &t, &s, e));
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
  TRY(time_it(b, &t, &s, e));
  *rate = 2.0 * SIDE * SIDE * sizeof(float) / s;
  return WEFT_OK;
}
