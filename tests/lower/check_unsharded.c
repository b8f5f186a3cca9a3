/* check_unsharded.c - blocks that are whole for a while, in programs: the memory that
 * this takes at most, and that a schedule has the last word on when it is. Every program
 * here is proven: nothing reads what is not gathered, and nothing is left. */
#include <check.h>

#include "bindings/api/job.h"
#include "tests/harness/one_rank_pair.h"
#include "tests/generate/schedule_text.h"
#include "tests/harness/scratch.h"

/* ---- what a schedule says ---- */

static Toy toy;
static ToyOptions o;
static Schedule schedule;

static void of_schedule(const char *text, int chunks, int m, bool v) {
  schedule = sched_text(scratch_arena, text, chunks, m, v);
  o = toy_default();
  o.schedule = &schedule;
  o.pp = schedule.ranks;
  o.microbatches = m;
  o.dp = 2;
  o.strategy = (Strategy){.stage = 3, .prefetch = {1, 2}, .defer_grad_sync = true};
}

/* GATHERs, FREEs and SCATTERs of a rank as letters, each with the number of the action
 * that it is about; those of one action and kind together. */
static const char *placed(int pp) {
  const Program *p = &toy.compiled->prog[pp];
  char *all = arena_str(scratch_arena, "");
  const char *last = "";
  for (uint32_t i = 0; i < p->nmain; i++) {
    const Instr *in = &p->code[i];
    char c = in->code == I_GATHER    ? 'U'
             : in->code == I_FREE    ? 'R'
             : in->code == I_SCATTER ? 'G'
             : in->code == I_CALL    ? "FIW"[p->body[p->call[in->call].body].phase]
                                     : 0;
    const char *x = arena_printf(scratch_arena, "%d%c", in->action - 1, c);
    if (!c || strcmp(x, last) == 0) continue;
    all = arena_printf(scratch_arena, "%s%s%s", all, *all ? " " : "", x);
    last = x;
  }
  return all;
}

static void compiled(void) {
  weft_status st = toy_compile(&toy, &o, NULL);
  ck_assert_msg(st == WEFT_OK, "%d: %s%s", st, toy.err.text, toy_diags(&toy));
}

START_TEST(unshard_and_reshard_take_effect) {
  of_schedule("0UNSHARD,0F0,0RESHARD,0F1,0UNSHARD,0B0,0B1,0RESHARD,0REDUCE_GRAD", 1, 2,
              false);
  o.layers = 1;
  ck_assert_int_eq(toy_compile(&toy, &o, NULL), WEFT_EPLAN);
  ck_assert_ptr_nonnull(strstr(toy_diags(&toy),
                               "rank 0, step 3: F of microbatch 1 comes "
                               "after the RESHARD of its chunk at step 2"));
  toy_free(&toy);
  of_schedule("0UNSHARD,0F0,0F1,0RESHARD,0UNSHARD,0I0,0I1,0W0,0W1,0RESHARD,0REDUCE_GRAD",
              1, 2, false);
  compiled();
  ck_assert_str_eq(placed(0), "0U 1F 2F 3R 4U 5I 6I 7W 8W 9R 10G");
  ck_assert_int_eq(toy.diags.warnings, 0);
  toy_free(&toy);
}
END_TEST

/* What is left open is given up at the end, and a round may begin with it open. */
START_TEST(left_open) {
  of_schedule("0UNSHARD,0F0,0B0", 1, 1, false);
  o.rounds = 2;
  compiled();
  const char *all = placed(0);
  ck_assert_int_eq(strncmp(all, "0U 1F 2I 2W 2I", 14), 0);
  ck_assert_ptr_null(strstr(all + 2, "0U"));
  ck_assert_ptr_nonnull(strstr(all, "-1R"));
  toy_free(&toy);
}
END_TEST

/* Chunk 0 is gathered as it says, chunk 1 by the compiler. */
START_TEST(chunks_that_say_nothing) {
  of_schedule("0UNSHARD,0F0,1F0,1B0,0B0,0RESHARD", 2, 1, false);
  compiled();
  const char *all = placed(0);
  ck_assert_int_eq(strncmp(all, "0U 1F", 5), 0);
  ck_assert_ptr_nonnull(strstr(all, "2U"));
  ck_assert_ptr_nonnull(strstr(all, "5R"));
  toy_free(&toy);
}
END_TEST

START_TEST(sums_wait_for_reduce_grad) {
  of_schedule("0F0,0B0,0F1,0B1,0REDUCE_GRAD", 1, 2, false);
  o.strategy.defer_grad_sync = false;
  compiled();
  ck_assert_ptr_null(strstr(placed(0), "1G"));
  ck_assert_ptr_null(strstr(placed(0), "3G"));
  ck_assert_ptr_nonnull(strstr(placed(0), "4G"));
  toy_free(&toy);
}
END_TEST

/* What another chunk still writes is reduced after it, with a warning. */
START_TEST(sums_of_several_chunks) {
  of_schedule("0F0,1F0,1B0,1REDUCE_GRAD,0B0", 2, 1, false);
  o.tied = true;
  compiled();
  ck_assert_int_eq(toy.diags.warnings, 1);
  ck_assert_ptr_nonnull(strstr(toy_diags(&toy), "REDUCE_GRAD of chunk 1 leaves out "
                                                "model.embed_tokens.weight"));
  ck_assert_ptr_nonnull(strstr(placed(0), "3G"));
  ck_assert_ptr_nonnull(strstr(placed(0), "4G"));
  toy_free(&toy);
}
END_TEST

