/* check_export_titan.c - weft export --to torchtitan as a user sees it: TOML, and where
 * torchtitan does not ship the model its arguments in Python, that weft import reads as
 * the same plan; schedules as tables; what torchtitan refuses, as a table of plans. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/harness/export_settings.h"
#include "tests/harness/import_files.h"
#include "tests/harness/scratch.h"

enum { SECONDS = 120 };

#define HEAD "local weft = require \"weft\"\nreturn weft.plan {\n  name = \"my plan\",\n"
#define SMALL                                                                            \
  "  model = weft.model { \"llama\", num_hidden_layers = 8, hidden_size = 64,\n"         \
  "    num_attention_heads = 4, num_key_value_heads = 2, intermediate_size = 100,\n"     \
  "    vocab_size = 256, max_position_embeddings = 64 },\n"
#define SHIPPED "  model = weft.model \"qwen3-8b\",\n"
#define EXPERTS                                                                          \
  "  model = weft.model { \"qwen3_moe\", num_hidden_layers = 8, hidden_size = 64,\n"     \
  "    num_attention_heads = 4, num_key_value_heads = 2, intermediate_size = 96,\n"      \
  "    moe_intermediate_size = 32, vocab_size = 256, num_experts = 8, head_dim = 16,\n"  \
  "    num_experts_per_tok = 2 },\n"
/* Scaled from 32 positions on. */
#define SCALED                                                                           \
  "  model = weft.model { \"deepseek_v3\", num_hidden_layers = 8, hidden_size = 64,\n"   \
  "    num_attention_heads = 4, num_key_value_heads = 4, intermediate_size = 96,\n"      \
  "    moe_intermediate_size = 32,\n"                                                    \
  "    vocab_size = 256, n_routed_experts = 8, n_group = 1, topk_group = 1,\n"           \
  "    num_experts_per_tok = 2, first_k_dense_replace = 2, q_lora_rank = 16,\n"          \
  "    kv_lora_rank = 16, qk_nope_head_dim = 16, qk_rope_head_dim = 8,\n"                \
  "    v_head_dim = 16, num_nextn_predict_layers = 0, rope_scaling = { type = "          \
  "\"yarn\",\n"                                                                          \
  "      factor = 4, mscale = 1, mscale_all_dim = 1, beta_fast = 32, beta_slow = 1,\n"   \
  "      original_max_position_embeddings = 32 } },\n"
#define REST                                                                             \
  "  mesh = { tp = 2, pp = 2, dp = 2 },\n"                                               \
  "  strategy = { \"fsdp2\", sequence_parallel = true },\n"                              \
  "  schedule = \"1f1b\",\n"                                                             \
  "  precision = \"bf16\",\n"                                                            \
  "  batch = { global = 16, micro = 2, seq = 32, rounds = 2 },\n"                        \
  "  optimizer = weft.adamw { lr = weft.cosine { max = 1e-5, min = 1e-6, warmup = 2 "    \
  "}, clip = 0, decay_vectors = true },\n"                                               \
  "  train = { steps = 12, seed = 7 },\n"                                                \
  "  data = weft.synthetic {},\n}\n"

static Outcome export(int code, const char *arguments) {
  return export_settings(code,
                         arena_printf(scratch_arena, "--to torchtitan %s", arguments));
}

