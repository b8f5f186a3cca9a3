/* check_schedules.c - the schedules of the library: what they do action by action,
 * against PyTorch (tests/oracle/schedules.txt) and against published figures; which sizes
 * they take, and what their names and options may be. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "bindings/schedule_csv.h"
#include "lang_fixture.h"
#include "vm/compile/timeline.h"
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

/* A plan with this schedule, which any mesh and batch below may be tried on. */
static void load(const char *schedule, int virtual_stages) {
  const char *plan = arena_printf(
      t.arena,
      HEAD
      "return weft.plan { model = weft.model { 'llama-tiny', num_hidden_layers = 64 },\n"
      "  mesh = { pp = 2 }, pp_plan = { virtual = %s },\n"
      "  batch = { global = 60, seq = 16 }, schedule = %s }",
      virtual_stages ? arena_printf(t.arena, "%d", virtual_stages) : "nil", schedule);
  lang_test_good(&t, plan);
}

/* False if the schedule refuses these sizes; `d` says why. */
static bool legal(int ranks, int microbatches, Diags *d) {
  Plan p = *lang_plan(t.lp);
  Mesh m;
  p.mesh.pp = ranks;
  p.batch.global = microbatches;
  *d = (Diags){.arena = scratch};
  ck_assert(mesh_resolve(&p.mesh, 0, &m, d));
  return lang_check_mesh(t.lp, &p, &m, d, &t.e) == WEFT_OK;
}

static Schedule table(int ranks, int microbatches) {
  Schedule s;
  Mesh m;
  Diags d = {.arena = scratch};
  ck_assert(mesh_resolve(&(MeshSpec){.pp = ranks}, 0, &m, &d));
  weft_status st = lang_schedule(t.lp, &m, microbatches, &s, &d, &t.e);
  ck_assert_msg(st == WEFT_OK, "%s, P=%d m=%d: %s", lang_plan(t.lp)->schedule, ranks,
                microbatches, d.list.n ? d.list.at[0].summary : t.e.text);
  return s;
}

static void drop_table(void) {
  arena_free(scratch);
  scratch = arena_new(NULL);
}

static const char *csv(const Schedule *s, bool comms) {
  Text text = {0};
  schedule_csv_write(s, comms, &text);
  const char *copy = arena_str(scratch, text.s);
  text_free(&text);
  return copy;
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
  load(arena_printf(t.arena, "'%s'", golden[_i].name), 0);
  Schedule s = table(2, 4);
  ck_assert_str_eq(csv(&s, false), golden[_i].rows);
}
END_TEST

START_TEST(does_nothing_wrong_on_one_rank) {
  load("'1f1b'", 0);
  Schedule s = table(1, 2);
  ck_assert_str_eq(csv(&s, false), "0F0,0B0,0F1,0B1\n");
}
END_TEST

/* Megatron's groups: with two chunks and groups of three, five microbatches pass as
 * 0 1 2 0 1 2 3 4 3 4. */
START_TEST(groups_of_a_given_size) {
  Diags d;
  load("{ 'interleaved_1f1b', group = 3 }", 2);
  ck_assert(legal(2, 5, &d));
  Schedule s = table(2, 5);
  ck_assert_str_eq(csv(&s, false),
                   "0F0,0F1,0F2,2F0,2F1,2F2,2B0,0F3,2B1,0F4,2B2,2F3,0B0,2F4,0B1,0B2,2B3,"
                   "2B4,0B3,0B4\n"
                   "1F0,1F1,1F2,3F0,3B0,3F1,3B1,3F2,3B2,1F3,1B0,1F4,1B1,3F3,1B2,3F4,3B3,"
                   "3B4,1B3,1B4\n");
}
END_TEST

/* ---- PyTorch ---- */

static uint32_t hash(const char *s) {
  uint64_t h = 0xcbf29ce484222325u;
  for (; *s; s++)
    h = (h ^ (unsigned char)*s) * 0x100000001b3u;
  return (uint32_t)(h ^ h >> 32);
}

/* One chunk per rank needs no equal groups, which PyTorch asks for all the same. */
static bool more_than_pytorch(const char *name, int virtual_stages) {
  return virtual_stages == 1 &&
         (strcmp(name, "interleaved_1f1b") == 0 || strcmp(name, "zero_bubble") == 0);
}

