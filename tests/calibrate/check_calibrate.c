/* check_calibrate.c - weft calibrate: what it measures, that it goes on where it was
 * ended, and what it leaves alone. No time is compared. */
#include <check.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/harness/compiled_job.h"
#include "tests/harness/process.h"
#include "tests/generate/device_plans.h"
#include "tests/generate/tiny_plan.h"
#include "tests/standin/standin.h"
#include "vm/calibrate/calibrate.h"
#include "vm/calibrate/kernel_operands.h"

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

/* Transfers between processes: a file is of one way to move data, what has more ranks
 * than there are processes is left out, and all of a plan that has no more is measured.
 */
START_TEST(transfers_between_processes) {
  scratch_put("tiny.lua", tiny_plan, strlen(tiny_plan));
  Outcome o = process_run(120, "$weft calibrate tiny.lua --threads 1 --procs 2 -o p.lua "
                               "--set mesh.world=4");
  ck_assert_msg(o.code == 0, "%s", o.err);
  has(o.out, "transfers of more ranks than there are processes were left out");
  ck_assert_ptr_null(strstr(scratch_get(scratch_path("p.lua")), "move {"));
  o = process_run(120, "$weft calibrate tiny.lua --threads 1 --procs 2 -o p.lua "
                       "--set mesh.world=2 --set mesh.tp=2");
  ck_assert_msg(o.code == 0, "%s", o.err);
  const char *file = scratch_get(scratch_path("p.lua"));
  has(file, "comm = \"tcp\"");
  has(file, "move { \"all_reduce\", \"f32\", ranks = 2, ");
  o = process_run(60, "$weft sim tiny.lua --calibration p.lua --set mesh.world=2 --set "
                      "mesh.tp=2 --json");
  ck_assert_int_eq(o.code, 0);
  has(o.out, "\"measured\": 1\n");
  o = process_run(60, "$weft calibrate tiny.lua --threads 1 -o p.lua");
  ck_assert_int_eq(o.code, 2);
  has(o.err, "p.lua was measured elsewhere (transfers, tcp and local)");
  o = process_run(60, "$weft calibrate tiny.lua --comm tcp -o q.lua");
  ck_assert_int_eq(o.code, 2);
  has(o.err, "--comm tcp connects processes: add --procs N");
  o = process_run(60, "$weft calibrate tiny.lua --procs 2 --comm local -o q.lua");
  ck_assert_int_eq(o.code, 2);
  has(o.err, "2 processes, but --comm local is one process");
}
END_TEST

/* What does not fit the plan or the place is said, and what has no row, with its share.
 */
