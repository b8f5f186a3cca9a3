/* check_failures.c - of four processes that train, one is killed, stopped, finds a value
 * that is no number, or has a bit of its memory flipped: all end soon, not with success,
 * and one message names who it was. Under mpirun, over TCP without it, and over a
 * stand-in of NCCL. One that is only slow to load is waited for.
 *
 * WEFT_FAILURES=N (./dev failures N) lets N of them happen, at other moments, and wants
 * each to end within the limit and five seconds. */
#include <check.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/generate/device_plans.h"
#include "tests/ranks/forked_ranks.h"
#include "tests/ranks/mpirun.h"
#include "tests/generate/small_llama.h"
#include "vm/run/run_int.h"
#include "vm/weights/param_gather.h"

enum { IDS = 512, VOCAB = 50, RANKS = 4, STEPS = 100000, AT_STEP = 2, LARGEST = 4096 };
static const double LIMIT_S = 4, MORE_S = 5;

typedef enum { KILLED, STOPPED, POISONED, FLIPPED, KINDS } Kind;
static const char *const kinds[KINDS] = {"kill", "stop", "poison", "flip"};

/* ---- a rank ---- */

typedef struct Fate {
  Kind kind;
  int rank, delay_us;
  int others_pause_us; /* before the step at which the rank is struck */
} Fate;

static void *strike(void *arg) {
  const Fate *f = arg;
  usleep((useconds_t)f->delay_us);
  kill(getpid(), f->kind == KILLED ? SIGKILL : SIGSTOP);
  return NULL;
}

static void poison(Run *r) {
  Worker *w = &r->worker[0];
  float nan[LARGEST];
  for (int k = 0; k < LARGEST; k++) nan[k] = NAN;
  for (int i = 0; i < r->c->nparam; i++) {
    Piece p[2];
    int n = state_pieces(r->c, w->rank, STATE_PARAM, i, p);
    for (int k = 0; k < n; k++)
      if (p[k].count <= LARGEST) rank_write(w->r, &p[k], nan);
  }
}

/* A bit of the first norm, which the other tp rank has, too. */
static void flip(Run *r) {
  Worker *w = &r->worker[0];
  float value[LARGEST];
  Piece p[2];
  int i = 0;
  while (r->c->param[i].ndim != 1 || !state_pieces(r->c, w->rank, STATE_PARAM, i, p)) i++;
  rank_read(w->r, p, value);
  ((uint32_t *)value)[p->count - 1] ^= 1u << 12;
  rank_write(w->r, p, value);
}

static void meet_fate(Run *r, const Fate *f) {
  pthread_t t;
  fprintf(stderr, "struck at %.3f\n", now_s() + f->delay_us / 1e6);
  if (f->kind == POISONED)
    poison(r);
  else if (f->kind == FLIPPED)
    flip(r);
  else
    pthread_create(&t, NULL, strike, (void *)f);
}

/* Trains until it is ended. */
static bool train(Toy *toy, const RunOptions *o, const Fate *f, weft_error *e) {
  Run *r;
  StepResult res;
  int32_t tokens[IDS], labels[IDS];
  for (int i = 0; i < IDS; i++) tokens[i] = i * 7 % VOCAB, labels[i] = i * 11 % VOCAB;
  weft_status st = run_open(&toy->plan, toy->compiled, o, &r, e);
  if (st != WEFT_OK) return false;
  st = run_init(r, e);
  for (int i = 0; i < STEPS && st == WEFT_OK; i++) {
    if (i == AT_STEP && run_rank(r) == f->rank)
      meet_fate(r, f);
    else if (i == AT_STEP)
      usleep((useconds_t)f->others_pause_us);
    st = run_step_tokens(r, tokens, labels, i, &res, e);
    if (st == WEFT_OK && i <= AT_STEP) st = run_check_replicas(r, e);
  }
  /* As verbs do: a rank lost between two steps is reported by one process, too. */
  if (st != WEFT_OK) run_fails(r, e);
  run_close(r);
  return st == WEFT_OK;
}

