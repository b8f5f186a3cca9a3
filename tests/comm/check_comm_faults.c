/* check_comm_faults.c - the local backend when something goes wrong: a rank gives up, the
 * programs differ, memory runs out; and the wrappers' counts and injected faults. */
#include "tests/ranks/comm_world.h"

#include <check.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

/* ---- giving up ---- */

typedef struct GivingUp {
  World *world;
  atomic_int started; /* ranks that have started their operation */
} GivingUp;

/* Nothing can be started once a rank has given up, so that one lets the others begin. */
static void let_others_start(const Peer *p, GivingUp *g) {
  while (atomic_load(&g->started) < p->n - 1) sched_yield();
}

static bool starts(Peer *p, GivingUp *g, CommOp op) {
  bool ok = op_start(p, 0, op);
  atomic_fetch_add(&g->started, 1);
  return ok;
}

/* Rank 3 gives up while the others wait: in a collective, for a message and for nothing.
 */
static void one_gives_up(Peer *p) {
  float x = 1;
  if (p->rank == 3) {
    let_others_start(p, p->arg);
    comm_abort(&p->c, "the disk is on fire");
    return;
  }
  CommOp op = p->rank == 2 ? RECV(DT_F32, 3, &x, 1) : ALL_REDUCE(DT_F32, &x, &x, 1);
  NEED(starts(p, p->arg, op));
  NEED(comm_wait(&p->c, 0, &p->e) == WEFT_ERUN);
  NEED(p->e.rank == 3);
  NEED(strstr(p->e.text, "rank 3 failed: the disk is on fire"));
  NEED(!op_start(p, 1, op)); /* and it stays so */
}

START_TEST(test_abort) {
  GivingUp g = {0};
  comm_world(&(Setup){.n = 4, .in_flight = 1, .nhandle = 2, .ngroup = 1}, one_gives_up,
             &g);
}
END_TEST

static void interrupted(Peer *p) {
  float x = 1;
  GivingUp *g = p->arg;
  if (p->rank == 0) {
    let_others_start(p, g);
    world_abort(g->world, -1, WEFT_EINTR, "interrupted");
    world_abort(g->world, -1, WEFT_ERUN, "a later reason does not count");
    return;
  }
  NEED(starts(p, g, ALL_REDUCE(DT_F32, &x, &x, 1)));
  NEED(comm_wait(&p->c, 0, &p->e) == WEFT_EINTR);
  NEED(p->e.rank == -1 && strcmp(p->e.text, "interrupted") == 0);
}

START_TEST(test_interrupt) {
  GivingUp g = {0};
  comm_world(
      &(Setup){.n = 3, .in_flight = 1, .nhandle = 1, .ngroup = 1, .world = &g.world},
      interrupted, &g);
}
END_TEST

/* Once a wait has failed nobody touches the buffers: they are freed at once, while others
 * may be in the middle of a large operation. The sanitizers look on. */
static void frees_at_once(Peer *p) {
  enum { N = 400000 };
  for (int r = 0;; r++) {
    float *x = calloc(N, sizeof *x);
    bool ok = op_start(p, 0, ALL_REDUCE(DT_F32, x, x, N));
    if (ok && p->rank == 1 && r == 3) comm_abort(&p->c, "enough");
    ok = ok && op_wait(p, 0);
    free(x);
    if (!ok) break;
  }
  NEED(p->e.code == WEFT_ERUN && p->e.rank == 1);
}

START_TEST(test_abort_in_flight) {
  for (int i = 0; i < 5; i++)
    comm_world(&(Setup){.n = 4, .in_flight = 1, .nhandle = 1, .ngroup = 1}, frees_at_once,
               NULL);
}
END_TEST

/* ---- programs that differ ---- */

static void unequal(Peer *p) {
  float x[8] = {0};
  NEED(!op_run(p, ALL_REDUCE(DT_F32, x, x, p->rank == 0 ? 4 : 5)));
  NEED(p->e.code == WEFT_EINTERNAL);
  NEED(strstr(p->e.text, "communicator test") && strstr(p->e.text, "of 4 f32") &&
       strstr(p->e.text, "of 5 f32"));
}