START_TEST(a_model_of_ones_own_is_a_table_in_python) {
  import_put("a.lua", HEAD SMALL REST);
  Outcome o = export(0, "a.lua -o out");
  import_has(o.out, "They say all else of the plan.");
  const char *toml = export_file("out/config.toml");
  import_has(toml,
             "[model]\nname = \"llama3\"  # model\nflavor = \"my_plan\"  # model\n");
  import_has(toml, "tensor_parallel_degree = 2  # mesh.tp\n");
  import_has(toml, "pipeline_parallel_schedule = \"1F1B\"  # schedule\n");
  import_has(toml, "module_fqns_per_model_part = [[\"tok_embeddings\", \"layers.0\",");
  import_has(toml, "max_norm = inf  # optimizer.clip\n");
  import_lacks(toml, "schedule_csv");
  const char *python = export_file("out/args.py");
  import_has(python, "    \"my_plan\": TransformerModelArgs(\n        dim=64,\n");
  import_has(python,
             "        multiple_of=100,\n"); /* 2/3 of 4 * 64, up to a multiple of it */
  process_run(SECONDS,
              "$weft import out/config.toml --model out/args.py:my_plan -o b.lua");
  export_same_programs("a.lua", "b.lua");
  import_has(export_file("b.lua"), "intermediate_size = 100,");
  import_has(export_file("b.lua"), "clip = 0.0,");
  import_fails(1, "out/config.toml", "", "is --model out/args.py:my_plan\n");
  import_fails(2, "out", "",
               "out: has no config.json; other settings are there: give out/config.toml "
               "--model out/args.py:my_plan\n");
}
END_TEST

START_TEST(a_flavor_is_named_where_the_sizes_match) {
  import_put("a.lua", HEAD SHIPPED REST);
  Outcome o = export(0, "a.lua -o out");
  import_has(o.out, "They say all else of the plan.");
  import_has(export_file("out/config.toml"), "flavor = \"8B\"  # model\n");
  import_lacks(process_run(SECONDS, "ls out").out, "args.py");
  o = export(0, "a.lua -o other --set model.rms_norm_eps=1e-5");
  import_has(export_file("other/config.toml"), "flavor = \"my_plan\"  # model\n");
  import_has(export_file("other/args.py"), "norm_eps=1e-05,");
}
END_TEST

/* A schedule that has no name there is a table of its actions; as a plan it is the same
 * but for the lines of the table that instructions are from. */
START_TEST(a_schedule_without_a_name_is_a_table) {
  import_put("a.lua", HEAD SMALL REST);
  Outcome o = export(0, "a.lua -o out --set schedule=zb_h2");
  import_has(o.out, "They say all else of the plan.");
  const char *toml = export_file("out/config.toml");
  import_has(toml, "pipeline_parallel_schedule_csv = \"schedule.csv\"  # schedule\n");
  import_has(toml, "pipeline_parallel_schedule = \"GPipe\"  # schedule\n");
  process_run(SECONDS, "$weft import out/config.toml --model out/args.py:my_plan -o "
                       "out/b.lua");
  import_has(export_file("out/b.lua"), "schedule = weft.schedule_csv \"schedule.csv\",");
  Outcome x = process_run(SECONDS, "$weft show program 4 a.lua --set schedule=zb_h2");
  Outcome y = process_run(SECONDS, "$weft show program 4 out/b.lua | sed "
                                   "'s/  line [0-9]*$//'");
  ck_assert_int_eq(x.code, 0);
  ck_assert_str_eq(x.out, y.out);
  /* Without the table the schedule is the one by name, and the setting is told. */
  process_run(SECONDS, "mv out/schedule.csv gone.csv");
  o = process_run(SECONDS, "$weft import out/config.toml --model out/args.py:my_plan");
  import_has(o.out, "schedule = \"gpipe\",");
  import_has(o.err, "there is none of this name beside the settings");
}
END_TEST

/* Scores multiply what comes of experts: torchtitan's default is another one. */
START_TEST(experts_get_tokens_as_they_are) {
  static const char *const models[] = {EXPERTS, SCALED};
  for (int i = 0; i < LEN(models); i++) {
    import_put("a.lua", arena_printf(scratch_arena, "%s%s%s", HEAD, models[i], REST));
    const char *dir = arena_printf(scratch_arena, "out%d", i);
    export(0, arena_printf(scratch_arena, "a.lua -o %s", dir));
    import_has(export_file(arena_printf(scratch_arena, "%s/args.py", dir)),
               "score_before_experts=False,");
  }
}
END_TEST

