/* check_schedule_csv.c - weft.schedule_csv: tables that come back as they were written,
 * with and without transfers, file_of_pytorch, and what is wrong with a file, at its line
 * and cell. */
#include <check.h>
#include <stdlib.h>

#include "tests/harness/process.h"
#include "tests/harness/schedule_fixture.h"

static LangTest t;

static void setup(void) { lang_test_begin(&t); }

static void teardown(void) { lang_test_end(&t); }

#define MODEL                                                                            \
  "weft.model { 'llama', num_hidden_layers = 16, hidden_size = 16, "                     \
  "num_attention_heads = 4, num_key_value_heads = 2, intermediate_size = 24, "           \
  "vocab_size = 128 }"

/* A plan of so many ranks and microbatches with this schedule. */
static const char *plan(const char *schedule, int ranks, int microbatches) {
  return arena_printf(t.arena,
                      HEAD "return weft.plan {\n  model = " MODEL ",\n"
                           "  mesh = { pp = %d },\n"
                           "  batch = { global = %d, seq = 16 },\n  schedule = %s,\n}\n",
                      ranks, microbatches, schedule);
}

static Schedule table(const char *schedule, int ranks, int microbatches) {
  lang_test_good(&t, plan(schedule, ranks, microbatches));
  return schedule_table(&t, t.arena, ranks, microbatches);
}

/* ---- there and back ---- */

static void same(const Schedule *a, const Schedule *b) {
  ck_assert_int_eq(a->ranks, b->ranks);
  ck_assert_int_eq(a->virtual_stages, b->virtual_stages);
  ck_assert_int_eq(a->microbatches, b->microbatches);
  if (a->ranks > 1) ck_assert_int_eq(a->v_placement, b->v_placement);
  ck_assert_str_eq(schedule_text(t.arena, a, true), schedule_text(t.arena, b, true));
}

static void round_trip(const char *schedule, int ranks, int microbatches) {
  Schedule s = table(schedule, ranks, microbatches);
  for (int comms = 0; comms < 2; comms++) {
    lang_test_file("s.csv", schedule_text(t.arena, &s, comms));
    Schedule back = table("weft.schedule_csv 's.csv'", ranks, microbatches);
    ck_assert_int_eq(plan_virtual(lang_plan(t.lp)), s.virtual_stages);
    same(&s, &back);
  }
}

START_TEST(comes_back) {
  static const char *const names[] = {"'gpipe'",  "'1f1b'",  "'vpp'",       "'bfs'",
                                      "'zb_h1'",  "'zb_h2'", "'zbv'",       "'dualpipev'",
                                      "'v_half'", "'v_min'", "'eager_1f1b'"};
  for (int i = 0; i < LEN(names); i++) {
    round_trip(names[i], 4, 8);
    round_trip(names[i], 1, 2);
  }
}
END_TEST

/* What one rank emits of everything. */
#define EVERYTHING                                                                       \
  "{ function(s)\n"                                                                      \
  "  s:unshard(0) s:unshard(1)\n"                                                        \
  "  for mb = 0, 3 do s:F(0, mb) s:F(1, mb) end\n"                                       \
  "  for mb = 0, 2 do s:I(1, mb) s:W(1, mb) s:B(0, mb) end\n"                            \
  "  s:B(1, 3) s:reduce_grad(1) s:reshard(1) s:B(0, 3) s:reduce_grad(0) s:reshard(0)\n"  \
  "end, placement = 'v' }"

START_TEST(whole_vocabulary) {
  Schedule s = table(EVERYTHING, 2, 4);
  ck_assert_str_eq(
      schedule_text(t.arena, &s, false),
      "0UNSHARD,3UNSHARD,0F0,3F0,0F1,3F1,0F2,3F2,0F3,3F3,3I0,3W0,0B0,3I1,3W1,0B1,3I2,3W2,"
      "0B2,3B3,3REDUCE_GRAD,3RESHARD,0B3,0REDUCE_GRAD,0RESHARD\n"
      "1UNSHARD,2UNSHARD,1F0,2F0,1F1,2F1,1F2,2F2,1F3,2F3,2I0,2W0,1B0,2I1,2W1,1B1,2I2,2W2,"
      "1B2,2B3,2REDUCE_GRAD,2RESHARD,1B3,1REDUCE_GRAD,1RESHARD\n");
  round_trip(EVERYTHING, 2, 4);
  round_trip("'dualpipev'", 2, 5);
}
END_TEST