static void unequal_pair(Peer *p) {
  float x[8] = {0};
  NEED(!op_run(p, p->rank == 0 ? SEND(DT_F32, 1, x, 4) : RECV(DT_BF16, 0, x, 4)));
  NEED(p->e.code == WEFT_EINTERNAL);
  NEED(strstr(p->e.text, "rank 0 sends 4 f32 to rank 1, which expects 4 bf16"));
}

static void unequal_message(Peer *p) {
  float x[8] = {0};
  NEED(!op_run(p, p->rank == 0 ? SEND(DT_F32, 1, x, 5) : RECV(DT_F32, 0, x, 4)));
  NEED(p->e.code == WEFT_EINTERNAL);
  NEED(strstr(p->e.text, "rank 0 sends 5 f32 to rank 1, which expects 4 f32"));
}

static void too_many(Peer *p) {
  float x[2] = {0};
  NEED(op_start(p, 0, ALL_REDUCE(DT_F32, &x[0], &x[0], 1)));
  NEED(!op_start(p, 1, ALL_REDUCE(DT_F32, &x[1], &x[1], 1)));
  NEED(p->e.code == WEFT_EINTERNAL &&
       strstr(p->e.text, "more than 1 operations in flight"));
  err_clear(&p->e);
  NEED(op_wait(p, 0));
}

/* ---- counts that cannot be ---- */

/* Rows of two elements between two ranks, whose places have room for three. */
static CommOp rows_of_two(int32_t *give, int32_t *take, float *x) {
  return (CommOp){.coll = COLL_ALL_TO_ALL_V,
                  .dtype = DT_F32,
                  .in = x,
                  .out = x + 12,
                  .count = 6,
                  .give = give,
                  .take = take,
                  .members = 2,
                  .each = 2,
                  .row = 2};
}

static void beyond_the_place(Peer *p) {
  static const struct {
    int32_t give[4], take[4];
    const char *said;
  } wrong[] = {
      {{0, 0, 2, 2},
       {0},
       "all_to_all_v of 4 rows to member 1: the buffer has room for 3"},
      {{0},
       {1, 3, 0, 0},
       "all_to_all_v of 4 rows from member 0: the buffer has room for 3"},
      {{0, 0, 4, -1},
       {0},
       "all_to_all_v of 3 rows to member 1: the buffer has room for 3"},
      {{0},
       {0, 0, INT32_MAX, INT32_MAX},
       "all_to_all_v of 4294967294 rows from member 1"},
  };
  float x[24] = {0};
  for (int i = 0; i < LEN(wrong); i++) {
    int32_t give[4], take[4];
    memcpy(give, wrong[i].give, sizeof give);
    memcpy(take, wrong[i].take, sizeof take);
    NEED(!op_start(p, 0, rows_of_two(give, take, x)));
    NEED(p->e.code == WEFT_EINTERNAL && strstr(p->e.text, wrong[i].said));
    err_clear(&p->e);
  }
  NEED(p->c.stats.bytes[COLL_ALL_TO_ALL_V] == 0);
}

/* Rank 0 gives two rows, rank 1 takes three. */
static void unequal_rows(Peer *p) {
  int32_t give[4] = {0, 0, p->rank ? 0 : 1, p->rank ? 0 : 1}, take[4] = {0};
  float x[24] = {0};
  if (p->rank) take[0] = 3;
  NEED(!op_run(p, rows_of_two(give, take, x)));
  NEED(p->e.code == WEFT_EINTERNAL);
  NEED(strstr(p->e.text, "rank 0 gives 2 rows to rank 1, which takes 3"));
}

START_TEST(test_programs_differ) {
  Setup s = {.n = 2, .in_flight = 1, .nhandle = 2, .ngroup = 1};
  comm_world(&s, unequal, NULL);
  comm_world(&s, unequal_pair, NULL);
  comm_world(&s, unequal_message, NULL);
  comm_world(&s, too_many, NULL);
  comm_world(&s, beyond_the_place, NULL);
  comm_world(&s, unequal_rows, NULL);
}
END_TEST

