/* check_schedules.c - the schedules of the library: what they do action by action,
 * against PyTorch (tests/oracle/schedules.txt) and against published figures; which sizes
 * they take, and what their names and options may be. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/harness/schedule_fixture.h"
#include "vm/pipeline/schedule.h"
#include "vm/io/io.h"

static LangTest t;
static Arena *scratch; /* of one table */

static void setup(void) {
  lang_test_begin(&t);
  scratch = arena_new(NULL);
}

static void teardown(void) {
  arena_free(scratch);
  lang_test_end(&t);
}

static void drop_table(void) {
  arena_free(scratch);
  scratch = arena_new(NULL);
}

/* ---- order ---- */

/* Two ranks, four microbatches: short enough to be read. */
static const struct {
  const char *name;
  const char *rows;
} golden[] = {
    {"gpipe", "0F0,0F1,0F2,0F3,0B0,0B1,0B2,0B3\n"
              "1F0,1F1,1F2,1F3,1B0,1B1,1B2,1B3\n"},
    {"1f1b", "0F0,0F1,0B0,0F2,0B1,0F3,0B2,0B3\n"
             "1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3\n"},
    {"eager_1f1b", "0F0,0F1,0F2,0B0,0F3,0B1,0B2,0B3\n"
                   "1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3\n"},
    {"looped_bfs", "0F0,0F1,0F2,0F3,2F0,2F1,2F2,2F3,2B3,2B2,2B1,2B0,0B3,0B2,0B1,0B0\n"
                   "1F0,1F1,1F2,1F3,3F0,3F1,3F2,3F3,3B3,3B2,3B1,3B0,1B3,1B2,1B1,1B0\n"},
    {"interleaved_1f1b",
     "0F0,0F1,2F0,2F1,0F2,2B0,0F3,2B1,2F2,0B0,2F3,0B1,2B2,2B3,0B2,0B3\n"
     "1F0,1F1,3F0,3B0,3F1,3B1,1F2,1B0,1F3,1B1,3F2,3B2,3F3,3B3,1B2,1B3\n"},
    {"zero_bubble", "0F0,0F1,0I0,0W0,0F2,0I1,0W1,0F3,0I2,0W2,0I3,0W3\n"
                    "1F0,1I0,1F1,1I1,1W0,1F2,1I2,1W1,1F3,1I3,1W2,1W3\n"},
    {"zb_h2", "0F0,0F1,0F2,0F3,0I0,0W0,0I1,0W1,0I2,0W2,0I3,0W3\n"
              "1F0,1F1,1I0,1F2,1I1,1F3,1I2,1W0,1I3,1W1,1W2,1W3\n"},
    {"zbv", "0F0,0F1,0F2,3F0,3I0,3W0,3F1,3I1,3W1,0F3,0I0,0W0,3F2,3I2,3W2,0I1,0W1,3F3,3I3,"
            "3W3,0I2,0W2,0I3,0W3\n"
            "1F0,2F0,1F1,2F1,2I0,2W0,1F2,1I0,1W0,2F2,2I1,2W1,1F3,1I1,1W1,2F3,2I2,2W2,1I2,"
            "2I3,1I3,1W2,2W3,1W3\n"},
    {"dualpipe_v",
     "0F0,0F1,0F2,3F0,3I0,3W0,3F1,(0F3;3B1)OVERLAP_F_B,(3F2;0B0)OVERLAP_F_B,3B2,"
     "(3F3;0B1)OVERLAP_F_B,3B3,0I2,0W2,0I3,0W3\n"
     "1F0,2F0,1F1,2F1,1F2,2B0,(2F2;1B0)OVERLAP_F_B,(1F3;2B1)OVERLAP_F_B,"
     "(2F3;1B1)OVERLAP_F_B,2B2,1B2,2I3,1I3,2W3,1W3\n"},
};

