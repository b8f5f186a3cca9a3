/* check_gpu_memory.c - what CUDA and NCCL are said to take of a GPU: by hand for small
 * groups, beside a measured communicator, and warned of where it does not fit. */
#include <check.h>
#include <stdio.h>

#include "tests/harness/process.h"
#include "tests/harness/scratch.h"

/* Prints MiB of NCCL's groups and pairs of pipeline rank 0 of a plan with these settings.
 */
#define SCRIPT                                                                           \
  "local weft, set = require 'weft', {}\n"                                               \
  "for i = 2, #arg do\n"                                                                 \
  "  local path, value = arg[i]:match '^(.-)=(.*)$'\n"                                   \
  "  set[path] = math.tointeger(value)\n"                                                \
  "end\n"                                                                                \
  "local p = assert(weft.load(arg[1], { set = set }))\n"                                 \
  "local got = { ['NCCL groups'] = 0, ['NCCL pairs'] = 0 }\n"                            \
  "for _, c in ipairs(p:memory()[1].gpu) do got[c.name] = c.bytes / 2^20 end\n"          \
  "print(string.format('%.15g %.15g', got['NCCL groups'], got['NCCL pairs']))\n"

#define PLAN                                                                             \
  "return require('weft').plan { model = require('weft').model 'llama-tiny',\n"          \
  "  mesh = { tp = 1 }, batch = { global = 8, seq = 16 } }\n"

typedef struct Row {
  const char *set;
  double groups, pairs;
} Row;

/* MiB. A channel to a peer of the machine takes 10 at the receiver and 2 at the sender,
 * to one of another machine 10 and 10. */
static const Row rows[] = {
    {"mesh.tp=1", 0, 0},
    /* 16 channels to one neighbour, a pool of 16 x 16 x 0.5, NVLS of 16 x 2 x 2 */
    {"mesh.tp=2", 16 * 12 + 128 + 64, 0},
    /* two neighbours */
    {"mesh.tp=4", 16 * 24 + 128 + 128, 0},
    {"mesh.tp=4 nccl.group_ctas=4", 4 * 24 + 32 + 32, 0},
    {"mesh.tp=4 nccl.group_ctas=4 nccl.nvls_enable=0", 4 * 24 + 32, 0},
    {"mesh.tp=4 nccl.group_ctas=4 nccl.buffsize=1048576", 4 * 20 + 8 + 32, 0},
    {"mesh.tp=4 nccl.max_nchannels=2", 2 * 24 + 16 + 16, 0},
    /* machines of one GPU: members at distances 1 and 2 (four of them: three peers), and
     * a pool of 128 KiB pieces */
    {"mesh.tp=4 nccl.group_ctas=4 cluster.nodes=4 cluster.gpus=1", 4 * 3 * 20 + 8, 0},
    /* six: 1, 2 and 4 one way are 5, 4 and 2 the other */
    {"mesh.dp=6 batch.global=6 nccl.group_ctas=4 cluster.nodes=6 cluster.gpus=1",
     4 * 4 * 20 + 8, 0},
    /* of two: the neighbour, and 80 of rings and trees over two of them */
    {"mesh.tp=4 nccl.group_ctas=4 cluster.nodes=2 cluster.gpus=2", 4 * (12 + 40) + 8 + 16,
     0},
    /* two directions with 2 channels: collectives, pools of 16, NVLS of 8, and a receive
     * and a send */
    {"mesh.pp=2", 16 * 12 + 128 + 64, 2 * (24 + 16 + 8) + 24},
};

static Outcome figures(const char *set) {
  scratch_put("memory.lua", SCRIPT, strlen(SCRIPT));
  scratch_put("plan.lua", PLAN, strlen(PLAN));
  return process_run(60, "$weft lua memory.lua plan.lua %s", set);
}

