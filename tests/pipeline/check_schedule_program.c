/* check_schedule_program.c - what becomes of actions in the programs: where transfers and
 * reductions are placed, what takes no transfer, how long memory is held. */
#include <check.h>

#include "tests/harness/one_rank_pair.h"
#include "tests/generate/schedule_text.h"

static Arena *arena;
static Toy toy;
static ToyOptions o;
static Schedule schedule;

static void setup(void) {
  arena = arena_new(NULL);
  o = toy_default();
  o.dp = 2;
}
static void teardown(void) {
  toy_free(&toy);
  arena_free(arena);
}

static void compile_text(const char *text, int virtual_stages, int m, bool v) {
  schedule = sched_text(arena, text, virtual_stages, m, v);
  o.schedule = &schedule;
  o.pp = schedule.ranks;
  o.microbatches = m;
  weft_status st = toy_compile(&toy, &o, NULL);
  ck_assert_msg(st == WEFT_OK, "%d: %s%s", st, toy.err.text, toy_diags(&toy));
}

/* The main list of a rank: the action, then F, I, W for calls of units, R and S with the
 * peer for transfers, G for a reduction of gradients (-1: of no action). Waits are left
 * out; calls that are written the same and follow each other are written once. */
static const char *main_text(int pp) {
  const Program *p = &toy.compiled->prog[pp];
  char *all = arena_str(arena, "");
  const char *last = "";
  for (uint32_t i = 0; i < p->nmain; i++) {
    const Instr *in = &p->code[i];
    const char *x = NULL;
    if (in->code == I_CALL)
      x = arena_printf(arena, "%d%s", in->action - 1, p->what[in->what]);
    else if (in->code == I_SEND || in->code == I_RECV)
      x = arena_printf(arena, "%d%c%d", in->action - 1, in->code == I_SEND ? 'S' : 'R',
                       in->peer);
    else if (in->code == I_COLL && strcmp(p->what[in->what], "gradients") == 0)
      x = arena_printf(arena, "%dG", in->action - 1);
    if (!x || strcmp(x, last) == 0) continue;
    all = arena_printf(arena, "%s%s%s", all, *all ? " " : "", x);
    last = x;
  }
  return all;
}

static int count(int pp, int code) {
  const Program *p = &toy.compiled->prog[pp];
  int n = 0;
  for (uint32_t i = 0; i < p->nmain; i++) n += p->code[i].code == code;
  return n;
}

static uint64_t activations(int pp) {
  const Program *p = &toy.compiled->prog[pp];
  for (int i = 0; i < p->nmem; i++)
    if (strcmp(p->mem[i].name, "activations") == 0) return p->mem[i].bytes;
  return 0;
}

/* The receive of an action comes before the calls of the one before it; what goes back
 * is sent before the last W of its action; what nobody placed is reduced at the end. */
START_TEST(one_ahead) {
  compile_text("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1", 1, 2, false);
  ck_assert_str_eq(main_text(0), "0F 0S1 2R1 1F 1S1 3R1 2I 2W 2I 2W 3I 3W 3I 3W -1G");
  ck_assert_str_eq(main_text(1), "0R0 0F 2R0 1I 1W 1I 1W 1I 1W 1I 1S0 1W 2F 3I 3W 3I 3W "
                                 "3I 3W 3I 3S0 3W -1G");
}
END_TEST

START_TEST(split_backward) {
  compile_text("0F0,0F1,0I0,0W0,0I1,0W1\n1F0,1I0,1F1,1I1,1W0,1W1", 1, 2, false);
  ck_assert_str_eq(main_text(1), "0R0 0F 2R0 1I 1S0 2F 3I 3S0 4W 5W -1G");
}
END_TEST

/* Both parts of a pair have their receives posted before its forward runs. */
START_TEST(pair_overlaps) {
  compile_text("0F0,0F1,(0F2;0B0)OVERLAP_F_B,0B1,0B2\n1F0,1B0,1F1,1B1,1F2,1B2", 1, 3,
               false);
  ck_assert_str_eq(main_text(0),
                   "0F 0S1 2R1 1F 1S1 3R1 2F 2S1 2I 2W 2I 2W 4R1 3I 3W 3I 3W "
                   "4I 4W 4I 4W -1G");
}
END_TEST

/* At the turn of a V the rank hands over to itself. */
START_TEST(v_turn) {
  compile_text("0F0,3F0,3B0,0B0\n1F0,2F0,2B0,1B0", 2, 1, true);
  ck_assert_int_eq(count(0, I_SEND), 2);
  ck_assert_int_eq(count(1, I_SEND), 2);
  toy_free(&toy);
  compile_text("0F0,1F0,1B0,0B0", 2, 1, true);
  ck_assert_int_eq(count(0, I_SEND) + count(0, I_RECV), 0);
}
END_TEST