START_TEST(calibrations_that_do_not_fit) {
  static const struct {
    const char *file, *how, *says;
  } list[] = {
      {"cpu', way = 'w', name = 'm', version = '0.0.1", "",
       "the calibration is of weft 0.0.1, this is "},
      {"cpu', way = 'stones', name = 'm', version = '0", "",
       "the calibration is of kernels by stones; here they are by "},
      {"cpu', way = 'w', name = 'm', version = '0", "--set precision=bf16",
       "the calibration has no kernel in bf16, the plan's compute type"},
      {"cpu', way = 'w', name = 'mine', version = '0", "--set cluster=h100-sxm",
       "the calibration is of mine, the cluster of h100-sxm: nothing of it is used"},
      {"tpu', way = 'w', name = 'm', version = '0", "", "there is no device \"tpu\""},
      {"cpu', way = 'w', name = 'm', version = '0", "",
       "no row for linear_dw f32, linear f32"},
      {"cpu', way = 'w', name = 'm', version = '0", "", "% by data sheet"},
  };
  scratch_put("tiny.lua", tiny_plan, strlen(tiny_plan));
  for (int i = 0; i < LEN(list); i++) {
    const char *file = arena_printf(
        scratch_arena,
        "machine { device = '%s', date = 'd', threads = 1, cores = 2, f32 = 1e9, bf16 = "
        "1e9, bandwidth = 1e9 }\nkernel { 'linear', 'f32', 'x', class = 'products', m = "
        "64, n = 64, k = 64, flops = 524288, bytes = 49152, ns = 1000 }\n",
        list[i].file);
    scratch_put("c.lua", file, strlen(file));
    Outcome o = process_run(60, "$weft sim tiny.lua --calibration c.lua %s", list[i].how);
    const char *all = arena_printf(scratch_arena, "%s%s", o.out, o.err);
    has(all, list[i].says);
  }
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
  /* The same instructions, of other tensors. */
  o = process_run(60, "$weft sim tiny.lua --calibration c.lua --compare t.json "
                      "--set batch.seq=32");
  ck_assert_int_eq(o.code, 2);
  has(o.err, "t.json: is no trace of this plan on this mesh");
  /* The same instructions and tensors, of other attributes. */
  o = process_run(60, "$weft sim tiny.lua --calibration c.lua --compare t.json "
                      "--set model.rope_theta=500000");
  ck_assert_int_eq(o.code, 2);
  has(o.err, "t.json: is no trace of this plan on this mesh");
  o = process_run(60, "$weft sim tiny.lua --calibration c.lua --trace p.json");
  ck_assert_msg(o.code == 0, "%s", o.err);
  o = process_run(60, "$weft sim tiny.lua --calibration c.lua --compare p.json");
  ck_assert_int_eq(o.code, 2);
  has(o.err, "p.json: is no trace that this weft run has written");
  o = process_run(60, "$weft sim tiny.lua --calibration c.lua --compare tiny.lua");
  ck_assert_int_eq(o.code, 2);
  has(o.err, "is no trace of weft run: it is not JSON: ");
  scratch_put("t.json", "{\"traceEvents\": []}", 19);
  o = process_run(60, "$weft sim tiny.lua --calibration c.lua --compare t.json");
  ck_assert_int_eq(o.code, 2);
  has(o.err, "t.json: is no trace of weft run: it has no kernels");
#define KERNEL(step) "{\"cat\": \"kernel\", \"args\": {\"step\": " step "}}"
  static const char far[] =
      "{\"traceEvents\": [" KERNEL("1") ", " KERNEL("9223372036854775807") "]}";
  static const char none[] = "{\"traceEvents\": [" KERNEL("\"one\"") "]}";
  scratch_put("t.json", far, sizeof far - 1);
  o = process_run(60, "$weft sim tiny.lua --calibration c.lua --compare t.json");
  ck_assert_int_eq(o.code, 2);
  has(o.err, "it goes from step 1 to 9223372036854775807");
  scratch_put("t.json", none, sizeof none - 1);
  o = process_run(60, "$weft sim tiny.lua --calibration c.lua --compare t.json");
  ck_assert_int_eq(o.code, 2);
  has(o.err, "a kernel is of no step");
}
END_TEST

/* A rate that the file has wrong is seen, and a file of another machine is not compared.
 */
START_TEST(a_calibration_ages) {
  scratch_put("tiny.lua", tiny_plan, strlen(tiny_plan));
  Outcome o = process_run(120, "$weft calibrate tiny.lua --threads 1 -q -o c.lua");
  ck_assert_msg(o.code == 0, "%s", o.err);
  o = process_run(60, "$weft doctor --calibration c.lua");
  ck_assert_msg(o.code == 0, "%s", o.err);
  has(o.out, "c.lua: of ");
  has(o.out, ", 0 days old, ");
  has(o.out, "  copies ");
  process_run(60, "sed 's/bandwidth = [0-9.e+]*/bandwidth = 1e15/' c.lua >d.lua");
  o = process_run(60, "$weft doctor --calibration d.lua");
  ck_assert_msg(o.code == 0, "%s", o.err);
  has(o.out, "GB/s then, ");
  has(o.out, "  more than a tenth apart: calibrate again");
  process_run(60, "sed 's/name = \"[^\"]*\"/name = \"Z80\"/; s/date = \"[^\"]*\"/date = "
                  "\"soon\"/' c.lua >d.lua");
  o = process_run(60, "$weft doctor --calibration d.lua --json");
  ck_assert_msg(o.code == 0, "%s", o.err);
  has(o.out, "\"differs\": \"machine, Z80 and ");
  has(o.out, "\"days\": null");
  has(o.out, "\"rates\": {}");
  o = process_run(60, "$weft doctor --calibration tiny.lua");
  ck_assert_int_eq(o.code, 1);
  has(o.err, "tiny.lua:2: error: is no calibration, but a plan");
  o = process_run(60, "$weft sim tiny.lua --calibration tiny.lua");
  ck_assert_int_eq(o.code, 1);
  has(o.err, "is no calibration, but a plan");
}
END_TEST

