/* check_comm.c - the local backend: results, order, independence of timing. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/ranks/comm_cases.h"
#include "vm/comm/reduce.h"

static const int sizes[] = {2, 4, 8};

START_TEST(test_scenarios) {
  for (int i = 0; i < LEN(sizes); i++) {
    Setup s = scenario[_i].setup;
    s.n = sizes[i];
    comm_world(&s, scenario[_i].fn, NULL);
  }
}
END_TEST

START_TEST(test_odd_groups) {
  comm_world(&(Setup){.n = 1, .in_flight = 1, .nhandle = 1, .ngroup = 1}, all_cases,
             NULL);
  comm_world(&(Setup){.n = 3, .in_flight = 1, .nhandle = 1, .ngroup = 1}, all_cases,
             NULL);
}
END_TEST

START_TEST(test_nan_is_kept) {
  float x[3][3] = {{1, NAN, 2}, {NAN, 1, 3}, {0, 5, 1}}, out[3];
  ReduceAcc acc;
  reduce_load(DT_F32, &acc, x[0], 3);
  for (int i = 1; i < 3; i++) reduce_add(DT_F32, RED_MAX, &acc, x[i], 3);
  reduce_store(DT_F32, out, &acc, 3);
  ck_assert(isnan(out[0]) && isnan(out[1]) && out[2] == 3);
  uint16_t b[2] = {0x7f81, 0x3f80}, c[2];
  reduce_load(DT_BF16, &acc, b, 2);
  acc.f32[0] = nanf("1"); /* cutting it off would give infinity */
  reduce_store(DT_BF16, c, &acc, 2);
  ck_assert((c[0] & 0x7f80) == 0x7f80 && (c[0] & 0x7f) != 0 && c[1] == 0x3f80);
}
END_TEST

/* ---- timing changes nothing ---- */

static void sleepy(Peer *p) {
  enum { N = 40000 };
  Case k = {COLL_ALL_REDUCE, RED_SUM, DT_F32, N, true};
  float *x = malloc(N * sizeof *x);
  bool ok = true, same = true;
  for (int r = 0; r < 6 && ok && same; r++) {
    int key[] = {p->rank, r};
    usleep((useconds_t)(hash_bytes(1, key, sizeof key) % 3000));
    case_input(&k, p->n, p->rank, x);
    ok = op_start(p, 0, ALL_REDUCE(DT_F32, x, x, N));
    usleep((useconds_t)(hash_bytes(2, key, sizeof key) % 3000));
    ok = ok && op_wait(p, 0);
    same = ok && case_matches(&k, p->n, p->rank, x, true);
  }
  free(x);
  NEED(ok);
  NEED(same);
}

START_TEST(test_deterministic) {
  comm_world(&(Setup){.n = 5, .in_flight = 1, .nhandle = 1, .ngroup = 1}, sleepy, NULL);
}
END_TEST

/* ---- many more ranks than cores ---- */

static void many(Peer *p) {
  for (int i = 0; i < 100; i++) {
    int32_t x = p->rank == i % p->n ? i + 1 : 0;
    NEED(op_run(p, ALL_REDUCE(DT_I32, &x, &x, 1)));
    NEED(x == i + 1);
  }
}

START_TEST(test_many_ranks) {
  comm_world(&(Setup){.n = 64, .in_flight = 1, .nhandle = 1, .ngroup = 1}, many, NULL);
}
END_TEST

Suite *comm_suite(void) {
  Suite *s = suite_create("comm");
  TCase *t = tcase_create("local");
  tcase_set_timeout(t, 300);
  tcase_add_loop_test(t, test_scenarios, 0, SCENARIOS);
  tcase_add_test(t, test_odd_groups);
  tcase_add_test(t, test_nan_is_kept);
  tcase_add_test(t, test_deterministic);
  tcase_add_test(t, test_many_ranks);
  suite_add_tcase(s, t);
  return s;
}