/* The actions on parameters of a table that PyTorch lowered, for 2 ranks of 2 chunks. */
static const char lowered[] =
    "0UNSHARD,3UNSHARD,0F0,0F1,0F2,3F0,3I0,3W0,3F1,(0F3;3B1)OVERLAP_F_B,(3F2;0B0)"
    "OVERLAP_F_B,(0F4;3B2)OVERLAP_F_B,(3F3;0B1)OVERLAP_F_B,3B3,(3F4;0B2)OVERLAP_F_B,3B4,"
    "3REDUCE_GRAD,3RESHARD,0I3,0W3,0I4,0W4,0REDUCE_GRAD,0RESHARD\n"
    "1UNSHARD,2UNSHARD,1F0,2F0,1F1,2F1,(1F2;2B0)OVERLAP_F_B,(2F2;1B0)OVERLAP_F_B,(1F3;"
    "2B1)"
    "OVERLAP_F_B,(2F3;1B1)OVERLAP_F_B,(1F4;2B2)OVERLAP_F_B,(2F4;1B2)OVERLAP_F_B,2B3,1B3,"
    "2I4,1I4,2W4,2REDUCE_GRAD,2RESHARD,1W4,1REDUCE_GRAD,1RESHARD";

START_TEST(tables_of_pytorch) {
  of_schedule(lowered, 2, 5, true);
  compiled();
  for (int pp = 0; pp < 2; pp++) {
    const char *all = placed(pp);
    ck_assert_int_eq(strncmp(all, "0U 1U 2F", 8), 0);
    ck_assert_ptr_null(strchr(all + 5, 'U'));
    ck_assert_ptr_nonnull(strstr(all, pp ? "17G 18R" : "16G 17R"));
    ck_assert_ptr_nonnull(strstr(all, pp ? "20G 21R" : "22G 23R"));
  }
  ck_assert_int_eq(toy.diags.warnings, 0);
  toy_free(&toy);
  pair_agrees(&o);
}
END_TEST

/* ---- memory ---- */

static const char billion[] =
    "local weft = require 'weft'\n"
    "return weft.plan {\n"
    "  model = weft.model { 'llama3-8b', num_hidden_layers = 16, hidden_size = 2048,\n"
    "    intermediate_size = 8192, vocab_size = 32000 },\n"
    "  mesh = { dp = 8 }, precision = 'f32',\n"
    "  strategy = { 'fsdp2', defer_fsdp_grad_sync = false },\n"
    "  batch = { global = 32, micro = 1, seq = 2048 } }\n";

static uint64_t bytes_of(const Program *p, const char *class) {
  for (int i = 0; i < p->nmem; i++)
    if (strcmp(p->mem[i].name, class) == 0) return p->mem[i].bytes;
  return 0;
}

/* The largest unit: the embedding or the head, a little larger than a layer. */
static uint64_t largest_block(const Program *p) {
  int64_t most = 0;
  for (int i = 0; i < p->regions.nblock; i++) most = MAX(most, p->regions.block[i].whole);
  return 4 * (uint64_t)most;
}

static struct {
  const char *set[3];
  double units; /* gathered at once, at most */
} const depth[] = {
    {{"strategy.forward_prefetch_depth=0", "strategy.backward_prefetch_depth=0"}, 2},
    {{"strategy.forward_prefetch_depth=1", "strategy.backward_prefetch_depth=0"}, 2},
    {{"strategy.forward_prefetch_depth=1", "strategy.backward_prefetch_depth=1"}, 3},
    {{"strategy.forward_prefetch_depth=1", "strategy.backward_prefetch_depth=2"}, 4}};

/* All that a rank keeps for its parameters, and all that is whole for a while. */
START_TEST(a_billion_on_eight) {
  Job j;
  LangOptions with = {.set = (const char **)depth[_i].set, .nset = 2};
  const char *path = scratch_put("billion.lua", billion, strlen(billion));
  Arena *arena = arena_new(NULL);
  ck_assert_int_eq(job_open(&j, arena, &with, path), WEFT_OK);
  const Program *p = j.compiled->prog;
  double params = (double)j.compiled->params_total, kept = 0;
  static const char *const class[] = {"parameters", "gradients", "optimizer state"};
  for (int i = 0; i < LEN(class); i++) kept += (double)bytes_of(p, class[i]);
  ck_assert_double_ge(params, 1e9);
  ck_assert_double_le(kept, params / 8 * 16 * 1.0001);
  double whole = (double)bytes_of(p, "gather buffers");
  ck_assert_double_le(whole, depth[_i].units * (double)largest_block(p));
  ck_assert_double_gt(whole, (depth[_i].units - 1) * (double)largest_block(p) * 0.9);
  job_free(&j);
  arena_free(arena);
}
END_TEST

Suite *unsharded_suite(void);
Suite *unsharded_suite(void) {
  const TTest *said[] = {unshard_and_reshard_take_effect, left_open,
                         chunks_that_say_nothing,         sums_wait_for_reduce_grad,
                         sums_of_several_chunks,          tables_of_pytorch};
  Suite *s = suite_create("unsharded");
  TCase *c = tcase_create("schedules");
  tcase_set_timeout(c, 60);
  tcase_add_checked_fixture(c, scratch_setup, scratch_teardown);
  for (int i = 0; i < LEN(said); i++) tcase_add_test(c, said[i]);
  suite_add_tcase(s, c);
  c = tcase_create("memory");
  tcase_set_timeout(c, 60);
  tcase_add_checked_fixture(c, scratch_setup, scratch_teardown);
  tcase_add_loop_test(c, a_billion_on_eight, 0, LEN(depth));
  suite_add_tcase(s, c);
  return s;
}
