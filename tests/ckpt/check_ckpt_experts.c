/* check_ckpt_experts.c - checkpoints of models with experts, as a user meets them: the
 * same mesh goes on bit by bit, other ones agree, and what is made of a checkpoint does
 * not depend on the ranks that wrote it. */
#include <check.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>

#include "tests/harness/process.h"

#define ORACLES WEFT_SOURCE_DIR "/tests/oracle/"

/* Files with each expert apart, files with all of a layer in one, and a model of the
 * plan, whose router has a bias that moves after each step. */
static const struct {
  const char *model, *more;
} models[] = {
    {"weft.hf '" ORACLES "mixtral'", "moe = { aux_loss_coef = 0.01 }"},
    {"weft.hf '" ORACLES "qwen3_moe'", "moe = { dispatcher = 'alltoall' }"},
    {"weft.hf '" ORACLES "deepseek_v3_moe'", "moe = { bias_update_rate = 0.003 }"},
    {"weft.model { 'deepseek_v3', vocab_size = 96, hidden_size = 32,\n"
     "  num_attention_heads = 4, num_key_value_heads = 4, num_hidden_layers = 2,\n"
     "  first_k_dense_replace = 1, intermediate_size = 24, moe_intermediate_size = 8,\n"
     "  n_routed_experts = 8, num_experts_per_tok = 2, n_group = 2, topk_group = 1,\n"
     "  q_lora_rank = 12, kv_lora_rank = 10, qk_nope_head_dim = 6,\n"
     "  qk_rope_head_dim = 4, v_head_dim = 5 }",
     "moe = { bias_update_rate = 0.003, dispatcher = 'alltoall', z_loss_coef = 1e-4 }"},
};

/* Samples of a step are the same on all; so are its microbatches. */
static const char *const meshes[] = {
    "mesh = { tp = 2, dp = 4, ep = 2, etp = 2 }, strategy = { 'zero', stage = 1 }",
    "mesh = { tp = 2, pp = 2, dp = 4, ep = 2, etp = 1 }, strategy = 'fsdp2'",
    "mesh = { dp = 4, ep = 2 }, strategy = { 'zero', stage = 3 }",
    "mesh = { dp = 4 }",
    "mesh = { tp = 2, cp = 2, dp = 4, ep = 2, etp = 2 }, strategy = { 'zero', stage = 2 "
    "}",
};

/* A plan file for each mesh. */
static void put_plans(int model) {
  for (int i = 0; i < LEN(meshes); i++) {
    const char *text =
        arena_printf(scratch_arena,
                     "local weft = require 'weft'\n"
                     "return weft.plan { model = %s,\n"
                     "  %s, %s,\n"
                     "  batch = { global = 8, micro = 1, seq = 16 },\n"
                     "  optimizer = weft.adamw { lr = 1e-2 }, data = weft.synthetic {},\n"
                     "  train = { steps = 4, log_every = 1 },\n"
                     "  checkpoint = { dir = 'runs', every = 2, keep = 0 } }\n",
                     models[model].model, meshes[i], models[model].more);
    scratch_put(arena_printf(scratch_arena, "p%d.lua", i), text, strlen(text));
  }
}

static const char *weft(int code, const char *args) {
  Outcome o = process_run(60, "$weft %s", args);
  ck_assert_msg(o.code == code, "weft %s: %d: %s%s", args, o.code, o.out, o.err);
  return o.out;
}

static void run(int plan, const char *args) {
  weft(0, arena_printf(scratch_arena, "run p%d.lua --data " ORACLES " -q --threads 1 %s",
                       plan, args));
}

static const char *ckpt(int code, const char *args) {
  return weft(code, arena_printf(scratch_arena, "ckpt %s", args));
}

static void has(const char *text, const char *part) {
  ck_assert_msg(strstr(text, part) != NULL, "\"%s\" is not in: %s", part, text);
}

static void same_folders(const char *a, const char *b) {
  Outcome o = process_run(20, "diff -r %s %s", a, b);
  ck_assert_msg(o.code == 0, "%s %s: %s%s", a, b, o.out, o.err);
}