/* Transfers as PyTorch places them: no rank hands over to itself. */
START_TEST(transfers) {
  Schedule s = table("'zbv'", 2, 1);
  ck_assert_str_eq(schedule_text(t.arena, &s, true),
                   "0F0,0SEND_F0,3RECV_F0,3F0,3I0,3SEND_B0,3W0,0RECV_B0,0I0,0W0\n"
                   "1RECV_F0,1F0,2F0,2SEND_F0,2RECV_B0,2I0,2W0,1I0,1SEND_B0,1W0\n");
}
END_TEST

/* A file of PyTorch's, of which the calculations are those of the same schedule here. */
START_TEST(file_of_pytorch) {
  Outcome o = process_run(20, "cp " WEFT_SOURCE_DIR "/tests/oracle/lowered.csv .");
  ck_assert_int_eq(o.code, 0);
  Schedule want = table("'dualpipev'", 2, 5);
  Schedule got = table("weft.schedule_csv 'lowered.csv'", 2, 5);
  ck_assert(got.v_placement);
  for (int r = 0; r < 2; r++) {
    int n = 0, others = 0;
    for (int i = 0; i < got.n[r]; i++) {
      char a[ACTION_TEXT], b[ACTION_TEXT];
      others += got.list[r][i].mb < 0;
      if (got.list[r][i].mb < 0) continue;
      ck_assert_int_lt(n, want.n[r]);
      schedule_action_text(&got, r, &got.list[r][i], a);
      schedule_action_text(&want, r, &want.list[r][n++], b);
      ck_assert_str_eq(a, b);
    }
    ck_assert_int_eq(n, want.n[r]);
    ck_assert_int_eq(others, 6); /* each chunk: UNSHARD, REDUCE_GRAD, RESHARD */
  }
}
END_TEST

/* Idle cells, blanks, other line ends, and what newer versions of PyTorch write. */
START_TEST(tolerates) {
  lang_test_file("s.csv", ",0F0, 0SEND_F0,0WAIT_SEND_F0,,,0F1,0SEND_F1 ,0RECV_B0,0B0,"
                          "0RECV_B1,0B1,0REDUCE_GRAD,0WAIT_REDUCE_GRAD\r\n,"
                          ",1RECV_F0,1F0,1RECV_F1,( 1F1 ; 1B0 )OVERLAP_F_B,1SEND_B0,1B1,"
                          "1SEND_B1,\r\n\r\n");
  Schedule s = table("weft.schedule_csv 's.csv'", 2, 2);
  ck_assert_str_eq(schedule_text(t.arena, &s, false), "0F0,0F1,0B0,0B1,0REDUCE_GRAD\n"
                                                      "1F0,(1F1;1B0)OVERLAP_F_B,1B1\n");
  ck_assert_int_eq(s.list[1][0].line, 2);
  ck_assert_int_eq(s.list[1][0].cell, 4);
  ck_assert_ptr_nonnull(strstr(s.file, "s.csv"));
}
END_TEST

/* What a spreadsheet makes of a table: a mark at the beginning, quotes around cells. */
START_TEST(tolerates_spreadsheets) {
  lang_test_file("s.csv", "\xef\xbb\xbf\"0F0\",\" 0B0\",\"\"\r\n \"1F0\" ,1B0\r\n");
  Schedule s = table("weft.schedule_csv 's.csv'", 2, 1);
  ck_assert_str_eq(schedule_text(t.arena, &s, false), "0F0,0B0\n1F0,1B0\n");
}
END_TEST

/* The file is below the plan's folder, and may be in a folder there. */
START_TEST(plan_with_a_file_runs) {
  lang_test_file("plan.lua", plan("weft.schedule_csv 's.csv'", 2, 4));
  lang_test_file("named.lua", plan("'zbv'", 2, 4));
  Outcome o = process_run(20, "$weft show named.lua schedule --csv --comms");
  ck_assert_int_eq(o.code, 0);
  lang_test_file("s.csv", o.out);
  o = process_run(60, "$weft verify plan.lua");
  ck_assert_msg(o.code == 0, "%s%s", o.out, o.err);
  ck_assert_msg(strstr(o.out, "the same"), "%s", o.out);
  o = process_run(20, "$weft show plan.lua schedule --comms");
  ck_assert_int_eq(o.code, 2);
  ck_assert_str_eq(o.err, "weft: --comms belongs to --csv\n");
}
END_TEST

