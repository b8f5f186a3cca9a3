/* check_rank_traces.c - weft run --trace: events of all ranks, started in any way. */
#include <check.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>

#include "tests/harness/launched.h"
#include "tests/harness/process.h"
#include "tests/ranks/mpirun.h"

enum { RANKS = 4, TRACKS = 64 };

typedef struct Seen {
  int steps, kernels, calls, moves, waits;
  double begin;       /* of the first event */
  double end[TRACKS]; /* of the last event of each track */
} Seen;

static const char *text_of(const json_t *o, const char *key) {
  const char *s = json_string_value(json_object_get(o, key));
  return s ? s : "";
}

/* Every rank has its steps; calls lie in steps, kernels in calls; a queue does one thing
 * at a time. */
static void look_at(const json_t *ev, Seen *seen) {
  int pid = (int)json_integer_value(json_object_get(ev, "pid"));
  int tid = (int)json_integer_value(json_object_get(ev, "tid"));
  double ts = json_number_value(json_object_get(ev, "ts"));
  double dur = json_number_value(json_object_get(ev, "dur"));
  const char *cat = text_of(ev, "cat");
  ck_assert(pid >= 0 && pid < RANKS && tid >= 0 && tid < TRACKS);
  Seen *s = &seen[pid];
  if (strcmp(text_of(ev, "ph"), "X") != 0) return;
  ck_assert_msg(dur >= 0 && ts >= 0, "rank %d: %g from %g on", pid, dur, ts);
  s->begin = MIN(s->begin, ts);
  s->steps += strcmp(cat, "step") == 0;
  s->kernels += strcmp(cat, "kernel") == 0;
  s->calls += strcmp(cat, "call") == 0;
  s->waits += strcmp(cat, "wait") == 0;
  if (strcmp(cat, "transfer") != 0) return;
  s->moves++;
  ck_assert_msg(tid > 0 && ts >= s->end[tid] - 0.01, "track %d of rank %d: two at a time",
                tid, pid);
  s->end[tid] = ts + dur;
}

static const char *const ways[] = {"", "--procs 4", "mpi"};

START_TEST(traces_show_all_ranks) {
  Seen seen[RANKS] = {{0}};
  launched_plan();
  double begin = 1e9;
  for (int i = 0; i < RANKS * TRACKS; i++) seen[i / TRACKS].end[i % TRACKS] = -1e9;
  for (int r = 0; r < RANKS; r++) seen[r].begin = begin;
  bool mpi = strcmp(ways[_i], "mpi") == 0;
  if (mpi && !mpirun_present()) return;
  Outcome o =
      mpi ? process_run(60,
                        MPIRUN " $weft run plan.lua --steps 3 --threads 1 --trace t.json",
                        RANKS)
          : process_run(60, "$weft run plan.lua --steps 3 --threads 1 --trace t.json %s",
                        ways[_i]);
  ck_assert_msg(o.code == 0, "%s", o.err);
  json_error_t why;
  json_t *all = json_load_file(scratch_path("t.json"), 0, &why);
  ck_assert_msg(all != NULL, "line %d: %s", why.line, why.text);
  const json_t *events = json_object_get(all, "traceEvents");
  for (size_t i = 0; i < json_array_size(events); i++)
    look_at(json_array_get(events, i), seen);
  for (int r = 0; r < RANKS; r++) {
    ck_assert_int_eq(seen[r].steps, 3);
    ck_assert_int_ge(seen[r].calls, 3 * 2 * 4 * 2); /* F and B of four microbatches */
    ck_assert_int_gt(seen[r].kernels, seen[r].calls);
    ck_assert_int_ge(seen[r].waits, seen[r].moves);
    ck_assert_int_eq(seen[r].moves % 3, 0);
    begin = MIN(begin, seen[r].begin);
  }
  ck_assert_double_eq(begin, 0); /* the first event of any rank is at 0 */
  const char *text = scratch_get(scratch_path("t.json"));
  ck_assert_ptr_nonnull(strstr(text, "\"rank 3 (pp 1, dp 0, tp 1)\""));
  ck_assert_ptr_nonnull(strstr(text, "\"unit\":\"layers.1\""));
  ck_assert_ptr_nonnull(strstr(text, "all_reduce(tp) of "));
  json_decref(all);
}
END_TEST

/* What a run has done until it was interrupted is shown, with and without a checkpoint;
 * an export, which is none of a trained model, is told not to be there. */
START_TEST(traces_of_interrupted_runs) {
  const char *const ways[] = {"--export e", "--set 'checkpoint={dir=\"ck\",every=0}'",
                              "--procs 4"};
  launched_plan();
  for (int i = 0; i < LEN(ways); i++) {
    Process p =
        process_start(60, "$weft run plan.lua --threads 1 --trace t.json %s", ways[i]);
    ck_assert(process_wait_for(&p, p.out, "step"));
    kill(p.pid, SIGINT);
    Outcome o = process_end(&p);
    ck_assert_msg(o.code == 130, "code %d: %s", o.code, o.err);
    ck_assert_int_eq(!strstr(o.err, "weft: warning: e: nothing was exported"), i != 0);
    json_error_t why;
    json_t *all = json_load_file(scratch_path("t.json"), 0, &why);
    ck_assert_msg(all != NULL, "%s: line %d: %s", o.err, why.line, why.text);
    ck_assert_int_gt(json_array_size(json_object_get(all, "traceEvents")), 20);
    json_decref(all);
    ck_assert_int_eq(remove(scratch_path("t.json")), 0);
  }
}
END_TEST

Suite *rank_traces_suite(void);
Suite *rank_traces_suite(void) {
  Suite *s = suite_create("rank_traces");
  TCase *t = tcase_create("traces");
  tcase_set_timeout(t, 120);
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_add_loop_test(t, traces_show_all_ranks, 0, LEN(ways));
  tcase_add_test(t, traces_of_interrupted_runs);
  suite_add_tcase(s, t);
  return s;
}
