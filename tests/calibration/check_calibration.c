/* check_calibration.c - files of measured times: written, read, refused with their line,
 * and what weft sim says of those that do not fit. */
#include <check.h>
#include <signal.h>
#include <sys/resource.h>

#include "bindings/calibration/calibration.h"
#include "tests/harness/process.h"
#include "tests/generate/tiny_plan.h"

#define MACHINE                                                                          \
  "machine { device = 'cpu', way = 'w', name = 'm', version = '0', date = 'd',\n"        \
  "  threads = 1, cores = 2, f32 = 1e9, bf16 = 1e9, bandwidth = 1e9 }\n"

#define OF_GPU(name)                                                                     \
  "machine { device = 'cuda', way = '', name = '" name                                   \
  "', comm = 'nccl', version = '0', "                                                    \
  "date = '2026-01-01',\n threads = 1, cores = 0, f32 = 1e13, bf16 = 1e14, bandwidth = " \
  "1e12 }\n"

START_TEST(a_table_survives_its_file) {
  KernelRow kernel[] = {{.op = OP_linear,
                         .shape = "f32[2,3], f32[4,3] -> f32[2,4]",
                         .work = {.kind = WORK_PRODUCT, .m = 2, .n = 4, .k = 3},
                         .seconds = 1.5e-6},
                        {.op = OP_add,
                         .shape = "bf16[8] ...",
                         .work = {.kind = WORK_MOVE, .dtype = DT_BF16, .bytes = 48},
                         .seconds = 0.1}};
  MoveRow move[] = {{COLL_SEND, DT_F16, 2, 123456789, 7e-3}};
  CostTable back, t = {.device = "cpu",
                       .way = "by \"hand\"",
                       .machine = "a\\b",
                       .comm = "tcp",
                       .version = "1",
                       .date = "today",
                       .threads = 3,
                       .cores = 5,
                       .f32 = 1e9,
                       .bf16 = 2e9,
                       .bandwidth = 3e9,
                       .kernel = {kernel, 2, 2},
                       .move = {move, 1, 1}};
  Text first = {0}, second = {0};
  Diags d = {.arena = scratch_arena};
  calibration_text(&t, &first);
  const char *file = scratch_put("c.lua", first.s, first.n);
  ck_assert_int_eq(calibration_read(file, scratch_arena, &back, &d, &scratch_error),
                   WEFT_OK);
  calibration_text(&back, &second);
  ck_assert_str_eq(first.s, second.s);
  ck_assert_str_eq(back.way, t.way);
  ck_assert_str_eq(back.machine, t.machine);
  ck_assert_str_eq(back.comm, "tcp");
  ck_assert_int_eq(back.cores, 5);
  ck_assert_double_eq_tol(back.kernel.at[1].seconds, 0.1, 1e-12);
  ck_assert_int_eq(back.kernel.at[1].work.dtype, DT_BF16);
  ck_assert_double_eq(back.move.at[0].bytes, 123456789);
  text_free(&first), text_free(&second);
}
END_TEST