/* ---- reductions ---- */

#define REDUCED "0F0,1F0,1B0,1REDUCE_GRAD,0B0"

START_TEST(reduce_where_said) {
  o.layers = 2;
  o.bucket_bytes = 1 << 20;
  compile_text("0F0,1F0,1B0,0I0,1REDUCE_GRAD,0W0", 2, 1, false);
  const char *at = strstr(main_text(0), "4G");
  ck_assert_msg(at && strstr(at, "5W") && !strstr(at + 1, "4G"), "%s", main_text(0));
  ck_assert_ptr_nonnull(strstr(main_text(0), "-1G"));
  ck_assert_int_eq(toy.diags.list.n, 0);
}
END_TEST

/* With overlap, a chunk without REDUCE_GRAD is reduced after its last W, and one with it
 * still waits for the action. */
START_TEST(reduce_where_left_out) {
  o.layers = 2;
  o.bucket_bytes = 1 << 20;
  o.overlap = true;
  compile_text("0F0,1F0,1B0,0I0,1REDUCE_GRAD,0W0", 2, 1, false);
  const char *all = main_text(0);
  ck_assert_ptr_nonnull(strstr(all, "4G 5W 5G"));
  ck_assert_ptr_null(strstr(all, "2G"));
  ck_assert_ptr_null(strstr(all, "-1G"));
}
END_TEST

START_TEST(reduced_in_last_round) {
  o.layers = 2;
  o.rounds = 2;
  compile_text(REDUCED, 2, 1, false);
  const char *at = strstr(main_text(0), "3G");
  ck_assert_msg(at && !strstr(at, "2W"), "%s", main_text(0));
}
END_TEST

/* A tied weight is complete only after the first chunk, too. */
START_TEST(tied_is_reduced_late) {
  o.layers = 2;
  o.tied = true;
  o.bucket_bytes = 1 << 20;
  compile_text(REDUCED, 2, 1, false);
  ck_assert_str_eq(toy_diags(&toy),
                   "warning schedule schedule: rank 0, step 3: REDUCE_GRAD of chunk 1 "
                   "leaves out model.embed_tokens.weight, which other chunks of the rank "
                   "use, too: its gradient is reduced after their last W\n");
  const char *all = main_text(0);
  ck_assert_ptr_nonnull(strstr(all, "3G"));
  ck_assert_ptr_nonnull(strstr(all, "4G"));
}
END_TEST

START_TEST(no_parameters_to_move) {
  compile_text("0UNSHARD,0F0,0RESHARD,0UNSHARD,0B0,0RESHARD\n1F0,1B0", 1, 1, false);
  ck_assert_int_eq(toy.diags.warnings, 1);
  ck_assert_ptr_nonnull(strstr(toy_diags(&toy), "UNSHARD and RESHARD do nothing"));
  ck_assert_str_eq(main_text(1), "0R0 0F 1I 1W 1I 1W 1I 1W 1I 1S0 1W -1G");
}
END_TEST

/* ---- memory ---- */

/* Frames are given back: more microbatches take no more of them. */
START_TEST(frames_are_reused) {
  uint64_t bytes[2];
  for (int k = 0; k < 2; k++) {
    o.pp = 4;
    o.microbatches = 8 << k;
    ck_assert_int_eq(toy_compile(&toy, &o, NULL), WEFT_OK);
    bytes[k] = activations(0);
    if (k == 0) toy_free(&toy);
  }
  ck_assert_uint_gt(bytes[0], 0);
  ck_assert_uint_eq(bytes[0], bytes[1]);
}
END_TEST

Suite *schedule_program_suite(void) {
  Suite *s = suite_create("schedule_program");
  TCase *tc = tcase_create("programs");
  tcase_add_checked_fixture(tc, setup, teardown);
  tcase_add_test(tc, one_ahead);
  tcase_add_test(tc, split_backward);
  tcase_add_test(tc, pair_overlaps);
  tcase_add_test(tc, v_turn);
  tcase_add_test(tc, reduce_where_said);
  tcase_add_test(tc, reduce_where_left_out);
  tcase_add_test(tc, reduced_in_last_round);
  tcase_add_test(tc, tied_is_reduced_late);
  tcase_add_test(tc, no_parameters_to_move);
  tcase_add_test(tc, frames_are_reused);
  suite_add_tcase(s, tc);
  return s;
}