static bool be_rank(const WorldKind *world, const DeviceKind *device, const Rendezvous *m,
                    const Fate *f) {
  Toy toy;
  weft_error e = {.rank = -1};
  bool elsewhere = false;
  ToyOptions t = toy_default();
  t.layers = 2, t.micro = 2, t.microbatches = 2, t.tied = true;
  t.tp = 2, t.pp = 2;
  t.device = device;
  RunOptions o = {.world = world,
                  .settings.meet = m,
                  .threads = 1,
                  .patience_s = LIMIT_S,
                  .reported_elsewhere = &elsewhere};
  if (toy_compile(&toy, &t, NULL) != WEFT_OK) return false;
  bool ok = train(&toy, &o, f, &e);
  if (!ok && !elsewhere) fprintf(stderr, "weft: %s\n", e.text);
  toy_free(&toy);
  return ok;
}

int fail_child(int argc, char **argv);
int fail_child(int argc, char **argv) {
  Fate f = {
      .kind = (Kind)atoi(argv[2]), .rank = atoi(argv[3]), .delay_us = atoi(argv[4])};
  return be_rank(world_kind("mpi", NULL), NULL, NULL, &f) ? EXIT_SUCCESS : EXIT_FAILURE;
}

static bool over_tcp(const Rendezvous *m, const void *fate) {
  return be_rank(world_kind("tcp", NULL), NULL, m, fate);
}

/* Over stand-ins of CUDA's runtime and of NCCL. */
static bool over_nccl(const Rendezvous *m, const void *fate) {
#ifdef WEFT_EMULATED_CUDA
  return be_rank(world_standin(), device_standin(), m, fate);
#else
  return over_tcp(m, fate);
#endif
}

/* ---- the parent ---- */

static int times(const char *text, const char *what) {
  int n = 0;
  for (const char *s = text; (s = strstr(s, what)); s++) n++;
  return n;
}

/* Whether a clause of the message says what rank i did at that moment. Most wait for the
 * culprit; between two steps all others may have finished theirs. */
static bool says_of(const char *text, int i) {
  static const char *const states[] = {"wait",   "have finished", "has finished", "is in",
                                       "are in", "have ended",    "has ended"};
  for (const char *c = text; (c = strstr(c, "; rank")) != NULL;) {
    bool named = false;
    c += strcspn(c, "0123456789");
    do {
      char *end;
      named |= strtol(c, &end, 10) == i;
      c = end;
    } while (*c++ == ',');
    for (size_t k = 0; named && k < sizeof states / sizeof *states; k++)
      if (strncmp(c, states[k], strlen(states[k])) == 0) return true;
  }
  return false;
}

static void is_told(const Fate *f, const char *text) {
  static const char *const said[KINDS] = {
      "weft: the process of rank %d has ended; ", "weft: rank %d has not answered for ",
      "first seen on rank %d in ", "weft: rank %d holds other bits than rank %d, "};
  char want[80];
  /* Of two copies it is the first that the message compares with. */
  int culprit = f->kind == FLIPPED ? f->rank | 1 : f->rank;
  snprintf(want, sizeof want, said[f->kind], culprit, f->rank & ~1);
  ck_assert_msg(times(text, want) == 1, "%s rank %d: \"%s\" is not there once:\n%s",
                kinds[f->kind], f->rank, want, text);
  ck_assert_msg(times(text, "weft: ") == 1, "more than one message:\n%s", text);
  for (int i = 0; i < RANKS; i++)
    ck_assert_msg(i == culprit || says_of(text, i), "nothing of rank %d:\n%s", i, text);
}

static void in_time(const char *text) {
  const char *at = strstr(text, "struck at ");
  double took = at ? now_s() - atof(at + 10) : 1e9;
  if (!getenv("WEFT_FAILURES")) return; /* a machine that does other things is no error */
  printf("%.1f s\n", took);
  ck_assert_msg(took <= LIMIT_S + MORE_S, "%.1f s:\n%s", took, text);
}

typedef enum { BY_TCP, BY_NCCL, BY_MPI, WAYS } Way;