/* ---- what is wrong ---- */

#define ONE "1 error\n"

static const struct {
  const char *csv, *report;
} wrong[] = {
    {"", "s.csv:1: error: plan.schedule: there is no action in the file\n" ONE},
    {",,\n,\n", "s.csv:1: error: plan.schedule: there is no action in the file\n" ONE},
    {"0F0,0X1,0B0\n1F0,1B\n", "s.csv:1: error: plan.schedule: cell 2: \"0X1\" is not an "
                              "action such as 2F0, 1UNSHARD "
                              "or (0F1;3B0)OVERLAP_F_B\n"
                              "s.csv:2: error: plan.schedule: cell 2: \"1B\" is not an "
                              "action such as 2F0, 1UNSHARD "
                              "or (0F1;3B0)OVERLAP_F_B\n2 errors\n"},
    {"0F0,(0B0)OVERLAP_F_B\n1F0,(1B0;1F1)OVERLAP_F_B\n",
     "s.csv:1: error: plan.schedule: cell 2: \"(0B0)OVERLAP_F_B\" is not an action such "
     "as "
     "2F0, 1UNSHARD or (0F1;3B0)OVERLAP_F_B\n"
     "s.csv:2: error: plan.schedule: cell 2: \"(1B0;1F1)OVERLAP_F_B\" is not an action "
     "such "
     "as 2F0, 1UNSHARD or (0F1;3B0)OVERLAP_F_B\n2 errors\n"},
    {"0F0,0UNSHARD1\n1F0\n",
     "s.csv:1: error: plan.schedule: cell 2: \"0UNSHARD1\" is not an action such as 2F0, "
     "1UNSHARD or (0F1;3B0)OVERLAP_F_B\n" ONE},
    {"99999999999999999999F0\n0F99999999\n",
     "s.csv:1: error: plan.schedule: cell 1: \"99999999999999999999F0\" is not an action "
     "such as 2F0, 1UNSHARD or (0F1;3B0)OVERLAP_F_B\n"
     "s.csv:2: error: plan.schedule: cell 1: \"0F99999999\" is not an action such as "
     "2F0, "
     "1UNSHARD or (0F1;3B0)OVERLAP_F_B\n2 errors\n"},
    {"0F0,0B0\n1F0,1B0,0B1\n",
     "s.csv:2: error: plan.schedule: cell 3: stage 0 is on rank 0 (row 1) already\n" ONE},
    {"0F0,0B0\n1F0,2REDUCE_GRAD,1B0\n",
     "s.csv:1: error: plan.schedule: stage 2 has no forward or backward\n" ONE},
    {"0F0,0B0\n1F0,0REDUCE_GRAD,1B0\n",
     "s.csv:2: error: plan.schedule: cell 2: stage 0 is on rank 0 (row 1)\n" ONE},
    {"0F0,0B0,2F0,2B0\n1F0,1B0\n",
     "s.csv:1: error: plan.schedule: 3 stages cannot be dealt to 2 ranks (rows)\n" ONE},
    {"1F0,1B0\n0F0,0B0\n", "s.csv:2: error: plan.schedule: stage 0 is on rank 1: with 2 "
                           "stages on 2 ranks a loop "
                           "has it on rank 0\n" ONE},
    {"0F0,1F0,1B0,0B0\n2F0,3F0,3B0,2B0\n", "s.csv:1: error: plan.schedule: stage 1 is on "
                                           "rank 0: with 4 stages on 2 ranks a loop "
                                           "has it on rank 1, a V on rank 1\n" ONE},
    /* transfers */
    {"0F0,0SEND_F0,0RECV_B0,0B0\n1F0,1B0,1SEND_B0\n",
     "s.csv:2: error: plan.schedule: cell 1: 1RECV_F0 should come before this\n" ONE},
    {"0SEND_F0,0F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n",
     "s.csv:1: error: plan.schedule: cell 1: 0SEND_F0 comes too early\n" ONE},
    {"0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1RECV_F0,1F0,1B0,1SEND_B0\n",
     "s.csv:2: error: plan.schedule: cell 2: 1RECV_F0 is there twice\n" ONE},
    {"0F0,0SEND_F0,0B0,0RECV_B0\n1RECV_F0,1F0,1B0\n",
     "s.csv:1: error: plan.schedule: cell 3: 0RECV_B0 should come before this\n"
     "s.csv:1: error: plan.schedule: cell 4: 0RECV_B0 comes too late\n"
     "s.csv:2: error: plan.schedule: 1SEND_B0 is missing\n3 errors\n"},
    {"0F0,0SEND_F0,0RECV_B0,0B0,0SEND_B0\n1RECV_F0,1F0,1B0,1SEND_B0,0SEND_F0\n",
     "s.csv:1: error: plan.schedule: cell 5: 0SEND_B0 has no other rank\n"
     "s.csv:2: error: plan.schedule: cell 5: 0SEND_F0 is on the rank of another stage\n"
     "2 errors\n"},
    {"0F0,0WAIT_SEND_F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n",
     "s.csv:1: error: plan.schedule: cell 2: 0WAIT_SEND_F0 comes too early\n" ONE},
    /* sizes */
    {"0F0,0B0\n1F0,1B0\n2F0,2B0\n", "plan.lua:6: error: plan.schedule: s.csv is for 3 "
                                    "pipeline ranks and 1 microbatch, "
                                    "got 2 and 2\n" ONE},
    {"0F0,0B0\n1F0,1B0\n",
     "plan.lua:6: error: plan.schedule: s.csv is for 2 pipeline ranks and 1 "
     "microbatch, got 2 and 2 (nearest: 1 microbatch (batch.global = 1))\n" ONE},
};