/* Matrices of Muon are timed on a rank that has them, which says how much there is to do;
 * those that are longer than wide are turned on the way, and a row of their own. */
START_TEST(matrices_are_timed_where_they_are) {
  char plan[1024];
  const char *adamw = strstr(tiny_plan, "weft.adamw");
  snprintf(plan, sizeof plan, "%.*sweft.muon%s", (int)(adamw - tiny_plan), tiny_plan,
           adamw + strlen("weft.adamw"));
  scratch_put("muon.lua", plan, strlen(plan));
  Outcome o =
      process_run(120, "$weft calibrate muon.lua --threads 1 -o c.lua --set mesh.world=2 "
                       "--set model.hidden_size=256 --set model.intermediate_size=512");
  ck_assert_msg(o.code == 0, "%s", o.err);
  const char *file = scratch_get(scratch_path("c.lua")), *row = file;
  int rows = 0, turned = 0;
  while ((row = strstr(row, "kernel { \"matrix_take\", "))) {
    double bytes = 0, ns = 0;
    const char *end = strchr(row, '}'), *b = strstr(row, "bytes = "),
               *n = strstr(row, "ns = ");
    ck_assert(end && b && n && b < end && n < end);
    ck_assert_int_eq(sscanf(b, "bytes = %lf", &bytes), 1);
    ck_assert_int_eq(sscanf(n, "ns = %lf", &ns), 1);
    ck_assert_msg(bytes / ns < 1000, "%.*s", (int)(end - row),
                  row); /* a terabyte a second */
    const char *inverse = strstr(row, "inverse=1");
    turned += inverse && inverse < end;
    rows++;
    row = end;
  }
  ck_assert_msg(rows > turned && turned > 0, "%d, %d turned\n%s", rows, turned, file);
}
END_TEST

/* The operands, then the results, of the first kernel of an op that a kernel before it
 * passes on. */
static uint32_t passed(const Compiled *c, int op) {
  const Program *p = &c->prog[0];
  for (uint32_t i = 0; i < p->ncode; i++)
    if (p->code[i].code == I_KERNEL && p->code[i].op == op)
      return timed_instr(c, p, &p->code[i], &(EvenList){0}).passed;
  ck_abort_msg("there is no %s", op_info[op].name);
}

/* In a step weights, gradients and states are those of other layers than the ones before;
 * integers are never passed on, as others would write over them. */
START_TEST(what_is_in_the_cache) {
  const char *path = scratch_put("tiny.lua", tiny_plan, strlen(tiny_plan));
  Arena *a = arena_new(NULL);
  Job j;
  const Compiled *c = compiled_job(&j, a, path, NULL, 0);
  ck_assert_uint_eq(passed(c, OP_linear), 1 | 4);    /* x, w -> y */
  ck_assert_uint_eq(passed(c, OP_linear_dw), 1 | 2); /* x, dy -> dw */
  ck_assert_uint_eq(passed(c, OP_linear_dx), 1 | 4); /* dy, w -> dx */
  ck_assert_uint_eq(passed(c, OP_embedding), 4);     /* ids, w -> y */
  ck_assert_uint_eq(passed(c, OP_adamw), 0);
  job_free(&j);
  arena_free(a);
}
END_TEST

static weft_status slow_now_and_then(void *ud, int i, Samples *out, weft_error *e) {
  static const double took[] = {1, 1, 2, 1, 1, 100};
  for (int k = 0; k < LEN(took); k++) out->at[out->n++] = took[k] + i;
  return WEFT_OK;
}

/* Slow moments are a part of a row, as they are of a step; a pause counts for three times
 * the median. */