START_TEST(rules_by_hand) {
  double groups = 0, pairs = 0;
  Outcome o = figures(rows[_i].set);
  ck_assert_msg(sscanf(o.out, "%lf %lf", &groups, &pairs) == 2, "%s%s", o.out, o.err);
  ck_assert_msg(groups == rows[_i].groups && pairs == rows[_i].pairs,
                "%s: %g %g, not %g %g", rows[_i].set, groups, pairs, rows[_i].groups,
                rows[_i].pairs);
}
END_TEST

/* NVIDIA/nccl issue 1685: a communicator of eight H100 took 1.06 GB, with all of its 24
 * channels. */
START_TEST(a_measured_communicator) {
  double groups = 0, pairs = 0;
  Outcome o = figures("mesh.dp=8 nccl.group_ctas=24");
  ck_assert_int_eq(sscanf(o.out, "%lf %lf", &groups, &pairs), 2);
  ck_assert_double_eq_tol(groups * (1 << 20) / 1.06e9, 1, 0.1);
}
END_TEST

/* An arena that fits beside the reserve, but not beside what NCCL takes of the GPU: of
 * eight in a machine, and of machines of one GPU, whose members are connected to more
 * peers. */
START_TEST(a_reserve_that_is_too_small) {
#define BIG                                                                              \
  "$weft check " WEFT_SOURCE_DIR "/plans/llama3_8b_fsdp2.lua --set cluster.gpus=%d "     \
  "--set cluster.nodes=%d --set cluster.reserve_gib=0 --set cluster.gpu=%s"
  Outcome o = process_run(60, BIG, 8, 1, "'{ \"h100-sxm\", memory_gib = 47 }'");
  ck_assert_int_eq(o.code, 0);
  ck_assert_msg(!strstr(o.err, "[gpu-reserve]"), "%s", o.err);
  o = process_run(60, BIG, 1, 8, "'{ \"h100-sxm\", memory_gib = 47 }'");
  ck_assert_int_eq(o.code, 0);
  ck_assert_msg(strstr(o.err,
                       "warning: plan.cluster.reserve_gib: pipeline rank 0 needs 45.2 "
                       "GiB, and CUDA and NCCL take about "),
                "%s", o.err);
  ck_assert_ptr_nonnull(strstr(o.err, "[gpu-reserve]"));
}
END_TEST

/* An inner stage has buffers of two neighbours: its arena is the smaller one here, and
 * yet it needs the most. */
START_TEST(the_worst_is_the_sum) {
  static const char plan[] =
      "local weft = require 'weft'\n"
      "return weft.plan { model = weft.model { 'llama', hidden_size = 64,\n"
      "    num_hidden_layers = 4, num_attention_heads = 4, num_key_value_heads = 2,\n"
      "    intermediate_size = 128, vocab_size = 500 }, mesh = { pp = 4 },\n"
      "  precision = 'bf16', batch = { global = 16, micro = 1, seq = 128 },\n"
      "  cluster = weft.cluster { gpu = { 'h100-sxm', memory_gib = weft.var('m', 4) },\n"
      "    nodes = 1, reserve_gib = 0 } }\n";
  scratch_put("plan.lua", plan, strlen(plan));
  Outcome o = process_run(60, "$weft check plan.lua -D m=2.5");
  ck_assert_msg(strstr(o.err, "pipeline rank 1 needs") && strstr(o.err, "[gpu-reserve]"),
                "%s", o.err);
  o = process_run(60, "$weft report plan.lua -D m=2.5");
  ck_assert_msg(strstr(o.out, "but with what CUDA and NCCL take besides"), "%s%s", o.out,
                o.err);
  o = process_run(60, "$weft check plan.lua -D m=2.7");
  ck_assert_msg(o.code == 0 && !strstr(o.err, "[gpu-reserve]"), "%s", o.err);
  o = process_run(60, "$weft report plan.lua -D m=2.7");
  ck_assert_msg(!strstr(o.out, "take besides"), "%s", o.out);
}
END_TEST