START_TEST(does_what_it_says) {
  schedule_load(&t, arena_printf(t.arena, "'%s'", golden[_i].name), 0);
  Schedule s = schedule_table(&t, scratch, 2, 4);
  ck_assert_str_eq(schedule_text(scratch, &s, false), golden[_i].rows);
}
END_TEST

START_TEST(does_nothing_wrong_on_one_rank) {
  schedule_load(&t, "'1f1b'", 0);
  Schedule s = schedule_table(&t, scratch, 1, 2);
  ck_assert_str_eq(schedule_text(scratch, &s, false), "0F0,0B0,0F1,0B1\n");
}
END_TEST

/* Megatron's groups: with two chunks and groups of three, five microbatches pass as
 * 0 1 2 0 1 2 3 4 3 4. */
START_TEST(groups_of_a_given_size) {
  Diags d = {.arena = scratch};
  schedule_load(&t, "{ 'interleaved_1f1b', group = 3 }", 2);
  ck_assert(schedule_legal(&t, 2, 5, &d));
  Schedule s = schedule_table(&t, scratch, 2, 5);
  ck_assert_str_eq(schedule_text(scratch, &s, false),
                   "0F0,0F1,0F2,2F0,2F1,2F2,2B0,0F3,2B1,0F4,2B2,2F3,0B0,2F4,0B1,0B2,2B3,"
                   "2B4,0B3,0B4\n"
                   "1F0,1F1,1F2,3F0,3B0,3F1,3B1,3F2,3B2,1F3,1B0,1F4,1B1,3F3,1B2,3F4,3B3,"
                   "3B4,1B3,1B4\n");
}
END_TEST

/* ---- PyTorch ---- */

static uint32_t hash(const char *s) {
  uint64_t h = 0xcbf29ce484222325u;
  for (; *s; s++) h = (h ^ (unsigned char)*s) * 0x100000001b3u;
  return (uint32_t)(h ^ h >> 32);
}

/* One chunk per rank needs no equal groups, which PyTorch asks for all the same. */
static bool more_than_pytorch(const char *name, int virtual_stages) {
  return virtual_stages == 1 &&
         (strcmp(name, "interleaved_1f1b") == 0 || strcmp(name, "zero_bubble") == 0);
}

static void compare(const char *name, int ranks, int virtual_stages, int microbatches,
                    const char *want) {
  Diags d = {.arena = scratch};
  bool ok = schedule_legal(&t, ranks, microbatches, &d);
  if (strcmp(want, "-") == 0) {
    ck_assert_msg(ok == more_than_pytorch(name, virtual_stages),
                  "%s P=%d v=%d m=%d: PyTorch refuses it", name, ranks, virtual_stages,
                  microbatches);
    return;
  }
  ck_assert_msg(ok, "%s P=%d v=%d m=%d: %s", name, ranks, virtual_stages, microbatches,
                d.list.n ? d.list.at[0].summary : "?");
  Schedule s = schedule_table(&t, scratch, ranks, microbatches);
  ck_assert_int_eq(s.virtual_stages, virtual_stages);
  const char *got =
      arena_printf(scratch, "%08x%08x", hash(schedule_text(scratch, &s, false)),
                   hash(schedule_text(scratch, &s, true)));
  ck_assert_msg(strcmp(got, want) == 0, "%s P=%d v=%d m=%d: %s, PyTorch %s\n%s", name,
                ranks, virtual_stages, microbatches, got, want,
                schedule_text(scratch, &s, false));
}

