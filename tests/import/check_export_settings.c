/* check_export_settings.c - weft export as a user sees it: settings that weft import
 * reads as the same plan, a list of what they do not say, and random plans there and
 * back. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/harness/export_settings.h"
#include "tests/harness/import_files.h"
#include "tests/harness/scratch.h"

enum { SECONDS = 120 };

#define PLAN                                                                             \
  "local weft = require \"weft\"\n"                                                      \
  "return weft.plan {\n"                                                                 \
  "  name = \"small\",\n"                                                                \
  "  model = weft.model { \"qwen3\", num_hidden_layers = 7, hidden_size = 64,\n"         \
  "    num_attention_heads = 4, num_key_value_heads = 2, head_dim = 16,\n"               \
  "    intermediate_size = 96, vocab_size = 256 },\n"                                    \
  "  mesh = { tp = 2, pp = 2, dp = 2 },\n"                                               \
  "  schedule = \"interleaved_1f1b\",\n"                                                 \
  "  pp_plan = { virtual = 2 },\n"                                                       \
  "  precision = \"bf16\",\n"                                                            \
  "  recompute = \"full\",\n"                                                            \
  "  batch = { global = 16, micro = 2, seq = 32 },\n"                                    \
  "  optimizer = weft.adamw { lr = weft.cosine { max = 1e-5, min = 1e-6, warmup = 2 "    \
  "},\n"                                                                                 \
  "    betas = { 0.8, 0.99 }, clip = 0.5, decay_vectors = true },\n"                     \
  "  train = { steps = 12, seed = 7 },\n"                                                \
  "  data = weft.synthetic {},\n"

#define AUTOMODEL PLAN "  strategy = { \"fsdp2\", sequence_parallel = true },\n"

START_TEST(a_recipe_says_the_plan) {
  import_put("a.lua", AUTOMODEL "}\n");
  Outcome o = export_settings(0, "--to automodel a.lua -o out");
  import_has(o.out, "They say all ");
  const char *yaml = export_file("out/recipe.yaml");
  import_has(yaml, "  tp_size: 2  # mesh.tp\n");
  import_has(yaml, "    pp_schedule: interleaved1f1b  # schedule\n");
  import_has(yaml, "  lr: 1.0e-05  # optimizer.lr\n"); /* 1e-05 is a text in YAML 1.1 */
  import_has(yaml, "    _target_: transformers.Qwen3Config  # model\n");
  import_has(export_file("out/environment.sh"), "torchrun --nnodes 1 --nproc-per-node 8");
  Outcome csv = process_run(SECONDS, "$weft show schedule --csv a.lua");
  ck_assert_str_eq(export_file("out/schedule.csv"), csv.out);
  process_run(SECONDS, "$weft import out/recipe.yaml -o b.lua");
  export_same_programs("a.lua", "b.lua");
  /* Without a folder the settings go to the standard output, the list beside it. */
  o = export_settings(0, "--to automodel a.lua");
  ck_assert_str_eq(o.out, yaml);
  import_has(o.err, "They say all ");
}
END_TEST

/* Tables in tables of a config are what they hold, wherever they lie. */
START_TEST(tables_in_tables_are_compared) {
  import_put(
      "a.lua",
      "local weft = require \"weft\"\n"
      "return weft.plan { model = weft.model { \"laguna\" }, mesh = { dp = 8, ep = 8 },\n"
      "  precision = \"bf16\", strategy = \"fsdp2\", moe = { dispatcher = \"alltoall\" "
      "},\n"
      "  batch = { global = 8, micro = 1, seq = 4096 }, data = weft.synthetic {},\n"
      "  optimizer = weft.adamw { lr = 1e-4, decay_vectors = true } }\n");
  Outcome o = export_settings(0, "--to automodel a.lua -o out");
  import_has(o.out, "They say all ");
}
END_TEST