START_TEST(wrong_files_are_refused_with_their_line) {
  static const struct {
    const char *text;
    int line;
    const char *says;
  } wrong[] = {
      {"", 1, "names no machine"},
      {MACHINE MACHINE, 3, "of one machine"},
      {"machine { device = 'cpu' }", 1, "way: a string is missing"},
      {"\nmachine { devise = 'cpu' }", 2, "unknown field \"devise\""},
      {"machine { device = 'cpu', way = 'w', name = 'm', comm = 'pigeon' }", 1,
       "nothing moves data by \"pigeon\""},
      {MACHINE "kernel { 'lineal', 'f32', '', class = 'products', ns = 1 }", 3,
       "has no op \"lineal\""},
      {MACHINE "kernel { 'linear', 'f31', '', class = 'products', ns = 1 }", 3,
       "there is no type \"f31\""},
      {MACHINE "kernel { 'linear', 'f32', '', class = 'product', ns = 1 }", 3,
       "there is no class of kernels \"product\""},
      {MACHINE "kernel { 'linear', 'f32', '', class = 'products', ns = 0 }", 3,
       "ns: has to be above 0"},
      {MACHINE "kernel { 'linear', 'f32', '', class = 'products', ns = 0/0 }", 3, "ns: "},
      {MACHINE "kernel { 'linear', 'f32', '', class = 'products', ns = 1e300 }", 3,
       "ns: "},
      {MACHINE "kernel { 'linear', 'f32', '', class = 'products', ns = 1e15 }", 3,
       "ns: has to be above 0, and at most a day"},
      {MACHINE "kernel { 'linear', 'f32', '', class = 'products', m = 1e200, ns = 1 }", 3,
       "m: "},
      {MACHINE "kernel { 'linear', 'f32', 'x', class = 'products', ns = 1 }\n"
               "kernel { 'linear', 'f32', 'x', class = 'products', ns = 2 }",
       4, "a second row of linear x"},
      {MACHINE "move { 'recv', 'f32', ranks = 2, bytes = 8, ns = 1 }", 3,
       "there is no collective \"recv\""},
      {MACHINE "move { 'send', 'f32', ranks = 1, bytes = 8, ns = 1 }", 3, "ranks: "},
      {MACHINE "move { 'send', 'f32', ranks = 2, bytes = 8 }", 3,
       "ns: a number is missing"},
      {MACHINE "return {", 3, ""},
  };
  for (int i = 0; i < LEN(wrong); i++) {
    CostTable t;
    Diags d = {.arena = scratch_arena};
    const char *file = scratch_put("wrong.lua", wrong[i].text, strlen(wrong[i].text));
    weft_status st = calibration_read(file, scratch_arena, &t, &d, &scratch_error);
    ck_assert_msg(st == WEFT_EPLAN && d.list.n == 1, "%s", wrong[i].text);
    ck_assert_msg(strstr(d.list.at[0].summary, wrong[i].says), "%s: %s", wrong[i].text,
                  d.list.at[0].summary);
    ck_assert_str_eq(d.list.at[0].file, file);
    ck_assert_msg(d.list.at[0].line == wrong[i].line, "line %d of %s", d.list.at[0].line,
                  wrong[i].text);
  }
}
END_TEST

/* A limit on the size of files stands for a full disk. */
START_TEST(a_full_disk_leaves_the_old_file) {
  struct rlimit before, small = {.rlim_cur = 100};
  CostTable t = {.device = "cpu", .way = "", .machine = "m", .version = "1", .date = "d"};
  const char *file = scratch_put("c.lua", "old", 3);
  signal(SIGXFSZ, SIG_IGN);
  ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
  small.rlim_max = before.rlim_max;
  ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
  weft_status st = calibration_write(&t, file, &scratch_error);
  ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
  ck_assert_int_eq(st, WEFT_EFILE);
  err_clear(&scratch_error);
  ck_assert_str_eq(scratch_get(file), "old");
  ck_assert_str_eq(scratch_list(), "c.lua ");
}
END_TEST

/* ---- weft sim ---- */

static void has(const char *text, const char *part) {
  ck_assert_msg(strstr(text, part) != NULL, "\"%s\" is not in\n%s", part, text);
}

START_TEST(a_table_without_rows_says_so) {
  scratch_put("tiny.lua", tiny_plan, strlen(tiny_plan));
  scratch_put("c.lua", MACHINE, strlen(MACHINE));
  Outcome o = process_run(60, "$weft sim tiny.lua --calibration c.lua");
  ck_assert_int_eq(o.code, 0);
  has(o.out, "0.0 % measured, 0.0 % interpolated, 100.0 % by data sheet");
  has(o.out, "no row for ");
  has(o.err, "warning: plan.precision: the calibration has no kernel in f32");
  has(o.err, "the calibration is of weft 0, this is ");
  has(o.err, "the calibration is of kernels by w; here they are by ");
  o = process_run(60, "$weft sim tiny.lua --calibration c.lua --set cluster=h100-sxm");
  ck_assert_int_eq(o.code, 0);
  has(o.err, "the calibration is of m, the cluster of h100-sxm: nothing of it is used");
  has(o.out, "all of it is by data sheets");
  scratch_put("c.lua", "kernel {}", 9);
  o = process_run(60, "$weft sim tiny.lua --calibration c.lua");
  ck_assert_int_ne(o.code, 0);
  has(o.err, "c.lua:1: error: ");
}
END_TEST

