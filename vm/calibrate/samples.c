/* samples.c - threads that measure the same at once, and the mean of what they saw. */
#include "calibrate.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include "vm/base/c_locale.h"

/* What is measured may wait for all threads, so none begins before all are there. */
typedef struct Gate {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  enum { GATE_SHUT, GATE_OPEN, GATE_SENT_HOME } is;
} Gate;

typedef struct Timer {
  Gate *gate;
  TimedFn *fn;
  void *ud;
  int i;
  Samples *samples; /* [kinds] */
  weft_status st;
  weft_error e;
  pthread_t thread;
} Timer;

static bool let_in(Gate *g) {
  pthread_mutex_lock(&g->mutex);
  while (g->is == GATE_SHUT) pthread_cond_wait(&g->changed, &g->mutex);
  bool in = g->is == GATE_OPEN;
  pthread_mutex_unlock(&g->mutex);
  return in;
}

static void gate_set(Gate *g, int to) {
  pthread_mutex_lock(&g->mutex);
  g->is = to;
  pthread_cond_broadcast(&g->changed);
  pthread_mutex_unlock(&g->mutex);
}

static void *timer_main(void *p) {
  Timer *t = p;
  c_locale_take();
  if (!let_in(t->gate)) return NULL;
  t->st = t->fn(t->ud, t->i, t->samples, &t->e);
  return NULL;
}

/* Signals are for the thread that started them. */
static int start(Timer *t) {
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &old);
  int failed = pthread_create(&t->thread, NULL, timer_main, t);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  return failed;
}

double median_of(double *x, int n) {
  qsort(x, (size_t)n, sizeof *x, order_numbers);
  return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

/* A step has the slow moments of a machine, too, in which a core is another's for a while
 * or runs less fast: the mean is what adds up to it, the median leaves them out. A single
 * long pause is none of the kernel's. */
static double mean(double *x, int n) {
  enum { PAUSE = 3 }; /* times the median */
  double most = PAUSE * median_of(x, n), sum = 0;
  for (int i = 0; i < n; i++) sum += MIN(x[i], most);
  return sum / n;
}

static weft_status gather(const Timer *t, int n, int kinds, bool all, double *seconds,
                          weft_error *e) {
  for (int k = 0; k < kinds; k++) seconds[k] = 0;
  for (int i = 0; i < n; i++) {
    if (t[i].st != WEFT_OK) {
      *e = t[i].e;
      return t[i].st;
    }
  }
  for (int k = 0; k < kinds; k++) {
    int seen = 0;
    for (int i = 0; i < n; i++) {
      Samples *x = &t[i].samples[k];
      if (!x->n && all) return err_set(e, WEFT_EINTERNAL, "nothing was measured");
      if (x->n) seconds[k] += (mean(x->at, x->n) - seconds[k]) / ++seen;
    }
    if (!seen) seconds[k] = NAN;
  }
  return WEFT_OK;
}

/* Samples of all threads in one block. */
static Samples *make_samples(void *block, size_t all) {
  Samples *s = block;
  double *at = (double *)(s + all);
  for (size_t i = 0; i < all; i++) s[i] = (Samples){.at = at + i * SAMPLES_MOST};
  return s;
}

weft_status mean_of_threads(int n, int kinds, TimedFn *fn, void *ud, bool all,
                            double *seconds, weft_error *e) {
  size_t count = (size_t)n * (size_t)kinds;
  size_t bytes = (sizeof(Samples) + sizeof(double) * SAMPLES_MOST) * count;
  Timer *t = mem_new(NULL, sizeof *t * (size_t)n);
  void *block = mem_new(NULL, bytes);
  weft_status st = t && block ? WEFT_OK : err_set(e, WEFT_ENOMEM, "out of memory");
  Samples *samples = block ? make_samples(block, count) : NULL;
  Gate gate = {.is = GATE_SHUT};
  int started = 0;
  pthread_mutex_init(&gate.mutex, NULL);
  pthread_cond_init(&gate.changed, NULL);
  for (; st == WEFT_OK && started < n; started++) {
    Timer *x = &t[started];
    *x = (Timer){.gate = &gate,
                 .fn = fn,
                 .ud = ud,
                 .i = started,
                 .samples = samples + (size_t)started * (size_t)kinds,
                 .e = NO_ERROR};
    if (start(x)) {
      st = err_set(e, WEFT_ELIMIT, "cannot start thread %d of %d", started, n);
      break;
    }
  }
  gate_set(&gate, st == WEFT_OK ? GATE_OPEN : GATE_SENT_HOME);
  for (int i = 0; i < started; i++) pthread_join(t[i].thread, NULL);
  pthread_cond_destroy(&gate.changed);
  pthread_mutex_destroy(&gate.mutex);
  if (st == WEFT_OK) st = gather(t, n, kinds, all, seconds, e);
  mem_free(NULL, block, bytes);
  mem_free(NULL, t, sizeof *t * (size_t)n);
  return st;
}