/* Ratios are said as the steps and rates that they come to. */
START_TEST(rates_are_said_in_steps) {
  import_put("a.lua", AUTOMODEL "}\n");
  process_run(SECONDS,
              "sed -i 's/weft.cosine {.*/weft.wsd { max = 1e-4, min_ratio = 0.1, "
              "warmup_ratio = 0.25, decay_ratio = 0.5, decay_style = \"minus_sqrt\" },/' "
              "a.lua");
  Outcome o = export_settings(0, "--to automodel a.lua -o out");
  import_has(o.out, "They say all ");
  const char *yaml = export_file("out/recipe.yaml");
  import_has(yaml, "  lr_decay_style: WSD  # optimizer.lr\n");
  import_has(yaml, "  lr_warmup_steps: 3  # optimizer.lr.warmup\n");
  import_has(yaml, "  wsd_decay_steps: 6  # optimizer.lr.decay\n");
  import_has(yaml, "  min_lr: 1.0e-05  # optimizer.lr.min\n");
  process_run(
      SECONDS,
      "sed -i 's/weft.wsd {.*/weft.polynomial { max = 1e-4, power = 2 },/' a.lua");
  o = export_settings(0, "--to automodel a.lua -o near");
  import_has(o.out, "  optimizer.lr: polynomial here, linear as these settings say it\n");
  import_has(o.out, "  optimizer.lr.power: 2 here, nothing as these settings say it\n");
}
END_TEST

/* One stage for each rank, of a schedule that has two if nothing is said. */
START_TEST(one_stage_for_each_rank) {
  import_put("a.lua", AUTOMODEL "}\n");
  Outcome o =
      export_settings(0, "--to automodel a.lua -o out --set pp_plan.virtual=1 --set "
                         "schedule=zero_bubble --set batch.micro=1");
  import_has(o.out, "They say all ");
  process_run(SECONDS, "$weft import out/recipe.yaml -o b.lua");
  import_has(export_file("b.lua"), "virtual = 1,");
}
END_TEST

START_TEST(what_is_not_said_is_listed) {
  import_put("a.lua", PLAN "  strategy = { \"zero\", stage = 1 },\n"
                           "  nccl = { algo = \"ring\" },\n  packed = { eot = 3 },\n}\n");
  Outcome o = export_settings(0, "--to automodel a.lua -o out "
                                 "--set packed.labels=within");
  import_has(o.out, "What they do not say (");
  import_has(o.out, "  packed.labels: within here, all as these settings say it\n");
  import_has(o.out, "  packed: eot = 3 here, nothing as these settings say it\n");
  import_has(o.out, "  strategy: zero here, ");
  import_has(export_file("out/recipe.yaml"), "#   packed.labels: within here");
  import_has(export_file("out/environment.sh"), "export NCCL_ALGO='Ring'\n");
  import_lacks(o.out, "mesh.tp");
  import_put("a.lua", PLAN "  freeze = { \"lm_head\" },\n"
                           "  groups = { { \"norm\", lr = 0.5 } },\n}\n");
  o = export_settings(0, "--to automodel a.lua -o frozen");
  import_has(o.out, "  freeze: { \"lm_head\" } here, nothing as these settings say it\n");
  import_has(o.out, "  groups: { { \"norm\", lr = 0.5 } } here, nothing as these");
}
END_TEST