START_TEST(equals_pytorch) {
  static const char *const names[] = {
      "gpipe",       "1f1b", "looped_bfs", "interleaved_1f1b",
      "zero_bubble", "zbv",  "dualpipe_v"};
  char *text, *save = NULL, *save2 = NULL;
  size_t n;
  int compared = 0, loaded = 0;
  weft_status st = file_read(NULL, WEFT_SOURCE_DIR "/tests/oracle/schedules.txt",
                             FILE_OWN_MAX, &text, &n, &t.e);
  ck_assert_msg(st == WEFT_OK, "%s", t.e.text);
  for (char *line = strtok_r(text, "\n", &save); line;
       line = strtok_r(NULL, "\n", &save)) {
    const char *name = strtok_r(line, " ", &save2);
    if (strcmp(name, names[_i]) != 0) continue;
    int ranks = atoi(strtok_r(NULL, " ", &save2));
    int chunks = atoi(strtok_r(NULL, " ", &save2));
    if (loaded != chunks)
      schedule_load(&t, arena_printf(t.arena, "'%s'", name), loaded = chunks);
    for (int m = 1; m <= 32; m++) {
      compare(name, ranks, chunks, m, strtok_r(NULL, " ", &save2));
      drop_table();
      compared++;
    }
  }
  mem_free(NULL, text, n + 1);
  ck_assert_int_ge(compared, 8 * 32);
}
END_TEST

/* ---- all sizes ---- */

static const char *const all[] = {
    "gpipe", "1f1b",       "interleaved_1f1b", "looped_bfs", "zero_bubble", "zb_h2",
    "zbv",   "dualpipe_v", "v_half",           "v_min",      "eager_1f1b"};

/* Where the virtual stages of a schedule are fixed. */
static int fixed(const char *name) {
  static const char *const one[] = {"gpipe", "1f1b", "zb_h2", "eager_1f1b"};
  static const char *const any[] = {"interleaved_1f1b", "looped_bfs", "zero_bubble"};
  for (int i = 0; i < LEN(one); i++)
    if (strcmp(name, one[i]) == 0) return 1;
  for (int i = 0; i < LEN(any); i++)
    if (strcmp(name, any[i]) == 0) return 0;
  return 2;
}

/* Every table that is not refused is complete and runs; nothing stays alive. */
START_TEST(what_is_accepted_runs) {
  const char *name = all[_i];
  int chunks = fixed(name), last = chunks ? chunks : 4, runs = 0;
  for (int v = chunks ? chunks : 1; v <= last; v++) {
    schedule_load(&t, arena_printf(t.arena, "'%s'", name), v);
    for (int ranks = 1; ranks <= 8; ranks++)
      for (int m = 1; m <= 32; m++, drop_table()) {
        Diags d = {.arena = scratch};
        if (!schedule_legal(&t, ranks, m, &d)) continue;
        Schedule s = schedule_table(&t, scratch, ranks, m);
        Diags wrong = {.arena = scratch};
        ck_assert_msg(schedule_check(&s, &wrong), "%s P=%d v=%d m=%d: %s", name, ranks, v,
                      m, wrong.list.at[0].summary);
        runs++;
      }
  }
  ck_assert_int_gt(runs, 150);
}
END_TEST

/* ---- idle and peak ---- */

/* Idle time of a rank over the whole step and within its own span, in forwards of all its
 * layers, and the most chunks alive on the first and the last rank; F = I = W. */
static const struct {
  const char *name;
  int virtual_stages;
  double idle[2], own[2];
  int first[2], last[2];
} figures[] = {
    {"gpipe", 1, {9, 21}, {9, 21}, {8, 16}, {8, 16}},
    {"1f1b", 1, {9, 21}, {9, 21}, {4, 8}, {1, 1}},
    {"eager_1f1b", 1, {9, 21}, {9, 21}, {7, 15}, {1, 1}},
    {"looped_bfs", 2, {4.5, 10.5}, {4.5, 10.5}, {16, 32}, {16, 32}},
    {"interleaved_1f1b", 2, {4.5, 10.5}, {4.5, 10.5}, {11, 23}, {5, 9}},
    {"zero_bubble", 1, {3, 7}, {3, 7}, {4, 8}, {4, 8}},
    {"zero_bubble", 2, {1.5, 3.5}, {1.5, 3.5}, {8, 16}, {8, 16}},
    {"zb_h2", 1, {3, 7}, {0, 0}, {8, 16}, {8, 16}},
    {"zbv", 2, {1.5, 3.5}, {0, 0}, {8, 16}, {8, 16}},
    {"dualpipe_v", 2, {1.5, 3.5}, {1.5, 3.5}, {9, 17}, {9, 17}},
    {"v_half", 2, {2.5, 8.5}, {2.5, 8.5}, {6, 10}, {6, 10}},
    {"v_min", 2, {5.5, 13.5}, {5.5, 13.5}, {4, 8}, {4, 8}},
};