/* All kinds, all ranks, all worlds; then other moments. */
START_TEST(one_rank_fails) {
  Fate f = {.kind = (Kind)(_i % KINDS),
            .rank = _i / KINDS % RANKS,
            .delay_us = _i * 7919 % 20000};
  char what[64];
  Way way = (Way)((_i / KINDS / RANKS + _i / KINDS + _i) % WAYS);
  if (way != BY_MPI) {
    Forked o = forked(RANKS, way == BY_TCP ? over_tcp : over_nccl, &f);
    in_time(o.text);
    for (int i = 0; i < RANKS; i++)
      ck_assert_msg(o.code[i] != 0, "rank %d ends well:\n%s", i, o.text);
    is_told(&f, o.text);
  } else if (mpirun_present()) {
    snprintf(what, sizeof what, "%d %d %d", (int)f.kind, f.rank, f.delay_us);
    MpirunOutcome o = mpirun("--fail-child", what);
    in_time(o.text);
    ck_assert_int_ne(o.status, 0);
    is_told(&f, o.text);
  }
}
END_TEST

/* The others have finished their step when the rank is lost, and wait for nothing. */
START_TEST(lost_between_steps) {
  Fate f = {.kind = KILLED, .rank = _i, .others_pause_us = 300000};
  Forked o = forked(RANKS, over_tcp, &f);
  for (int i = 0; i < RANKS; i++)
    ck_assert_msg(o.code[i] != 0, "rank %d ends well:\n%s", i, o.text);
  is_told(&f, o.text);
}
END_TEST

/* ---- slow ranks ---- */

static const double LINK_S = 8; /* time that a connection gets, and the rendezvous */
enum { SLOW_RANK = 2, LARGE = 1 << 14 };

/* The slow rank's memory: the first large piece of it, its arena, takes long. */
static void *slow_memory(void *ud, void *p, size_t old, size_t n) {
  bool *slow = ud;
  if (*slow && n >= LARGE) {
    *slow = false;
    fprintf(stderr, "slow\n");
    usleep((useconds_t)((LINK_S + 1) * 1e6));
  }
  return mem_resize(NULL, p, old, n);
}

static bool train_slowly(const WorldKind *world, const DeviceKind *device,
                         const Rendezvous *meet) {
  Toy toy;
  StepResult res;
  int32_t ids[IDS] = {0};
  weft_error e = {.rank = -1};
  Rendezvous m = *meet;
  ToyOptions t = toy_default();
  t.layers = 2, t.micro = 2, t.microbatches = 2, t.tp = 2, t.pp = 2;
  t.device = device;
  m.seconds = LINK_S;
  bool slow = m.rank == SLOW_RANK;
  weft_alloc memory = {slow_memory, &slow};
  RunOptions o = {.world = world, .settings.meet = &m, .threads = 1, .alloc = &memory};
  if (toy_compile(&toy, &t, NULL) != WEFT_OK) return false;
  Run *r;
  weft_status st = run_open(&toy.plan, toy.compiled, &o, &r, &e);
  if (st == WEFT_OK) st = run_init(r, &e);
  if (st == WEFT_OK) st = run_step_tokens(r, ids, ids, 0, &res, &e);
  if (st == WEFT_OK) run_close(r);
  if (st != WEFT_OK) fprintf(stderr, "weft: %s\n", e.text);
  toy_free(&toy);
  return st == WEFT_OK;
}

static bool slowly(const Rendezvous *m, const void *way) {
#ifdef WEFT_EMULATED_CUDA
  if (*(const int *)way) return train_slowly(world_standin(), device_standin(), m);
#endif
  return train_slowly(world_kind("tcp", NULL), NULL, m);
}

/* Connections are made when all have loaded. */
START_TEST(a_slow_rank_is_waited_for) {
  Forked o = forked(RANKS, slowly, &_i);
  ck_assert_msg(strstr(o.text, "slow\n"), "%s", o.text);
  for (int i = 0; i < RANKS; i++)
    ck_assert_msg(o.code[i] == 0, "rank %d: %d:\n%s", i, o.code[i], o.text);
}
END_TEST

Suite *failures_suite(void);
Suite *failures_suite(void) {
  const char *more = getenv("WEFT_FAILURES");
  Suite *s = suite_create("failures");
  TCase *t = tcase_create("processes");
  tcase_set_timeout(t, 120);
  tcase_add_loop_test(t, one_rank_fails, 0, more ? atoi(more) : KINDS * RANKS);
  tcase_add_loop_test(t, lost_between_steps, 0, RANKS);
  tcase_add_loop_test(t, a_slow_rank_is_waited_for, 0, 2);
  suite_add_tcase(s, t);
  return s;
}