/* AdamW of other systems, in the place of what they have not, gets no eps of 0. */
START_TEST(eps_is_that_of_averages) {
  static const struct {
    const char *to, *file, *eps;
  } cases[] = {{"automodel", "recipe.yaml", "  eps: "},
               {"deepspeed", "ds_config.json", "\"eps\""},
               {"torchtitan", "config.toml", "\neps = "},
               {"megatron", "train.sh", "--adam-eps"}};
  static const struct {
    const char *optimizer, *eps;
    bool has;
  } kinds[] = {{"adafactor", "optimizer.eps: 1.1920928955078125e-07, 0.001 here", false},
               {"lion", "optimizer.eps: nothing here, 1e-08 as these settings", false},
               {"sgd", "optimizer.eps: nothing here, 1e-08 as these settings", false},
               {"muon", "optimizer: muon here, adamw as these settings", true},
               {"adamw_8bit", "optimizer: adamw_8bit here", true}};
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
    char text[2048];
    snprintf(text, sizeof text,
             "local weft = require 'weft'\n"
             "return weft.plan { model = weft.model { 'llama', num_hidden_layers = 2,\n"
             "  hidden_size = 64, num_attention_heads = 4, intermediate_size = 96,\n"
             "  vocab_size = 256 }, mesh = { dp = 2 }, precision = 'bf16',\n"
             "  strategy = { 'fsdp2' }, batch = { global = 4, micro = 2, seq = 32 },\n"
             "  optimizer = weft.%s { lr = 1e-3 }, train = { steps = 12 },\n"
             "  data = weft.synthetic {} }\n",
             kinds[k].optimizer);
    import_put("a.lua", text);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
      char args[64], file[64];
      snprintf(args, sizeof args, "--to %s a.lua -o out%zu%zu", cases[i].to, k, i);
      snprintf(file, sizeof file, "out%zu%zu/%s", k, i, cases[i].file);
      Outcome o = export_settings(0, args);
      const char *settings = export_file(file);
      bool own = k == 0 && i == 0, sgd = k == 2 && i == 3;
      ck_assert_msg(own || !strstr(settings, cases[i].eps) == !kinds[k].has, "%s",
                    settings);
      if (!own && !sgd) import_has(o.out, kinds[k].eps);
    }
  }
}
END_TEST