/* A run of the plan has as many threads as there are cores for its ranks. */
START_TEST(threads_of_another_run_are_told) {
  static const char says[] =
      "the calibration is of ranks of 1 thread; those of this plan "
      "have 2 on its 2 cores, unless weft run is told --threads 1";
  scratch_put("tiny.lua", tiny_plan, strlen(tiny_plan));
  scratch_put("c.lua", MACHINE, strlen(MACHINE));
  Outcome o = process_run(60, "$weft sim tiny.lua --calibration c.lua");
  ck_assert_int_eq(o.code, 0);
  has(o.err, says);
  o = process_run(60, "$weft sim tiny.lua --calibration c.lua --set mesh.tp=2");
  ck_assert_msg(o.code == 0 && !strstr(o.err, "ranks of 1 thread"), "%s", o.err);
}
END_TEST

/* plan:sim() tells of what weft sim warns of. */
START_TEST(scripts_are_warned) {
  static const char script[] =
      "local weft = require 'weft'\n"
      "local plan = assert(weft.load 'tiny.lua')\n"
      "local r = plan:sim { calibration = 'c.lua' }\n"
      "for _, w in ipairs(r.warnings) do print(w.code, w.severity, w.message) end\n"
      "print(r)\n";
  scratch_put("tiny.lua", tiny_plan, strlen(tiny_plan));
  scratch_put("c.lua", MACHINE, strlen(MACHINE));
  scratch_put("s.lua", script, sizeof script - 1);
  Outcome o = process_run(60, "$weft lua s.lua");
  ck_assert_msg(o.code == 0, "%s", o.err);
  has(o.out, "calibration\twarning\tthe calibration is of weft 0, this is ");
  has(o.out, "\nwarning: the calibration is of weft 0, this is ");
  static const char gpu[] = OF_GPU("NVIDIA A100-SXM4-80GB");
  static const char of_gpu[] =
      "local weft = require 'weft'\n"
      "local plan = assert(weft.load('tiny.lua', { set = { cluster = 'h100-sxm' } }))\n"
      "print(plan:sim().warnings, plan:sim { calibration = 'c.lua' }.warnings[1].path)\n";
  scratch_put("c.lua", gpu, sizeof gpu - 1);
  scratch_put("s.lua", of_gpu, sizeof of_gpu - 1);
  o = process_run(60, "$weft lua s.lua");
  ck_assert_msg(strcmp(o.out, "nil\tcluster\n") == 0, "%s%s", o.out, o.err);
}
END_TEST

/* What lies between rows is in proportion to their rooflines, so all that these depend on
 * comes back: with the rows of a file the clock says what it says with those measured. */