START_TEST(wrong_files) {
  lang_test_file("s.csv", wrong[_i].csv);
  lang_test_bad(&t, plan("weft.schedule_csv 's.csv'", 2, 2), wrong[_i].report);
}
END_TEST

START_TEST(only_the_first_errors) {
  Text csv = {0};
  for (int i = 0; i < 1000; i++) text_add(&csv, "what,");
  lang_test_file("s.csv", csv.s);
  text_free(&csv);
  ck_assert_int_eq(lang_test_text(&t, plan("weft.schedule_csv 's.csv'", 2, 2)),
                   WEFT_EPLAN);
  ck_assert_int_eq(t.d.errors, 9);
  ck_assert_ptr_nonnull(
      strstr(lang_test_report(&t, scratch_dir),
             "s.csv: error: plan.schedule: 992 more errors in the file"));
}
END_TEST

START_TEST(wrong_calls) {
  static const struct {
    const char *call, *report;
  } calls[] = {
      {"weft.schedule_csv 'no.csv'", "plan.lua:6: error: plan.schedule: there is no file "
                                     "no.csv below the plan's folder\n"},
      {"weft.schedule_csv '../s.csv'",
       "plan.lua:6: error: plan.schedule: there is no file ../s.csv below the plan's "
       "folder\n"},
      {"weft.schedule_csv '/etc/passwd'",
       "plan.lua:6: error: plan.schedule: there is no file /etc/passwd below the plan's "
       "folder\n"},
      {"weft.schedule_csv 'd'",
       "plan.lua:6: error: plan.schedule: d: is a directory, a file is expected\n"},
      {"weft.schedule_csv(7)", "plan.lua:6: error: plan.schedule: weft.schedule_csv "
                               "takes a string or a table, got "
                               "number\n"},
      {"weft.schedule_csv {}",
       "plan.lua:6: error: plan.schedule: weft.schedule_csv takes the name of a file\n"},
      {"weft.schedule_csv { 's.csv', group = 2 }",
       "plan.lua:6: error: plan.schedule.group: this schedule has no options\n"},
  };
  lang_test_file("s.csv", "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n");
  ck_assert_int_eq(system(arena_printf(t.arena, "mkdir %s", scratch_path("d"))), 0);
  for (int i = 0; i < LEN(calls); i++)
    lang_test_bad(&t, plan(calls[i].call, 2, 2),
                  arena_printf(t.arena, "%s" ONE, calls[i].report));
}
END_TEST

