/* check_gpu_queues.c - plans whose ranks are processes with a GPU each, on the stand-ins:
 * streams share connections to the GPU, and a kernel that is first used in a step waits
 * for all streams. With as many connections as weft sets, and all loaded before the first
 * step, every plan ends; with too few some do not, and kernels that are not loaded are
 * found, so that the stand-in is known to show both. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/generate/queue_plans.h"
#include "tests/harness/emulated.h"

#ifdef WEFT_EMULATED_CUDA

enum { SEED = 1, PLANS = 6 };

static const int enough[] = {0, 16};

START_TEST(plans_end) {
  Text t = {0};
  QueuePlan p = {.seed = SEED,
                 .number = queue_plan_number(SEED, (uint64_t)_i),
                 .order = (uint64_t)_i,
                 .connections = enough[_i % LEN(enough)],
                 .patience = 60};
  QueueOutcome o = queue_plan_runs(&p, &t);
  ck_assert_msg(o == QUEUES_END, "%d: %s", o, t.s);
  text_free(&t);
}
END_TEST

/* NCCL's streams share connections with those of the step, as weft can tell: such plans
 * stopped in their first step while it was launched op by op. */
START_TEST(first_steps_end) {
  static const struct {
    uint64_t plan;
    int connections;
  } of[] = {{0, 12}, {7, 10}, {16, 14}};
  ck_assert_int_lt(_i, LEN(of));
  Text t = {0};
  QueuePlan p = {.seed = SEED,
                 .number = queue_plan_number(SEED, of[_i].plan),
                 .order = of[_i].plan,
                 .connections = of[_i].connections,
                 .told = true,
                 .patience = 20};
  QueueOutcome o = queue_plan_runs(&p, &t);
  ck_assert_msg(o == QUEUES_END, "%d: %s", o, t.s);
  text_free(&t);
}
END_TEST

/* Whether one of the first plans stops, and each that does not end does. */
static bool one_stops(QueuePlan p, int plans) {
  bool stops = false;
  for (int i = 0; i < plans && !stops; i++) {
    Text t = {0};
    p.number = queue_plan_number(SEED, (uint64_t)i);
    p.order = (uint64_t)i;
    QueueOutcome o = queue_plan_runs(&p, &t);
    ck_assert_msg(o != QUEUES_FAIL, "%s", t.s);
    stops = o == QUEUES_STOP;
    text_free(&t);
  }
  return stops;
}

START_TEST(too_few_connections_stop) {
  QueuePlan p = {.seed = SEED, .connections = 2, .patience = 3};
  ck_assert(one_stops(p, 20));
}
END_TEST

/* Whether such a plan stops follows from what its peers wait for; that it may is seen. */
START_TEST(loading_in_a_step_is_found) {
  Text t = {0};
  QueuePlan p = {
      .seed = SEED, .number = queue_plan_number(SEED, 0), .lazily = true, .patience = 3};
  QueueOutcome o = queue_plan_runs(&p, &t);
  ck_assert_msg(o == QUEUES_STOP || strstr(t.s, "kernels were first used in a step"),
                "%s", t.s);
  text_free(&t);
}
END_TEST

Suite *gpu_queues_suite(void) {
  Suite *s = suite_create("gpu_queues");
  TCase *tc = tcase_create("standin");
  tcase_set_timeout(tc, 300);
  tcase_add_loop_test(tc, plans_end, 0, PLANS);
  tcase_add_loop_test(tc, first_steps_end, 0, 3);
  tcase_add_test(tc, too_few_connections_stop);
  tcase_add_test(tc, loading_in_a_step_is_found);
  suite_add_tcase(s, tc);
  return s;
}

#else

Suite *gpu_queues_suite(void) { return emulated_suite_without("gpu_queues"); }

#endif