START_TEST(rooflines_survive_their_file) {
  KernelWork w[] = {{.kind = WORK_PRODUCT,
                     .dtype = DT_BF16,
                     .m = 64,
                     .n = 64,
                     .k = 64,
                     .flops = 2 * 64 * 64 * 64,
                     .bytes = 1e6,
                     .added = 1e6},
                    {.kind = WORK_PRODUCT,
                     .dtype = DT_BF16,
                     .m = 512,
                     .n = 512,
                     .k = 512,
                     .flops = 2.0 * 512 * 512 * 512,
                     .bytes = 1e3,
                     .fp8 = true},
                    {.kind = WORK_MOVE, .dtype = DT_BF16, .bytes = 1e6, .between = 1e6}};
  int op[] = {OP_linear_dw, OP_linear_fp8, OP_add};
  Cluster k = {.gpu = "g", .bf16 = 1e9, .fp8 = 2e9, .f32 = 1e8, .hbm_bandwidth = 1e9};
  CostTable back, t = {.device = "cpu",
                       .way = "",
                       .machine = "m",
                       .comm = "local",
                       .version = "1",
                       .date = "d",
                       .threads = 1,
                       .f32 = 1e9,
                       .bf16 = 1e9,
                       .bandwidth = 1e9};
  for (int i = 0; i < LEN(w); i++)
    *VEC_PUSH(scratch_arena, t.kernel) = (KernelRow){op[i], "a shape", w[i], 1e-3};
  Text file = {0};
  Diags d = {.arena = scratch_arena};
  calibration_text(&t, &file);
  const char *path = scratch_put("c.lua", file.s, file.n);
  ck_assert_int_eq(calibration_read(path, scratch_arena, &back, &d, &scratch_error),
                   WEFT_OK);
  for (int i = 0; i < LEN(w); i++) {
    KernelWork twice = w[i];
    twice.m *= 2, twice.flops *= 2, twice.bytes *= 2, twice.added *= 2;
    Cost was = table_kernel_cost(&t, &k, op[i], "another", &twice);
    Cost is = table_kernel_cost(&back, &k, op[i], "another", &twice);
    ck_assert_int_eq(is.from, COST_INTERPOLATED);
    ck_assert_double_eq_tol(is.seconds, was.seconds, 1e-9);
  }
  text_free(&file);
}
END_TEST

/* Measured times of another GPU than the plan's are not used; the GPU is named by
 * nvidia-smi, here one of ours. */
START_TEST(a_calibration_of_another_gpu) {
  static const struct {
    const char *text, *gpu;
    bool used;
  } list[] = {{OF_GPU("NVIDIA A100-SXM4-80GB"), "h100-sxm", false},
              {OF_GPU("NVIDIA GB200"), "b200", false},
              {OF_GPU("NVIDIA H100 80GB HBM3"), "h100-sxm", true},
              {OF_GPU("NVIDIA H100 PCIe"), "h100", true},
              {OF_GPU("a board of ours"), "h100-sxm", true}};
  scratch_put("tiny.lua", tiny_plan, strlen(tiny_plan));
  for (int i = 0; i < LEN(list); i++) {
    scratch_put("c.lua", list[i].text, strlen(list[i].text));
    Outcome o = process_run(60, "$weft sim tiny.lua --calibration c.lua --set cluster=%s",
                            list[i].gpu);
    ck_assert_int_eq(o.code, 0);
    ck_assert_msg(!strstr(o.err, "nothing of it is used") == list[i].used, "%s: %s",
                  list[i].text, o.err);
    has(o.out, list[i].used ? "100.0 % by data sheet" : "all of it is by data sheets");
  }
  static const char smi[] = "#!/bin/sh\necho 'NVIDIA H100 80GB HBM3'\necho another\n";
  scratch_put("nvidia-smi", smi, strlen(smi));
  scratch_put("c.lua", list[0].text, strlen(list[0].text));
  Outcome o = process_run(60, "env PATH=\"$PWD:$PATH\" sh -c 'chmod +x nvidia-smi; "
                              "$weft doctor --calibration c.lua'");
  has(o.out, "machine, NVIDIA A100-SXM4-80GB and NVIDIA H100 80GB HBM3");
}
END_TEST

Suite *calibration_suite(void) {
  const TTest *all[] = {
      a_table_survives_its_file,       wrong_files_are_refused_with_their_line,
      a_full_disk_leaves_the_old_file, a_table_without_rows_says_so,
      threads_of_another_run_are_told, scripts_are_warned,
      rooflines_survive_their_file,    a_calibration_of_another_gpu};
  Suite *s = suite_create("calibration");
  TCase *c = tcase_create("files");
  for (int i = 0; i < LEN(all); i++) tcase_add_test(c, all[i]);
  tcase_set_timeout(c, 120);
  tcase_add_checked_fixture(c, scratch_setup, scratch_teardown);
  suite_add_tcase(s, c);
  return s;
}
