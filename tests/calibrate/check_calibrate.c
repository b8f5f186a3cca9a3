/* check_calibrate.c - weft calibrate: what it measures, that it goes on where it was
 * ended, and what it leaves alone. No time is compared. */
#include <check.h>

#include "tests/harness/process.h"
#include "tests/generate/tiny_plan.h"

static void has(const char *text, const char *part) {
  ck_assert_msg(strstr(text, part) != NULL, "\"%s\" is not in\n%s", part, text);
}

/* The second run has nothing to do, a larger plan adds to it; a file of another machine
 * is left alone. */
START_TEST(a_calibration_goes_on) {
  scratch_put("tiny.lua", tiny_plan, strlen(tiny_plan));
  Outcome o = process_run(120, "$weft calibrate tiny.lua --threads 1 -o c.lua");
  ck_assert_msg(o.code == 0, "%s", o.err);
  const char *first = scratch_get(scratch_path("c.lua"));
  has(first, "kernel { \"linear\", \"f32\", ");
  o = process_run(60, "$weft sim tiny.lua --calibration c.lua --json");
  ck_assert_int_eq(o.code, 0);
  has(o.out, "\"measured\": 1\n");
  o = process_run(60, "$weft calibrate tiny.lua --threads 1 -o c.lua");
  ck_assert_int_eq(o.code, 0);
  has(o.out, "0 kernels and 0 transfers measured now");
  ck_assert_str_eq(scratch_get(scratch_path("c.lua")), first);
  o = process_run(120, "$weft calibrate tiny.lua --threads 1 -o c.lua --set "
                       "mesh.world=2 --set mesh.tp=2");
  ck_assert_msg(o.code == 0, "%s", o.err);
  const char *second = scratch_get(scratch_path("c.lua"));
  has(second, "move { \"all_reduce\", \"f32\", ranks = 2, ");
  o = process_run(60, "$weft calibrate tiny.lua --threads 3 -o c.lua");
  ck_assert_int_eq(o.code, 2);
  has(o.err, "c.lua was measured elsewhere (threads of a rank, 1 and 3)");
  ck_assert_str_eq(scratch_get(scratch_path("c.lua")), second);
}
END_TEST

/* Kernels of a run by instruction; a trace of other programs, or none, is refused. */
START_TEST(a_trace_beside_the_clock) {
  scratch_put("tiny.lua", tiny_plan, strlen(tiny_plan));
  Outcome o =
      process_run(60, "$weft run tiny.lua --threads 1 --steps 3 -q --trace t.json");
  ck_assert_msg(o.code == 0, "%s", o.err);
  o = process_run(60, "$weft calibrate tiny.lua --threads 1 -q -o c.lua");
  ck_assert_msg(o.code == 0, "%s", o.err);
  o = process_run(60, "$weft sim tiny.lua --calibration c.lua --compare t.json");
  ck_assert_msg(o.code == 0, "%s", o.err);
  has(o.out,
      "kernels of a step on all ranks, in ms, as measured in 2 steps and predicted");
  /* 4 microbatches of 4 layers with 4 products, and the head */
  has(o.out, "  linear               f32       68 ");
  /* Stages are cut as in the run, which knows no cluster. */
#define STAGES                                                                           \
  "--set mesh.world=8 --set mesh.tp=2 --set mesh.pp=2 --set batch.global=16 "            \
  "--set schedule=interleaved_1f1b --set model.num_hidden_layers=8"
  o = process_run(60,
                  "$weft run tiny.lua --threads 1 --steps 2 -q --trace s.json " STAGES);
  ck_assert_msg(o.code == 0, "%s", o.err);
  o = process_run(60, "$weft sim tiny.lua --calibration c.lua --compare s.json " STAGES);
  ck_assert_msg(o.code == 0, "%s", o.err);
  o = process_run(60, "$weft sim tiny.lua --calibration c.lua --compare t.json "
                      "--set model.num_hidden_layers=3");
  ck_assert_int_eq(o.code, 2);
  has(o.err, "t.json: is no trace of this plan on this mesh");
  o = process_run(60, "$weft sim tiny.lua --calibration c.lua --compare tiny.lua");
  ck_assert_int_eq(o.code, 2);
  has(o.err, "is no trace of weft run: it is not JSON: ");
  scratch_put("t.json", "{\"traceEvents\": []}", 19);
  o = process_run(60, "$weft sim tiny.lua --calibration c.lua --compare t.json");
  ck_assert_int_eq(o.code, 2);
  has(o.err, "t.json: is no trace of weft run: it has no kernels");
}
END_TEST

Suite *calibrate_suite(void) {
  Suite *s = suite_create("calibrate");
  TCase *c = tcase_create("verb");
  tcase_add_test(c, a_calibration_goes_on);
  tcase_add_test(c, a_trace_beside_the_clock);
  tcase_set_timeout(c, 600);
  tcase_add_checked_fixture(c, scratch_setup, scratch_teardown);
  suite_add_tcase(s, c);
  return s;
}