/* Four heads of 8 elements, 24 tokens: lse by heads and row sums in 512 bytes each, sums
 * of dq in 3072, and cuDNN's own of 2 x 3072 + 256. In the arena of a GPU it is no line.
 */
START_TEST(scratch_of_cudnn) {
  static const struct {
    const char *args;
    bool there;
  } asked[] = {{"", true},
               {"--device cuda", false},
               {"--set attention_backend=native", false},
               {"--set precision=f32", false},
               {"--set packed.eot=3", false},  /* left to weft's kernels */
               {"--set batch.seq=48", false}}; /* more */
  static const char plan[] =
      "local weft = require 'weft'\n"
      "return weft.plan { model = weft.model { 'llama', hidden_size = 32,\n"
      "    num_hidden_layers = 1, num_attention_heads = 4, intermediate_size = 32,\n"
      "    vocab_size = 32 }, precision = 'bf16', batch = { global = 1, seq = 24 } }\n";
  scratch_put("plan.lua", plan, strlen(plan));
  for (int i = 0; i < LEN(asked); i++) {
    Outcome o = process_run(30, "$weft show plan.lua memory --json %s", asked[i].args);
    ck_assert_int_eq(o.code, 0);
    const char *line = strstr(o.out, "\"bytes\": 10496,");
    ck_assert_msg((line != NULL) == asked[i].there, "%s: %s", asked[i].args, o.out);
  }
}
END_TEST

/* What the arena takes in NCCL's memory, in whole pages of 2 MiB, and buffers of groups
 * of two that may have windows: 2 MiB and a little, so 4. */
#define ARENA                                                                            \
  "local weft = require 'weft'\n"                                                        \
  "local p = assert(weft.load('plan.lua', { set = { ['mesh.tp'] = tonumber(arg[2]),\n"   \
  "  ['mesh.pp'] = tonumber(arg[3]), ['nccl.arena'] = arg[1] } }))\n"                    \
  "local m, got = p:memory()[1], {}\n"                                                   \
  "for _, c in ipairs(m.gpu) do got[c.name] = c.bytes end\n"                             \
  "local arena, windows = got['NCCL arena'], got['NCCL windows']\n"                      \
  "print(not arena and 'none' or arena < 2^21 and (m.total + arena) % 2^21 == 0,\n"      \
  "  windows and windows // 2^20 // 1 | 0)\n"

START_TEST(arena_of_nccl) {
  static const struct {
    const char *args, *says;
  } asked[] = {{"nccl 2 1", "true\tnil\n"},    {"cuda 2 1", "none\tnil\n"},
               {"nccl 1 1", "none\tnil\n"},    {"nccl 1 2", "true\tnil\n"},
               {"symmetric 2 1", "true\t4\n"}, {"symmetric 1 2", "true\tnil\n"}};
  scratch_put("arena.lua", ARENA, strlen(ARENA));
  scratch_put("plan.lua", PLAN, strlen(PLAN));
  Outcome o = process_run(60, "$weft lua arena.lua %s", asked[_i].args);
  ck_assert_msg(strcmp(o.out, asked[_i].says) == 0, "%s: %s%s", asked[_i].args, o.out,
                o.err);
}
END_TEST

Suite *gpu_memory_suite(void) {
  Suite *s = suite_create("gpu_memory");
  TCase *c = tcase_create("gpu_memory");
  tcase_set_timeout(c, 120);
  tcase_add_checked_fixture(c, scratch_setup, scratch_teardown);
  tcase_add_loop_test(c, rules_by_hand, 0, LEN(rows));
  tcase_add_test(c, a_measured_communicator);
  tcase_add_test(c, a_reserve_that_is_too_small);
  tcase_add_test(c, the_worst_is_the_sum);
  tcase_add_test(c, scratch_of_cudnn);
  tcase_add_loop_test(c, arena_of_nccl, 0, 6);
  suite_add_tcase(s, c);
  return s;
}
