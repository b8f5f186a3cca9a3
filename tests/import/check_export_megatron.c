/* check_export_megatron.c - weft export --to megatron as a user sees it: a script that
 * weft import reads as the same plan, and what Megatron-LM refuses when it starts, as a
 * table of plans and what becomes of them. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/harness/export_settings.h"
#include "tests/harness/import_files.h"
#include "tests/harness/scratch.h"

enum { SECONDS = 120 };

#define HEAD "local weft = require \"weft\"\nreturn weft.plan {\n  name = \"small\",\n"
#define LLAMA                                                                            \
  "  model = weft.model { \"llama\", num_hidden_layers = 8, hidden_size = 64,\n"         \
  "    num_attention_heads = 4, num_key_value_heads = 2, intermediate_size = 96,\n"      \
  "    vocab_size = 250, max_position_embeddings = 64 },\n"
#define EXPERTS                                                                          \
  "  model = weft.model { \"mixtral\", num_hidden_layers = 4, hidden_size = 64,\n"       \
  "    num_attention_heads = 4, num_key_value_heads = 2, intermediate_size = 96,\n"      \
  "    vocab_size = 256, num_local_experts = 4, num_experts_per_tok = 2 },\n"
#define OLMO                                                                             \
  "  model = weft.model { \"olmo3\", num_hidden_layers = 4, hidden_size = 64,\n"         \
  "    num_attention_heads = 4, num_key_value_heads = 2, intermediate_size = 96,\n"      \
  "    vocab_size = 256 },\n"
#define REST                                                                             \
  "  mesh = { tp = 2, pp = 2, dp = 2 },\n"                                               \
  "  strategy = { \"zero\", stage = 1, sequence_parallel = true },\n"                    \
  "  precision = \"bf16\",\n"                                                            \
  "  batch = { global = 16, micro = 2, seq = 32 },\n"                                    \
  "  optimizer = weft.adamw { lr = weft.cosine { max = 1e-5, min = 1e-6, warmup = 2 "    \
  "} },\n"                                                                               \
  "  train = { steps = 12, seed = 7 },\n"                                                \
  "  checkpoint = { dir = \"it's; touch gone\", every = 0, async = false },\n"           \
  "  nccl = { algo = \"ring\", p2p_disable = true },\n"                                  \
  "  data = weft.synthetic {},\n}\n"

static Outcome export(int code, const char *arguments) {
  return export_settings(code,
                         arena_printf(scratch_arena, "--to megatron %s", arguments));
}

START_TEST(a_script_says_the_plan) {
  import_put("a.lua", HEAD LLAMA REST);
  Outcome o = export(0, "a.lua -o out --set checkpoint.every=5");
  import_has(o.out, "They say all else of the plan.");
  const char *sh = export_file("out/train.sh");
  import_has(sh, "export CUDA_DEVICE_MAX_CONNECTIONS=1\n");
  import_has(sh, "export NCCL_ALGO=Ring  # nccl.algo\n");
  import_has(sh, "  --nproc_per_node 8\n  --nnodes 1\n");
  import_has(sh, "  --tensor-model-parallel-size 2  # mesh.tp\n");
  import_has(sh, "  --vocab-size 249  # model.vocab_size\n"
                 "  --make-vocab-size-divisible-by 125  # model.vocab_size\n");
  import_has(sh, "  --save 'it'\\''s; touch gone'  # checkpoint.dir\n");
  import_has(
      sh, "torchrun \"${DISTRIBUTED_ARGS[@]}\" \"${MEGATRON_PATH:-.}/pretrain_gpt.py\"");
  process_run(SECONDS, "$weft import out/train.sh -o b.lua");
  export_same_programs("a.lua", "b.lua");
  import_has(export_file("b.lua"), "p2p_disable = true,");
  import_has(export_file("b.lua"), "dir = \"it's; touch gone\",");
  /* The shell starts what the arrays say, and nothing else. */
  o = process_run(SECONDS, "bash -c 'torchrun() { printf \"<%%s>\" \"$@\"; }; . "
                           "out/train.sh'");
  import_has(o.out, "<--lr><1e-05><--lr-decay-style><cosine>");
  import_has(o.out, "<--save><it's; touch gone>");
  ck_assert_str_eq(export_file("gone"), "");
  /* Megatron has no order of its own to read, and the script has the environment. */
  import_lacks(process_run(SECONDS, "ls out").out, "schedule.csv");
  import_lacks(process_run(SECONDS, "ls out").out, "environment.sh");
}
END_TEST