/* ---- joining wrongly ---- */

START_TEST(test_join_errors) {
  weft_error e = {.rank = -1};
  World w;
  Comm c;
  int both[] = {0, 1};
  CommGroup g = {both, 2, 1, 0, "dp", 0}, other = {both, 2, 3, 0, "dp", 0},
            none = {both, 1, 1, 0, "tp", 0};
  CommNeeds needs = {.group = &g, .ngroup = 1, .nhandle = 1};
  err_clear(&e);
  ck_assert_int_eq(world_start(&w, world_kind("local", &e), NULL, 3, NULL, &e), WEFT_OK);
  ck_assert_int_eq(world_join(&w, 0, NULL, &needs, &c, &e), WEFT_OK);
  ck_assert_int_eq(world_join(&w, 0, NULL, &needs, &c, &e), WEFT_EINTERNAL);
  ck_assert_ptr_nonnull(strstr(e.text, "rank 0 joins its world a second time"));
  err_clear(&e);
  needs.group = &other;
  ck_assert_int_eq(world_join(&w, 1, NULL, &needs, &c, &e), WEFT_EINTERNAL);
  ck_assert_ptr_nonnull(strstr(e.text, "disagree on the operations in flight, 1 and 3"));
  err_clear(&e);
  needs.group = &none;
  ck_assert_int_eq(world_join(&w, 2, NULL, &needs, &c, &e), WEFT_EINTERNAL);
  ck_assert_ptr_nonnull(strstr(e.text, "communicator tp: rank 2 is no member"));
  comm_close(&c);
  world_close(&w);
}
END_TEST

/* ---- memory ---- */

typedef struct Heap {
  atomic_long calls, live;
  long fail_at;
} Heap;

static void *heap(void *ud, void *p, size_t old, size_t n) {
  Heap *h = ud;
  if (n == 0) {
    atomic_fetch_sub(&h->live, (long)old);
    free(p);
    return NULL;
  }
  if (atomic_fetch_add(&h->calls, 1) + 1 == h->fail_at) return NULL;
  void *q = realloc(p, n);
  if (q) atomic_fetch_add(&h->live, (long)n - (long)old);
  return q;
}

/* Makes and joins a world of two ranks; WEFT_OK, or the first error. */
static weft_status try_world(const weft_alloc *a, weft_error *e) {
  World w;
  Comm c[2] = {{0}};
  int both[] = {0, 1};
  CommGroup g[] = {{both, 2, 1, 0, "dp", 0}, {both, 2, 2, 0, "tie", 0}};
  CommNeeds needs = {.group = g, .ngroup = 2, .nhandle = 3};
  TRY(world_start(&w, world_kind("local", e), a, 2, NULL, e));
  weft_status st = WEFT_OK;
  for (int r = 0; r < 2 && st == WEFT_OK; r++)
    st = world_join(&w, r, NULL, &needs, &c[r], e);
  for (int r = 0; r < 2; r++) comm_close(&c[r]);
  world_close(&w);
  return st;
}

START_TEST(test_no_memory) {
  int failures = 0;
  for (long at = 1;; at++) {
    Heap h = {.fail_at = at};
    weft_error e = {.rank = -1};
    err_clear(&e);
    weft_status st = try_world(&(weft_alloc){heap, &h}, &e);
    ck_assert_int_eq(atomic_load(&h.live), 0);
    if (st == WEFT_OK) break;
    ck_assert_int_eq(st, WEFT_ENOMEM);
    ck_assert_int_eq(e.code, WEFT_ENOMEM);
    failures++;
  }
  ck_assert_int_ge(failures, 9); /* the world, its two tables, four per join, groups */
}
END_TEST