/* The losses of steps [2, 4) of a log. */
static void losses(const char *log, double to[2]) {
  int n = 0;
  for (const char *at = scratch_log(scratch_path(log)); at && *at;
       at = strchr(at, '\n'), at += at != NULL) {
    json_t *line = json_loads(at, JSON_DISABLE_EOF_CHECK, NULL);
    const json_t *step = json_object_get(line, "step");
    json_int_t k = json_integer_value(step);
    if (step && k >= 2 && k < 4)
      to[k - 2] = json_number_value(json_object_get(line, "loss")), n++;
    json_decref(line);
  }
  ck_assert_int_eq(n, 2);
}

/* The bias is trained on nothing but counts: it moves, and by the same on any ranks. */
static void check_bias(int model, const char *moved, const char *other) {
  static const char bias[] = "param/model.layers.1.mlp.gate.e_score_correction_bias: ";
  if (!strstr(models[model].more, "bias_update_rate")) return;
  has(moved, bias);
  ck_assert_msg(strstr(other, bias) == NULL, "%s", other);
}

/* Two runs of the same mesh, and one of each other that goes on from the first. */
START_TEST(goes_on_on_any_mesh) {
  double all[2], there[2];
  put_plans(_i);
  run(0, "--set checkpoint.dir=all --log all.jsonl");
  losses("all.jsonl", all);
  run(0, "--set checkpoint.dir=half --steps 2");
  run(0, "--set checkpoint.dir=half --resume auto --log half.jsonl");
  has(ckpt(0, "diff all half"), " tensors, 0 differ, 0 are in one of them only");
  losses("half.jsonl", there);
  ck_assert_mem_eq(all, there, sizeof all);
  const char *moved = ckpt(1, "diff all/step-00000002 all/step-00000004");
  for (int m = 1; m < LEN(meshes); m++) {
    run(m, arena_printf(scratch_arena,
                        "--set checkpoint.dir=m%d --resume all/step-00000002 "
                        "--log m%d.jsonl",
                        m, m));
    losses(arena_printf(scratch_arena, "m%d.jsonl", m), there);
    for (int k = 0; k < 2; k++)
      ck_assert_msg(fabs(there[k] - all[k]) <= 1e-6 * all[k],
                    "%s: step %d: %.9g, not %.9g", meshes[m], 2 + k, there[k], all[k]);
    Outcome o = process_run(60, "$weft ckpt diff all m%d", m);
    check_bias(_i, moved, o.out);
  }
  has(ckpt(0, "verify all"), "all/step-00000004: complete, ");
  has(ckpt(0, "verify m1"), "m1/step-00000004: complete, ");
}
END_TEST

/* The same folder, whether the run wrote it at its end, or beside its checkpoint, or it
 * is made of the checkpoint, or of one that other ranks have written. */
START_TEST(the_same_weights_come_out) {
  put_plans(_i);
  run(1, "--set checkpoint.save_consolidated=final --export end --shard-size 90KB");
  has(ckpt(0, "verify runs"), "runs/step-00000004: complete, ");
  const char *export = "export p%d.lua %s %s --data " ORACLES " --shard-size 90KB";
  ckpt(0, arena_printf(scratch_arena, export, 1, "runs", "out"));
  same_folders("end", "out");
  same_folders("end", "runs/weights-00000004");
  const char *from = "runs";
  for (int m = 0; m < LEN(meshes); m++) {
    const char *to = arena_printf(scratch_arena, "as%d", m);
    const char *out = arena_printf(scratch_arena, "out%d", m);
    ckpt(0, arena_printf(scratch_arena, "convert p1.lua p%d.lua %s %s --data " ORACLES, m,
                         from, to));
    has(ckpt(0, arena_printf(scratch_arena, "verify %s", to)), "complete, ");
    has(ckpt(0, arena_printf(scratch_arena, "diff runs %s", to)),
        " tensors, 0 differ, 0 are in one of them only");
    ckpt(0, arena_printf(scratch_arena, export, m, to, out));
    same_folders("end", out);
    from = to;
  }
}
END_TEST

Suite *ckpt_experts_suite(void);
Suite *ckpt_experts_suite(void) {
  Suite *s = suite_create("ckpt_experts");
  TCase *c = tcase_create("experts");
  tcase_set_timeout(c, 240);
  tcase_add_checked_fixture(c, scratch_setup, scratch_teardown);
  tcase_add_loop_test(c, goes_on_on_any_mesh, 0, LEN(models));
  tcase_add_loop_test(c, the_same_weights_come_out, 0, LEN(models));
  suite_add_tcase(s, c);
  return s;
}