START_TEST(stages_are_a_layout_where_they_are_not_equal) {
  import_put("a.lua", HEAD LLAMA REST);
  export(0, "a.lua -o a --set 'pp_plan.layers={3,5}'");
  import_has(export_file("a/train.sh"),
             "  --pipeline-model-parallel-layout 'Et*3|t*5L'  # pp_plan\n");
  export(0, "a.lua -o b --set 'pp_plan.layout=\"E|t*3|t*5|L\"' --set "
            "schedule=interleaved_1f1b");
  import_has(export_file("b/train.sh"),
             "  --pipeline-model-parallel-layout 'E|t*3|t*5|L'  # pp_plan\n");
  export(0, "a.lua -o c --set pp_plan.virtual=2 --set schedule=interleaved_1f1b");
  import_has(export_file("c/train.sh"),
             "  --num-layers-per-virtual-pipeline-stage 2  # pp_plan\n");
  import_lacks(export_file("c/train.sh"), "layout");
}
END_TEST

/* Rules of Megatron-LM's arguments.py and of its core: what it would refuse when it
 * starts is either no script, with the rule, or a script with what comes near, and
 * listed. `model`: 0 Llama, 1 experts. */
static const struct Case {
  const char *model, *set;
  int code;
  const char *said, *script, *not_in_script;
} cases[] = {
    /* What has something near. */
    {EXPERTS, "--set strategy.sequence_parallel=false", 0,
     "strategy.sequence_parallel: false here, true", "--sequence-parallel", NULL},
    {LLAMA, "--set mesh.tp=1 --set mesh.dp=4", 0, "They say all else", NULL,
     "--sequence-parallel"},
    {LLAMA, "--set strategy.overlap_grad_reduce=false", 0,
     "strategy.overlap_param_gather: true here, false", NULL, "--overlap-param-gather"},
    {LLAMA, "--set strategy.stage=0", 0, "They say all else", NULL,
     "--use-distributed-optimizer"},
    {LLAMA, "--set strategy.stage=3", 0, "They say all else",
     "--ckpt-format fsdp_dtensor", "CUDA_DEVICE_MAX_CONNECTIONS"},
    {LLAMA, "--set strategy=fsdp2", 0, "strategy: fsdp2 here, zero",
     "--data-parallel-sharding-strategy optim_grads_params", "--use-torch-fsdp2"},
    {LLAMA, "--set strategy=fsdp2 --set mesh.pp=1", 0, "They say all else",
     "--use-torch-fsdp2", "--use-distributed-optimizer"},
    {LLAMA, "--set strategy=fsdp2 --set mesh.pp=1 --set model.tie_word_embeddings=true",
     0, "strategy: fsdp2 here, zero", "--use-megatron-fsdp", "--use-torch-fsdp2"},
    {LLAMA, "--set strategy=fsdp2 --set mesh.pp=1 --set precision=f16", 0,
     "strategy: fsdp2 here, zero", "--use-megatron-fsdp", "--use-torch-fsdp2"},
    {EXPERTS, "--set strategy=fsdp2 --set mesh.pp=1 --set mesh.ep=2", 0,
     "strategy: fsdp2 here, zero", "--use-megatron-fsdp", "--use-torch-fsdp2"},
    {LLAMA, "--set optimizer.state_dtype=bf16", 0, "They say all else",
     "--use-precision-aware-optimizer", NULL},
    {LLAMA, "--set optimizer.state_dtype=bf16 --set strategy.stage=0", 0,
     "optimizer.state_dtype: bf16 here, f32", NULL, "--use-precision-aware-optimizer"},
    {LLAMA, "--set strategy.offload_optimizer=cpu", 0, "They say all else",
     "--use-precision-aware-optimizer", NULL},
    {LLAMA,
     "--set pp_plan.virtual=2 --set schedule=interleaved_1f1b --set "
     "batch.global=12",
     0, "pp_plan: ", NULL, "--num-layers-per-virtual"},
    {LLAMA, "--set model.num_hidden_layers=7", 0, "They say all else",
     "--pipeline-model-parallel-layout 'Et*4|t*3L'", NULL},
    {LLAMA, "--set model.max_position_embeddings=16", 0,
     "model.max_position_embeddings: 16 here, 32", "--max-position-embeddings 32", NULL},
    {LLAMA, "--set mesh.dp_replicate=2 --set strategy.stage=0", 0,
     "mesh.dp_replicate: ", NULL, "--num-distributed-optimizer-instances"},
    {LLAMA, "--set schedule=gpipe", 0, "schedule: gpipe here, 1f1b", NULL, NULL},
    {LLAMA, "--set deterministic=true", 0, "They say all else", "--deterministic-mode",
     NULL},
    {EXPERTS, "--set moe.aux_loss_coef=0.01 --set moe.aux_loss_batch=global", 0,
     "They say all else", "--moe-router-load-balancing-type global_aux_loss", NULL},
    {OLMO, "", 1, "olmo3: weft export writes Megatron's arguments of deepseek_v3, gpt2,",
     NULL, NULL},
    /* What has not. */
    {EXPERTS, "--set model.num_experts_per_tok=1", 1,
     "a router that chooses one expert by softmax", NULL, NULL},
    {EXPERTS, "--set mesh.ep=4 --set mesh.etp=1 --set mesh.dp_replicate=2", 1,
     "divides the data-parallel ranks of the experts: mesh.dp_replicate", NULL, NULL},
    {LLAMA, "--set mesh.tp=1 --set mesh.cp=2 --set cp.balance=none --set batch.seq=30", 1,
     "sequences are a multiple of two pieces for each rank", NULL, NULL},
    {LLAMA, "--set train.steps=2 --set optimizer.lr.warmup=2", 1,
     "the warmup ends before the decay does", NULL, NULL},
    {LLAMA, "--set deterministic=true --set nccl.algo=tree", 1,
     "--deterministic-mode wants NCCL_ALGO", NULL, NULL},
    {LLAMA, "--set deterministic=true --set strategy.enable_async_tensor_parallel=true",
     1, "--deterministic-mode goes without --tp-comm-overlap", NULL, NULL},
};

START_TEST(what_megatron_refuses) {
  const struct Case *c = &cases[_i];
  char plan[4096], arguments[512];
  snprintf(plan, sizeof plan, "%s%s%s", HEAD, c->model, REST);
  import_put("a.lua", plan);
  snprintf(arguments, sizeof arguments, "a.lua --set checkpoint.every=5 %s", c->set);
  Outcome o = export(c->code, arguments);
  import_has(o.err, c->said);
  if (c->script) import_has(o.out, c->script);
  if (c->not_in_script) import_lacks(o.out, c->not_in_script);
}
END_TEST

Suite *export_megatron_suite(void) {
  Suite *s = suite_create("export_megatron");
  TCase *c = tcase_create("export_megatron");
  tcase_add_checked_fixture(c, scratch_setup, scratch_teardown);
  tcase_set_timeout(c, 400);
  tcase_add_test(c, a_script_says_the_plan);
  tcase_add_test(c, stages_are_a_layout_where_they_are_not_equal);
  tcase_add_loop_test(c, what_megatron_refuses, 0, LEN(cases));
  suite_add_tcase(s, c);
  return s;
}