static const struct Case {
  const char *model, *set;
  int code;
  const char *said, *settings, *not_in_settings;
} cases[] = {
    /* Copies without shards go with neither tp nor pp. */
    {SMALL, "--set 'strategy={\"zero\",stage=0}'", 0, "strategy: zero here, fsdp2",
     "data_parallel_shard_degree = 2", NULL},
    {SMALL, "--set strategy=ddp --set mesh.tp=1 --set mesh.pp=1 --set batch.rounds=1", 0,
     "They say all else", "data_parallel_replicate_degree = 2", NULL},
    {SMALL, "--set strategy.enable_async_tensor_parallel=true", 0, "They say all else",
     "[compile]\nenable = true", NULL},
    {SMALL, "--set strategy.sequence_parallel=false", 0,
     "strategy.sequence_parallel: false here, true", NULL, "sequence_parallel"},
    {EXPERTS, "--set mesh.ep=2 --set mesh.etp=1 --set moe.dispatcher=alltoall", 0,
     "They say all else", "expert_tensor_parallel_degree = 1", NULL},
    {SMALL, "--set schedule=interleaved_1f1b --set pp_plan.virtual=2", 0,
     "They say all else", "\"Interleaved1F1B\"", "schedule_csv"},
    {SMALL, "--set schedule=zero_bubble --set pp_plan.virtual=1", 0, "They say all else",
     "\"schedule.csv\"", "\"InterleavedZeroBubble\""},
    {SMALL, "--set checkpoint.dir=ckpt --set checkpoint.keep=1", 0,
     "checkpoint.keep: 1 here, 2", "keep_latest_k = 2", NULL},
    {SMALL, "--set precision=f16", 0, "precision.param_dtype: f16 here, bf16",
     "mixed_precision_param = \"bfloat16\"", NULL},
    {SMALL, "--set optimizer.eps=1e-6 --set train.seed=0", 0, "They say all else",
     "seed = 0", NULL},
    {SMALL, "--set mesh.tp=1 --set mesh.cp=2 --set cp.balance=none --set batch.seq=30", 1,
     "sequences are a multiple of tp times two pieces", NULL, NULL},
    /* torchtitan scales positions of longer sequences alone. */
    {SCALED, "", 0, "model.rope_scaling.factor: 4 here, nothing as these settings say it",
     NULL, NULL},
    {SCALED, "--set batch.seq=64", 0, "They say all else", NULL, NULL},
    {"  model = weft.model \"gpt2\",\n", "", 1,
     "gpt2: torchtitan has llama, qwen3, qwen3_moe and deepseek_v3", NULL, NULL},
};

START_TEST(what_torchtitan_refuses) {
  const struct Case *c = &cases[_i];
  char plan[4096];
  snprintf(plan, sizeof plan, "%s%s%s", HEAD, c->model, REST);
  import_put("a.lua", plan);
  char arguments[512];
  snprintf(arguments, sizeof arguments, "a.lua %s", c->set);
  Outcome o = export(c->code, arguments);
  import_has(o.err, c->said);
  if (c->settings) import_has(o.out, c->settings);
  if (c->not_in_settings)
    import_lacks(strstr(o.out, "[job]"), c->not_in_settings); /* behind the comment */
}
END_TEST

Suite *export_titan_suite(void) {
  Suite *s = suite_create("export_titan");
  TCase *c = tcase_create("export_titan");
  tcase_add_checked_fixture(c, scratch_setup, scratch_teardown);
  tcase_set_timeout(c, 400);
  tcase_add_test(c, a_model_of_ones_own_is_a_table_in_python);
  tcase_add_test(c, a_flavor_is_named_where_the_sizes_match);
  tcase_add_test(c, a_schedule_without_a_name_is_a_table);
  tcase_add_test(c, experts_get_tokens_as_they_are);
  tcase_add_loop_test(c, what_torchtitan_refuses, 0, LEN(cases));
  suite_add_tcase(s, c);
  return s;
}