START_TEST(idle_and_peak) {
  int v = figures[_i].virtual_stages;
  schedule_load(&t, arena_printf(t.arena, "'%s'", figures[_i].name), v);
  for (int k = 0; k < 2; k++) {
    int ranks = k ? 8 : 4, m = 2 * ranks, peak = 0;
    Schedule s = schedule_table(&t, scratch, ranks, m);
    Timeline line;
    ck_assert_int_eq(timeline_run(&s, TIMELINE_UNIT, scratch, &line, &t.e), WEFT_OK);
    int64_t idle = 0, own = 0;
    for (int r = 0; r < ranks; r++) {
      ck_assert_int_eq(line.busy[r], 3 * v * m);
      idle = MAX(idle, line.makespan - line.busy[r]);
      own = MAX(own, line.last[r] - line.first[r] - line.busy[r]);
      peak = MAX(peak, line.peak[r]);
    }
    ck_assert_double_eq((double)idle / v, figures[_i].idle[k]);
    ck_assert_double_eq((double)own / v, figures[_i].own[k]);
    ck_assert_int_eq(line.peak[0], figures[_i].first[k]);
    ck_assert_int_eq(line.peak[ranks - 1], figures[_i].last[k]);
    ck_assert_int_eq(peak, figures[_i].first[k]);
  }
}
END_TEST

/* The bound of v_half and v_min holds for every number of microbatches. */
START_TEST(memory_stays_bounded) {
  static const char *const names[] = {"'v_half'", "'v_min'"};
  for (int i = 0; i < LEN(names); i++) {
    schedule_load(&t, names[i], 2);
    for (int ranks = 1; ranks <= 12; ranks++)
      for (int m = 1; m <= 40; m += 3, drop_table()) {
        Schedule s = schedule_table(&t, scratch, ranks, m);
        Timeline line;
        int most = i ? (ranks + 4) / 3 : (ranks + 2) / 2;
        ck_assert_int_eq(timeline_run(&s, TIMELINE_UNIT, scratch, &line, &t.e), WEFT_OK);
        for (int r = 0; r < ranks; r++) ck_assert_int_le(line.peak[r], 2 * most);
      }
  }
}
END_TEST

/* A table for many ranks is built within the limit of instructions of a call. */
START_TEST(large_tables) {
  static const char *const names[] = {"'v_half'", "'v_min'", "'zbv'",
                                      "'interleaved_1f1b'"};
  for (int i = 0; i < LEN(names); i++) {
    schedule_load(&t, names[i], 2);
    Schedule s = schedule_table(&t, scratch, 64, 512);
    ck_assert_int_ge(s.n[63], 2 * 512);
    drop_table();
  }
}
END_TEST

Suite *schedules_suite(void) {
  Suite *s = suite_create("schedules");
  const struct {
    const char *name;
    const TTest *test;
    int n;
  } tests[] = {
      {"order", does_what_it_says, LEN(golden)},
      {"one rank", does_nothing_wrong_on_one_rank, 1},
      {"groups", groups_of_a_given_size, 1},
      {"PyTorch", equals_pytorch, 7},
      {"all sizes", what_is_accepted_runs, LEN(all)},
      {"figures", idle_and_peak, LEN(figures)},
      {"memory", memory_stays_bounded, 1},
      {"large", large_tables, 1},
  };
  for (int i = 0; i < LEN(tests); i++) {
    TCase *c = tcase_create(tests[i].name);
    tcase_set_timeout(c, 120);
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_loop_test(c, tests[i].test, 0, tests[i].n);
    suite_add_tcase(s, c);
  }
  return s;
}