/* Adafactor of PyTorch, and of Transformers where that has the same. */
START_TEST(adafactor_there_and_back) {
  static const char *const cases[][2] = {
      {"d = 2, beta2_decay = -0.7, eps = { 1e-9, 0.01 }", "torch.optim.Adafactor"},
      {"relative_step = false, scale_parameter = false", "transformers.Adafactor"},
      {"relative_step = false, d = 1.5, eps = { 1e-15, 0.01 }", "transformers.Adafactor"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char command[256];
    import_put("a.lua", AUTOMODEL "}\n");
    snprintf(command, sizeof command,
             "sed -i -e 's/weft.adamw.*/weft.adafactor { lr = 1e-3, %s, clip = 0.5,/' -e "
             "'s/betas = .*/},/' a.lua",
             cases[i][0]);
    process_run(SECONDS, command);
    Outcome o = export_settings(0, "--to automodel a.lua -o out");
    import_has(o.out, "They say all ");
    import_has(export_file("out/recipe.yaml"), cases[i][1]);
    process_run(SECONDS, "$weft import out/recipe.yaml -o b.lua");
    export_same_programs("a.lua", "b.lua");
    process_run(SECONDS, "rm -r out b.lua");
  }
}
END_TEST

/* What learns, a window that is off, where the class has one, and a head in pieces. */
START_TEST(what_weft_has_and_recipes_say) {
  import_put("a.lua", AUTOMODEL
             "  adapter = { \"lora\", rank = 4, alpha = 8, dropout = 0.1, dora = true,\n"
             "    targets = { \"q_proj\", \"layers.*.mlp.up_proj\" } },\n"
             "  loss_chunks = \"auto\",\n}\n");
  process_run(SECONDS, "sed -i s/qwen3/mistral/ a.lua");
  Outcome o =
      export_settings(0, "--to automodel a.lua -o out --set model.sliding_window=false");
  import_has(o.out, "They say all ");
  const char *yaml = export_file("out/recipe.yaml");
  import_has(yaml, "    sliding_window: null\n");
  import_has(yaml, "  target_modules: [\"*.q_proj\", \"model.layers.*.mlp.up_proj\"]");
  import_has(yaml, "  dropout_position: pre  # adapter.dropout_position\n");
  import_has(yaml, "  use_dora: true  # adapter.dora\n");
  import_has(yaml, "linear_ce.FusedLinearCrossEntropy  # loss_chunks\n");
  process_run(SECONDS, "$weft import out/recipe.yaml -o b.lua");
  export_same_programs("a.lua --set model.sliding_window=false", "b.lua");
  /* Logits that are capped are not made in pieces. */
  Outcome i = process_run(
      SECONDS, "$weft import out/recipe.yaml -o c.lua "
               "model.config._target_=transformers.Gemma2Config "
               "model.config.sliding_window=8 "
               "model.config.hidden_act=gelu_pytorch_tanh && $weft check -q c.lua");
  ck_assert_msg(i.code == 0, "%s%s", i.out, i.err);
  import_lacks(export_file("c.lua"), "loss_chunks = ");
  /* rslora is PEFT's alone. */
  o = export_settings(0, "--to automodel a.lua -o other --set adapter.rslora=true");
  import_has(o.out, "  adapter.rslora: true here, false as these settings say it\n");
  /* Gemma 3 has a config for texts beside one for images. */
  process_run(SECONDS, "sed -i s/mistral/gemma3_text/ a.lua");
  o = export_settings(0, "--to automodel a.lua");
  import_has(o.out, "    _target_: transformers.Gemma3TextConfig  # model\n");
}
END_TEST

/* A teacher that is a folder, and the divergence that AutoModel has; of a name of the
 * hub, and of another temperature, the report says what the plan would have. */
START_TEST(a_teacher_there_and_back) {
  process_run(SECONDS, "cp -r " WEFT_SOURCE_DIR "/tests/oracle/llama teacher");
  import_put("a.lua",
             AUTOMODEL "  loss = { \"distill\", teacher = \"./teacher\", alpha = "
                       "0.25 },\n}\n");
  process_run(SECONDS,
              "sed -i 's/qwen3/llama/; s/vocab_size = 256/vocab_size = 96/' a.lua");
  Outcome o = export_settings(0, "--to automodel a.lua -o out");
  import_has(o.out, "They say all ");
  const char *yaml = export_file("out/recipe.yaml");
  import_has(yaml, "recipe: KnowledgeDistillationRecipeForNextTokenPrediction\n");
  import_has(yaml, "  pretrained_model_name_or_path: \"./teacher\"  # loss.teacher\n");
  import_has(yaml, "kd_ratio: 0.25  # loss.alpha\n");
  o = process_run(SECONDS, "$weft import out/recipe.yaml -o b.lua");
  ck_assert_msg(o.code == 0, "%s%s", o.out, o.err);
  import_has(export_file("b.lua"), "teacher = \"./teacher\"");
  export_same_programs("a.lua", "b.lua");
  o = process_run(SECONDS, "$weft import out/recipe.yaml -o c.lua "
                           "teacher_model.pretrained_model_name_or_path=meta-llama/Big");
  import_has(o.out, "loss = { \"distill\", teacher = \"DIR\", alpha = 0.25 } once "
                    "meta-llama/Big is there");
  import_lacks(export_file("c.lua"), "\n  loss = {");
  o = process_run(SECONDS, "$weft import out/recipe.yaml -o d.lua "
                           "kd_loss_fn.temperature=2");
  import_has(o.out, "multiplies the divergence by the square of the temperature");
  import_lacks(export_file("d.lua"), "\n  loss = {");
  o = export_settings(0, "--to automodel a.lua -o other --set loss.beta=0.5");
  import_has(o.out, "  loss: alpha = 0.25, beta = 0.5, distill, ");
  /* Nor is any other loss left out without a word, nor patterns of an adapter. */
  import_put("e.lua",
             AUTOMODEL "  loss = { \"cross_entropy\", per = \"sequences\" },\n"
                       "  adapter = { \"lora\", rank = 2, rank_pattern = { q_proj "
                       "= 4 } },\n}\n");
  o = export_settings(0, "--to automodel e.lua -o more");
  import_has(o.out, "  loss: cross_entropy, per = sequences here, nothing as these");
  import_has(o.out, "  adapter.rank_pattern: q_proj = 4 here, nothing as these");
}
END_TEST

/* What a plan holds gets out of neither its comment, nor its text, nor the shell's. */
START_TEST(texts_stay_what_they_are) {
  import_put("a.lua", AUTOMODEL
             "  checkpoint = { dir = \"no: 1 # x\", save_consolidated = false },\n"
             "  nccl = { hostid = \"it's $(touch gone)\" },\n}\n");
  export_settings(0, "--to automodel a.lua -o out");
  const char *yaml = export_file("out/recipe.yaml");
  import_has(yaml, "  checkpoint_dir: \"no: 1 # x\"  # checkpoint.dir\n");
  process_run(SECONDS, "sh out/environment.sh");
  ck_assert_str_eq(export_file("gone"), "");
  Outcome o = process_run(SECONDS, "sh -c '. out/environment.sh; echo \"$NCCL_HOSTID\"'");
  ck_assert_str_eq(o.out, "it's $(touch gone)\n");
  process_run(SECONDS, "$weft import out/recipe.yaml -o b.lua");
  import_has(export_file("b.lua"), "dir = \"no: 1 # x\",");
}
END_TEST

START_TEST(deepspeed_says_zero) {
  import_put("a.lua",
             "local weft = require \"weft\"\n"
             "return weft.plan {\n"
             "  model = weft.model { \"llama\", num_hidden_layers = 2,\n"
             "    hidden_size = 64, num_attention_heads = 4, intermediate_size = 96,\n"
             "    vocab_size = 256, max_position_embeddings = 32 },\n"
             "  mesh = { dp = 8 },\n"
             "  strategy = { \"zero\", stage = 3, param_persistence_threshold = 100,\n"
             "    offload_optimizer = \"cpu\", offload_param = \"cpu\" },\n"
             "  precision = \"bf16\",\n"
             "  batch = { global = 32, micro = 2, seq = 32 },\n"
             "  optimizer = weft.adamw { lr = 1e-4, weight_decay = 0 },\n"
             "  data = weft.synthetic {},\n}\n");
  Outcome o = export_settings(0, "--to deepspeed a.lua -o out");
  import_has(o.out, "What weft import assumes, as they do not say it: batch.seq");
  import_has(o.out, "They say all else of the plan.");
  import_has(export_file("out/ds_config.json"), "\"gradient_accumulation_steps\": 2,");
  import_has(export_file("out/config.json"), "\"model_type\": \"llama\",");
  Outcome i = process_run(SECONDS, "$weft import out/ds_config.json --world 8 --model "
                                   "./out -o b.lua");
  ck_assert_msg(i.code == 0, "%s", i.err);
  i = process_run(SECONDS, "$weft import out/");
  import_has(i.err, "settings: config.json alone is read: other settings of the folder "
                    "are those of out/ds_config.json --model ./out\n");
  import_has(process_run(SECONDS, "$weft report out").out,
             "assumed config.json alone is read");
  for (int rank = 0; rank < 1; rank++) {
    Outcome x = process_run(SECONDS, "$weft show program %d a.lua", rank);
    Outcome y = process_run(SECONDS, "$weft show program %d b.lua", rank);
    ck_assert_str_eq(x.out, y.out);
  }
  o = export_settings(0, "--to deepspeed a.lua --set batch.seq=16 --set train.seed=3");
  import_has(o.err, "What they do not say (2):\n"
                    "  batch.seq: 16 here, 32 as these settings say it\n"
                    "  train.seed: 3 here, 0 as these settings say it\n");
  o = export_settings(2, "--to deepspeed a.lua --set mesh.tp=2 --set mesh.dp=4");
  import_has(o.err, "(autotp_size) goes with ZeRO stages 0 to 2");
  /* The names that DeepSpeed's cosine has; fewer than 2 steps of warmup it refuses. */
  process_run(SECONDS, "sed -i s/1e-4/weft.cosine{max=1e-4,min=1e-5}/ a.lua");
  export_settings(0, "--to deepspeed a.lua -o rate");
  import_has(export_file("rate/ds_config.json"), "\"cos_min_ratio\": 0.1,");
  import_has(export_file("rate/ds_config.json"), "\"warmup_num_steps\": 2");
}
END_TEST

START_TEST(wrong_use_is_told) {
  import_put("a.lua", AUTOMODEL "}\n");
  Outcome o = export_settings(2, "--to automodle a.lua");
  import_has(o.err,
             "--to automodle: is none of automodel, deepspeed, megatron, torchtitan (did "
             "you mean "
             "\"automodel\"?)");
  o = export_settings(2, "a.lua");
  import_has(o.err,
             "--to automodel|deepspeed|megatron|torchtitan; weights are written by weft "
             "ckpt export");
  o = export_settings(2, "--to automodel a.lua ckpt/ out/");
  import_has(o.err, "weft ckpt export PLAN CKPT DIR");
  o = export_settings(1, "--to automodel a.lua --set mesh.tp=3");
  import_has(o.err, "plan.mesh.tp: 3 does not divide");
  o = export_settings(1, "--to automodel " WEFT_SOURCE_DIR "/plans/custom_model.lua");
  import_has(o.err, "cannot say this plan: the model is a function of the plan");
  /* A folder with something in it is not replaced. */
  export_settings(0, "--to automodel a.lua -o out");
  o = export_settings(2, "--to automodel a.lua -o out");
  import_has(o.err, "out");
}
END_TEST

static const char *const systems[] = {"automodel", "deepspeed", "megatron", "torchtitan"};

/* Draws plans, exports and imports them again; what of it must be told. */
static void round_trips(const char *arguments, const char *says) {
  Outcome o = process_run(300,
                          "$weft lua " WEFT_SOURCE_DIR "/tests/import/round_trip.lua "
                          "$weft " WEFT_BINARY_DIR "/weft-tests %s",
                          arguments);
  ck_assert_msg(o.code == 0, "%s%s", o.out, o.err);
  import_has(o.out, says);
}

/* More of them: ./dev round-trips N. */
START_TEST(random_plans_there_and_back) {
  round_trips(arena_printf(scratch_arena, "%s 8", systems[_i]), "; 0 faults");
}
END_TEST

/* Plans of what the tables of docs/import.md say that a system can say. */
START_TEST(plans_of_what_it_can_say) {
  round_trips(arena_printf(scratch_arena, "%s 12 3 said", systems[_i]),
              "12 said in full");
}
END_TEST

Suite *export_settings_suite(void) {
  Suite *s = suite_create("export_settings");
  TCase *c = tcase_create("export_settings");
  tcase_add_checked_fixture(c, scratch_setup, scratch_teardown);
  tcase_set_timeout(c, 400);
  tcase_add_test(c, a_recipe_says_the_plan);
  tcase_add_test(c, rates_are_said_in_steps);
  tcase_add_test(c, tables_in_tables_are_compared);
  tcase_add_test(c, one_stage_for_each_rank);
  tcase_add_test(c, what_is_not_said_is_listed);
  tcase_add_test(c, eps_is_that_of_averages);
  tcase_add_test(c, adafactor_there_and_back);
  tcase_add_test(c, what_weft_has_and_recipes_say);
  tcase_add_test(c, a_teacher_there_and_back);
  tcase_add_test(c, texts_stay_what_they_are);
  tcase_add_test(c, deepspeed_says_zero);
  tcase_add_test(c, wrong_use_is_told);
  tcase_add_loop_test(c, random_plans_there_and_back, 0, LEN(systems));
  tcase_add_loop_test(c, plans_of_what_it_can_say, 0, LEN(systems));
  suite_add_tcase(s, c);
  return s;
}