START_TEST(slow_moments_count) {
  double seconds = 0;
  weft_error e = {.rank = -1};
  ck_assert_int_eq(mean_of_threads(1, 1, slow_now_and_then, NULL, true, &seconds, &e),
                   WEFT_OK);
  ck_assert_double_eq(seconds, (1 + 1 + 2 + 1 + 1 + 3) / 6.0);
  ck_assert_int_eq(mean_of_threads(2, 1, slow_now_and_then, NULL, true, &seconds, &e),
                   WEFT_OK);
  ck_assert_double_eq(seconds, (9 / 6.0 + (2 + 2 + 3 + 2 + 2 + 6) / 6.0) / 2);
}
END_TEST

#ifdef WEFT_EMULATED_CUDA

/* Kernels run on as many GPUs as there are; transfers of one process on the first of
 * them, however many ranks there are. */
START_TEST(ranks_have_gpus) {
  Standin machine = standin_usual;
  Bench b = {.seconds = 1e-3};
  weft_error e = {.rank = -1};
  double seconds = 0;
  WantedMove sum = {COLL_ALL_REDUCE, DT_F32, RED_SUM, 3, 0, 4096};
  for (machine.gpus = 1; machine.gpus <= 8; machine.gpus *= 2) {
    standin_set(&machine);
    weft_status st = bench_open(&b, device_standin(), 1, 4, &e);
    ck_assert_msg(st == WEFT_OK, "%s", e.text);
    ck_assert_int_eq(b.ranks, MIN(machine.gpus, 4));
  }
  machine.gpus = 2;
  standin_set(&machine);
  weft_status st = time_move(&b, &sum, &seconds, &e);
  ck_assert_msg(st == WEFT_OK && seconds > 0, "%s", e.text);
}
END_TEST

#endif

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
static pthread_barrier_t all_there;

static weft_status wait_for_all(void *ud, int i, Samples *out, weft_error *e) {
  pthread_barrier_wait(&all_there);
  out->at[out->n++] = i;
  return WEFT_OK;
}

/* There is no room for the stacks of the last threads; the first ones do not wait for
 * them. */
START_TEST(threads_that_cannot_start_leave_none_waiting) {
  enum { THREADS = 64 };
  struct rlimit room;
  double seconds = 0;
  weft_error e = {.rank = -1};
  long pages = 0;
  FILE *f = fopen("/proc/self/statm", "r");
  ck_assert(f && fscanf(f, "%ld", &pages) == 1);
  fclose(f);
  pthread_barrier_init(&all_there, NULL, THREADS);
  ck_assert_int_eq(mean_of_threads(THREADS, 1, wait_for_all, NULL, true, &seconds, &e),
                   WEFT_OK);
  ck_assert_double_eq(seconds, (THREADS - 1) / 2.0);
  getrlimit(RLIMIT_AS, &room);
  room.rlim_cur = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + (200 << 20);
  ck_assert_int_eq(setrlimit(RLIMIT_AS, &room), 0);
  ck_assert_int_eq(
      mean_of_threads(2 * THREADS, 1, wait_for_all, NULL, true, &seconds, &e),
      WEFT_ELIMIT);
  ck_assert_msg(strstr(e.text, "cannot start thread") != NULL, "%s", e.text);
}
END_TEST
#endif

Suite *calibrate_suite(void) {
  Suite *s = suite_create("calibrate");
  TCase *c = tcase_create("verb");
  tcase_add_test(c, what_is_in_the_cache);
  tcase_add_test(c, slow_moments_count);
  tcase_add_test(c, a_calibration_goes_on);
  tcase_add_test(c, transfers_between_processes);
  tcase_add_test(c, calibrations_that_do_not_fit);
  tcase_add_test(c, a_trace_beside_the_clock);
  tcase_add_test(c, a_calibration_ages);
  tcase_add_test(c, matrices_are_timed_where_they_are);
#ifdef WEFT_EMULATED_CUDA
  tcase_add_test(c, ranks_have_gpus);
#endif
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  tcase_add_test(c, threads_that_cannot_start_leave_none_waiting);
#endif
  tcase_set_timeout(c, 600);
  tcase_add_checked_fixture(c, scratch_setup, scratch_teardown);
  suite_add_tcase(s, c);
  return s;
}