START_TEST(not_a_text) {
  scratch_put("s.csv", "0F0,0B0\n\0001F0", 12);
  lang_test_bad(&t, plan("weft.schedule_csv 's.csv'", 2, 2),
                "plan.lua:6: error: plan.schedule: s.csv: is not a string\n" ONE);
}
END_TEST

/* A table that reads well and cannot run: the error names lines of the file. */
START_TEST(cannot_run) {
  lang_test_file("plan.lua", plan("weft.schedule_csv 's.csv'", 2, 2));
  lang_test_file("s.csv", "0F0,0F1,0B0,0B1\n1F1,1F0,1B1\n");
  Outcome o = process_run(20, "$weft check plan.lua");
  ck_assert_int_eq(o.code, 1);
  ck_assert_msg(strstr(o.err, "rank 1") && strstr(o.err, "missing"), "%s", o.err);
  lang_test_file("s.csv", "0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n");
  o = process_run(20, "$weft check plan.lua");
  ck_assert_int_eq(o.code, 1);
  ck_assert_msg(
      strstr(o.err, "s.csv:1: error: plan.schedule: deadlock") &&
          strstr(o.err, "\n  rank 1, step 0 (line 2, cell 1): F of microbatch 1"),
      "%s", o.err);
  /* Cells are not steps: a table may be idle and have transfers. */
  lang_test_file("s.csv", "0F0,0SEND_F0,0F1,0SEND_F1,,0RECV_B0,0B0,0RECV_B1,0B1,0B1\n"
                          "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n");
  o = process_run(20, "$weft check plan.lua");
  ck_assert_int_eq(o.code, 1);
  ck_assert_msg(strstr(o.err,
                       "s.csv:1: error: plan.schedule: rank 0, step 4 (cell 10): B of "
                       "microbatch 1 is emitted twice, first at step 3 (line 1, "
                       "cell 9) [schedule]\n"),
                "%s", o.err);
}
END_TEST

/* ---- memory ---- */

/* An allocator that fails once, at any request: nothing is lost, and the next one works.
 */
START_TEST(out_of_memory) {
  weft_status st = WEFT_ENOMEM;
  lang_test_file("s.csv", "0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n");
  lang_test_file("plan.lua", plan("weft.schedule_csv 's.csv'", 2, 1));
  int n = 0;
  for (; st != WEFT_OK; n += 3) {
    ScratchMeter meter = {.left = n};
    weft_alloc alloc = {scratch_alloc, &meter};
    LangOptions o = {.alloc = &alloc};
    LangPlan *lp = NULL;
    Arena *arena = arena_new(&alloc);
    weft_error e;
    err_clear(&e);
    st = WEFT_ENOMEM;
    if (arena) {
      Diags d = {.arena = arena};
      st = lang_load(&o, scratch_path("plan.lua"), &lp, &d, &e);
      ck_assert_msg(st == WEFT_OK || st == WEFT_ENOMEM, "request %d: %d %s", n, st,
                    e.text);
    }
    lang_free(lp);
    arena_free(arena);
    ck_assert_msg(meter.held == 0, "request %d: %lld bytes are lost", n,
                  (long long)meter.held);
    ck_assert_int_lt(n, 100000);
  }
  ck_assert_int_gt(n, 100);
}
END_TEST

Suite *schedule_csv_suite(void) {
  Suite *s = suite_create("schedule_csv");
  TCase *c = tcase_create("tables");
  tcase_set_timeout(c, 120);
  tcase_add_checked_fixture(c, setup, teardown);
  const TTest *tests[] = {comes_back,
                          whole_vocabulary,
                          transfers,
                          file_of_pytorch,
                          tolerates,
                          tolerates_spreadsheets,
                          plan_with_a_file_runs,
                          only_the_first_errors,
                          wrong_calls,
                          not_a_text,
                          cannot_run,
                          out_of_memory};
  for (int i = 0; i < LEN(tests); i++) tcase_add_test(c, tests[i]);
  tcase_add_loop_test(c, wrong_files, 0, LEN(wrong));
  suite_add_tcase(s, c);
  return s;
}