/* A step allocates nothing. The first operation makes sure that all ranks have joined. */
static void steps(Peer *p) {
  Heap *h = p->arg;
  float x[4] = {0}, y = 0;
  NEED(op_run(p, ALL_REDUCE(DT_F32, x, x, 4)));
  long before = atomic_load(&h->calls);
  for (int i = 0; i < 20; i++) {
    NEED(op_start(p, 0, ALL_REDUCE(DT_F32, x, x, 4)));
    NEED(op_start(p, 1, SEND(DT_F32, 1 - p->rank, x, 1)));
    NEED(op_start(p, 2, RECV(DT_F32, 1 - p->rank, &y, 1)));
    for (int k = 0; k < 3; k++) NEED(op_wait(p, k));
  }
  NEED(atomic_load(&h->calls) == before);
}

START_TEST(test_steps_allocate_nothing) {
  Heap h = {0};
  weft_alloc a = {heap, &h};
  comm_world(&(Setup){.n = 2, .in_flight = 1, .nhandle = 3, .ngroup = 1, .alloc = &a},
             steps, &h);
  ck_assert_int_gt(atomic_load(&h.calls), 0);
  ck_assert_int_eq(atomic_load(&h.live), 0);
}
END_TEST

/* ---- the wrappers ---- */

static void counted(Peer *p) {
  float x[6] = {0};
  NEED(op_run(p, ALL_REDUCE(DT_F32, x, x, 6)));
  NEED(op_run(p, p->rank ? RECV(DT_BF16, 0, x, 6) : SEND(DT_BF16, 1, x, 6)));
  const CommStats *s = &p->c.stats;
  CollKind mine = p->rank ? COLL_RECV : COLL_SEND;
  NEED(s->starts[COLL_ALL_REDUCE] == 1 && s->bytes[COLL_ALL_REDUCE] == 24);
  NEED(s->starts[mine] == 1 && s->bytes[mine] == 12);
  NEED(s->waits == 2 && p->c.calls == 4);
}

START_TEST(test_counts) {
  comm_world(&(Setup){.n = 2, .in_flight = 1, .nhandle = 1, .ngroup = 1}, counted, NULL);
}
END_TEST

/* The N-th call fails on rank 1, which gives up; the others end with its reason, except
 * that they may be through when only the last wait fails. */
typedef struct Fault {
  uint64_t at;
  bool reached;
} Fault;

static void faulty(Peer *p) {
  Fault *f = p->arg;
  float x = 0;
  if (p->rank == 1) p->c.fail_at = f->at;
  for (int i = 0; i < 3; i++)
    if (!op_run(p, ALL_REDUCE(DT_F32, &x, &x, 1))) break;
  if (p->rank == 1) {
    f->reached = p->e.code != WEFT_OK;
    if (f->reached) comm_abort(&p->c, p->e.text);
  }
  if (p->e.code == WEFT_OK) {
    NEED(f->at == 7 || (f->at == 6 && p->rank != 1));
  } else {
    NEED(f->at < 7 && p->e.code == WEFT_ERUN);
    NEED(strstr(p->e.text, "rank 1: injected fault"));
  }
}

START_TEST(test_every_call_may_fail) {
  Fault f = {.reached = true};
  while (f.reached) {
    f.at++;
    comm_world(&(Setup){.n = 3, .in_flight = 1, .nhandle = 1, .ngroup = 1}, faulty, &f);
  }
  ck_assert_int_eq((int)f.at, 7); /* three starts, three waits */
}
END_TEST

Suite *comm_faults_suite(void) {
  Suite *s = suite_create("comm_faults");
  TCase *t = tcase_create("local");
  tcase_set_timeout(t, 60);
  tcase_add_test(t, test_abort);
  tcase_add_test(t, test_interrupt);
  tcase_add_test(t, test_abort_in_flight);
  tcase_add_test(t, test_programs_differ);
  tcase_add_test(t, test_join_errors);
  tcase_add_test(t, test_no_memory);
  tcase_add_test(t, test_steps_allocate_nothing);
  tcase_add_test(t, test_counts);
  tcase_add_test(t, test_every_call_may_fail);
  suite_add_tcase(s, t);
  return s;
}