static void compare(const char *name, int ranks, int virtual_stages, int microbatches,
                    const char *want) {
  Diags d;
  bool ok = legal(ranks, microbatches, &d);
  if (strcmp(want, "-") == 0) {
    ck_assert_msg(ok == more_than_pytorch(name, virtual_stages),
                  "%s P=%d v=%d m=%d: PyTorch refuses it", name, ranks, virtual_stages,
                  microbatches);
    return;
  }
  ck_assert_msg(ok, "%s P=%d v=%d m=%d: %s", name, ranks, virtual_stages, microbatches,
                d.list.n ? d.list.at[0].summary : "?");
  Schedule s = table(ranks, microbatches);
  ck_assert_int_eq(s.virtual_stages, virtual_stages);
  const char *got =
      arena_printf(scratch, "%08x%08x", hash(csv(&s, false)), hash(csv(&s, true)));
  ck_assert_msg(strcmp(got, want) == 0, "%s P=%d v=%d m=%d: %s, PyTorch %s\n%s", name,
                ranks, virtual_stages, microbatches, got, want, csv(&s, false));
}

START_TEST(equals_pytorch) {
  static const char *const names[] = {
      "gpipe",       "1f1b", "looped_bfs", "interleaved_1f1b",
      "zero_bubble", "zbv",  "dualpipe_v"};
  char *text, *save = NULL, *save2 = NULL;
  size_t n;
  int compared = 0, loaded = 0;
  weft_status st =
      file_read(NULL, WEFT_SOURCE_DIR "/tests/oracle/schedules.txt", &text, &n, &t.e);
  ck_assert_msg(st == WEFT_OK, "%s", t.e.text);
  for (char *line = strtok_r(text, "\n", &save); line;
       line = strtok_r(NULL, "\n", &save)) {
    const char *name = strtok_r(line, " ", &save2);
    if (strcmp(name, names[_i]) != 0) continue;
    int ranks = atoi(strtok_r(NULL, " ", &save2));
    int chunks = atoi(strtok_r(NULL, " ", &save2));
    if (loaded != chunks) load(arena_printf(t.arena, "'%s'", name), loaded = chunks);
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
    load(arena_printf(t.arena, "'%s'", name), v);
    for (int ranks = 1; ranks <= 8; ranks++)
      for (int m = 1; m <= 32; m++, drop_table()) {
        Diags d;
        if (!legal(ranks, m, &d)) continue;
        Schedule s = table(ranks, m);
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
  load(arena_printf(t.arena, "'%s'", figures[_i].name), v);
  for (int k = 0; k < 2; k++) {
    int ranks = k ? 8 : 4, m = 2 * ranks, peak = 0;
    Schedule s = table(ranks, m);
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
    load(names[i], 2);
    for (int ranks = 1; ranks <= 12; ranks++)
      for (int m = 1; m <= 40; m += 3, drop_table()) {
        Schedule s = table(ranks, m);
        Timeline line;
        int most = i ? (ranks + 4) / 3 : (ranks + 2) / 2;
        ck_assert_int_eq(timeline_run(&s, TIMELINE_UNIT, scratch, &line, &t.e), WEFT_OK);
        for (int r = 0; r < ranks; r++)
          ck_assert_int_le(line.peak[r], 2 * most);
      }
  }
}
END_TEST

/* A table for many ranks is built within the limit of instructions of a call. */
START_TEST(large_tables) {
  static const char *const names[] = {"'v_half'", "'v_min'", "'zbv'",
                                      "'interleaved_1f1b'"};
  for (int i = 0; i < LEN(names); i++) {
    load(names[i], 2);
    Schedule s = table(64, 512);
    ck_assert_int_ge(s.n[63], 2 * 512);
    drop_table();
  }
}
END_TEST

/* ---- names and options ---- */

static const struct {
  const char *written, *name;
  int virtual_stages;
} names[] = {
    {"GPipe", "gpipe", 1},
    {"AFAB", "gpipe", 1},
    {"1F1B", "1f1b", 1},
    {"TrainSchedule", "1f1b", 1},
    {"Interleaved1F1B", "interleaved_1f1b", 2},
    {"interleaved", "interleaved_1f1b", 2},
    {"dfs", "interleaved_1f1b", 2},
    {"VPP", "interleaved_1f1b", 2},
    {"LoopedBFS", "looped_bfs", 2},
    {"bfs", "looped_bfs", 2},
    {"InterleavedZeroBubble", "zero_bubble", 1},
    {"zero_bubble", "zero_bubble", 1},
    {"ZB-H1", "zero_bubble", 1},
    {"ZB1P", "zero_bubble", 1},
    {"ZB-H2", "zb_h2", 1},
    {"zb2p", "zb_h2", 1},
    {"ZBVZeroBubble", "zbv", 2},
    {"v_schedule", "zbv", 2},
    {"ZB-V", "zbv", 2},
    {"DualPipeV", "dualpipe_v", 2},
    {"V-Half", "v_half", 2},
    {"vmin", "v_min", 2},
    {"Eager1F1B", "eager_1f1b", 1},
};

START_TEST(all_names) {
  for (int i = 0; i < LEN(names); i++) {
    load(arena_printf(t.arena, "'%s'", names[i].written), 0);
    ck_assert_str_eq(lang_plan(t.lp)->schedule, names[i].name);
    ck_assert_int_eq(plan_virtual(lang_plan(t.lp)), names[i].virtual_stages);
    ck_assert_int_eq(table(2, 8).virtual_stages, names[i].virtual_stages);
  }
}
END_TEST

/* The report of a plan on line 5 of which stands the schedule. */
static void refused(const char *fields, const char *report) {
  lang_test_bad(&t,
                arena_printf(t.arena,
                             HEAD
                             "return weft.plan {\n"
                             "  model = weft.model { 'llama-tiny', num_hidden_layers = "
                             "64 },\n  batch = { global = 10, seq = 16, micro = 2 },\n"
                             "  %s\n}",
                             fields),
                report);
}

START_TEST(wrong_names_and_options) {
  refused("schedule = 'interleved'",
          "plan.lua:5: error: plan.schedule: unknown value \"interleved\" (did you mean "
          "\"interleaved\"?)\n1 error\n");
  refused("schedule = 'dualpipe'",
          "plan.lua:5: error: plan.schedule: \"dualpipe\" is not built yet\n1 error\n");
  refused("schedule = 7",
          "plan.lua:5: error: plan.schedule: expected a name, a function or "
          "weft.schedule_csv, got number 7\n1 error\n");
  refused(
      "schedule = { 'dfs', gruop = 2 }",
      "plan.lua:5: error: plan.schedule.gruop: unknown field (did you mean \"group\"?)\n"
      "1 error\n");
  refused(
      "schedule = { 'dfs', group = 'two' }",
      "plan.lua:5: error: plan.schedule.group: expected an integer of at least 1, got "
      "text \"two\"\n1 error\n");
  refused("schedule = { 'zbv', group = 2 }",
          "plan.lua:5: error: plan.schedule.group: this schedule has no options\n"
          "1 error\n");
  refused("schedule = { function(s) end, placment = 'v' }",
          "plan.lua:5: error: plan.schedule.placment: unknown field (did you mean "
          "\"placement\"?)\n1 error\n");
  refused(
      "schedule = { function(s) end, placement = 'w' }",
      "plan.lua:5: error: plan.schedule.placement: unknown value \"w\" (one of: loop, v)"
      "\n1 error\n");
}
END_TEST

/* Megatron's name of the option is one of its names. */
START_TEST(options_have_aliases) {
  load("{ 'vpp', microbatch_group_size_per_vp_stage = 4 }", 2);
  Schedule s = table(2, 8);
  const char *with_alias = csv(&s, false);
  load("{ 'vpp', group = 4 }", 2);
  s = table(2, 8);
  ck_assert_str_eq(csv(&s, false), with_alias);
  load("'vpp'", 2);
  s = table(2, 8);
  ck_assert_str_ne(csv(&s, false), with_alias);
}
END_TEST

/* ---- sizes that do not exist ---- */

START_TEST(says_which_sizes_are_near) {
  refused("mesh = { pp = 8 }, schedule = '1f1b'",
          "plan.lua:5: error: plan.schedule: 1f1b needs at least as many microbatches as "
          "pipeline ranks, got 5 for 8 (nearest: 8 microbatches (batch.global = 16))\n"
          "1 error\n");
  refused(
      "mesh = { pp = 2 }, schedule = 'vpp'",
      "plan.lua:5: error: plan.schedule: interleaved_1f1b makes 2 rounds of 2 "
      "microbatches on 2 pipeline ranks, but 5 is not a multiple of 2 (nearest: 4 or 6 "
      "microbatches (batch.global = 8 or 12))\n1 error\n");
  refused(
      "mesh = { pp = 2 }, schedule = 'zb1p', pp_plan = { virtual = 3 }",
      "plan.lua:5: error: plan.schedule: zero_bubble makes 2 rounds of 2 microbatches on "
      "2 pipeline ranks, but 5 is not a multiple of 2 (nearest: 4 or 6 microbatches "
      "(batch.global = 8 or 12))\n1 error\n");
  refused(
      "mesh = { pp = 4 }, schedule = 'dualpipev'",
      "plan.lua:5: error: plan.schedule: dualpipe_v needs at least two microbatches per "
      "pipeline rank, got 5 for 4 ranks (nearest: 8 microbatches (batch.global = 16))\n"
      "1 error\n");
  refused(
      "mesh = { pp = 2 }, schedule = 'gpipe', pp_plan = { virtual = 3 }",
      "plan.lua:5: error: plan.schedule: gpipe has one stage per rank, got virtual = 3 "
      "(nearest: pp_plan.virtual = 1)\n1 error\n");
  refused(
      "mesh = { pp = 4 }, schedule = 'dualpipev', pp_plan = { virtual = 4 }",
      "plan.lua:5: error: plan.schedule: dualpipe_v has two stages per rank, got virtual "
      "= 4 (nearest: pp_plan.virtual = 2 with 8 microbatches (batch.global = 16))\n"
      "1 error\n");
  refused(
      "mesh = { pp = 4 }, schedule = { 'vpp', group = 3 }",
      "plan.lua:5: error: plan.schedule: interleaved_1f1b needs a group of at least as "
      "many microbatches as pipeline ranks, got 3 for 4 (nearest: mesh.pp = 2)\n"
      "1 error\n");
  refused(
      "mesh = { pp = 2 }, schedule = { 'vpp', group = 4 }",
      "plan.lua:5: error: plan.schedule: interleaved_1f1b cannot cut 5 microbatches into "
      "groups of 4: the last group would have 1, it needs 2 (nearest: 4 or 6 "
      "microbatches (batch.global = 8 or 12))\n1 error\n");
  refused(
      "mesh = { pp = 2 }, pp_plan = { virtual = 3 },\n"
      "  schedule = { function(s) end, placement = 'v' }",
      "plan.lua:6: error: plan.schedule: placement = \"v\" has two stages per rank, got "
      "virtual = 3 (nearest: pp_plan.virtual = 2)\n1 error\n");
}
END_TEST

/* What `verify` runs instead of a large plan has sizes that its schedule takes, too. */
START_TEST(smaller_plans_are_legal) {
  static const struct {
    const char *schedule;
    int ranks, small;
  } cases[] = {{"'1f1b'", 4, 6},
               {"'dualpipev'", 4, 8},
               {"'vpp'", 4, 6},
               {"{ 'vpp', group = 12 }", 4, 12},
               {"'zbv'", 4, 6}};
  for (int i = 0; i < LEN(cases); i++) {
    Plan small;
    LangShrunk what;
    Mesh m;
    char pp[16];
    snprintf(pp, sizeof pp, "mesh.pp=%d", cases[i].ranks);
    t.o.set = (const char *const[]){pp};
    t.o.nset = 1;
    load(cases[i].schedule, 0);
    ck_assert_int_eq(lang_shrink(t.lp, 32, &small, &what, &t.d, &t.e), WEFT_OK);
    ck_assert(mesh_resolve(&small.mesh, 0, &m, &t.d));
    ck_assert_int_eq(plan_microbatches(&small, &m), cases[i].small);
    ck_assert_int_eq(lang_check_mesh(t.lp, &small, &m, &t.d, &t.e), WEFT_OK);
    t.o.nset = 0;
  }
}
END_TEST

/* A function in a V has two chunks without being told. */
START_TEST(own_function_in_a_v) {
  load("{ function(s)\n"
       "  assert(s.virtual == 2 and s:stage(1) == s.stages - 1 - s.rank)\n"
       "  for mb = 0, s.microbatches - 1 do s:F(0, mb) s:F(1, mb) end\n"
       "  for mb = 0, s.microbatches - 1 do s:B(1, mb) s:B(0, mb) end\n"
       "end, placement = 'V' }",
       0);
  Schedule s = table(2, 1);
  ck_assert_str_eq(csv(&s, false), "0F0,3F0,3B0,0B0\n1F0,2F0,2B0,1B0\n");
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
      {"names", all_names, 1},
      {"wrong names", wrong_names_and_options, 1},
      {"aliases", options_have_aliases, 1},
      {"sizes", says_which_sizes_are_near, 1},
      {"smaller", smaller_plans_are_legal, 1},
      {"own function", own_function_in_a_v, 1},
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
