/* check_export_run.c - weft run --export and weft ckpt export: the config.json beside the
 * weights, which Transformers reads, tokens, checkpoints, processes. */
#include <check.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bindings/model/model.h"
#include "tests/harness/export_runs.h"
#include "tests/harness/process.h"

/* Another model in the folder's place: config and files beside it follow. */
START_TEST(a_run_exports_at_its_end) {
  static const char plan[] =
      "local weft = require 'weft'\n"
      "return weft.plan { model = weft.hf { '" ORACLES "llama', num_hidden_layers = 2, "
      "weights = false }, mesh = { tp = 2 }, batch = { global = 2, micro = 1, seq = 8 } "
      "}\n";
  scratch_put("p.lua", plan, strlen(plan));
  Outcome o =
      process_run(60, "$weft run p.lua --data " ORACLES
                      " --steps 1 -q --export new --dtype bf16 --shard-size 30KB");
  ck_assert_msg(o.code == 0, "%s", o.err);
  const char *config = scratch_get(scratch_path("new/config.json"));
  ck_assert_ptr_nonnull(strstr(config, "\"num_hidden_layers\": 2"));
  ck_assert_ptr_nonnull(strstr(config, "\"dtype\": \"bfloat16\""));
  ck_assert_ptr_nonnull(strstr(config, "\"architectures\": ["));
  o = process_run(60, "$weft run p.lua --data " ORACLES " --steps 1 -q --export new");
  ck_assert_int_eq(o.code, 2);
  ck_assert_ptr_nonnull(strstr(o.err, "new: error: exists and is not empty"));
  o = process_run(60, "$weft run p.lua --data " ORACLES " --steps 1 -q --export n "
                      "--dtype f8");
  ck_assert_int_eq(o.code, 2);
  ck_assert_ptr_nonnull(strstr(o.err, "--dtype is f32, bf16 or f16, got \"f8\""));
  o = process_run(60, "$weft run p.lua --data " ORACLES " --steps 1 -q --export n "
                      "--shard-size 5XB");
  ck_assert_int_eq(o.code, 2);
  ck_assert_ptr_nonnull(strstr(o.err, "--shard-size takes a size as 5GB or 800MB"));
}
END_TEST

/* A folder that weft has made says its type by two keys, for each of which there is a
 * Transformers that reads it first. */
START_TEST(both_keys_of_a_type_are_set) {
  Exporter f;
  Text config = {0};
  bool known;
  exporter_start(
      &f,
      "weft.model { 'llama', vocab_size = 32, hidden_size = 16, "
      "intermediate_size = 8, num_hidden_layers = 1, num_attention_heads = 2 }",
      export_meshes[0]);
  must(lang_hf_config(f.job.lp, NULL, DT_F32, &config, &known, &f.job.e), &f.job.e,
       "config");
  ck_assert_int_eq(mkdir(scratch_path("made"), 0755), 0);
  scratch_put("made/config.json", config.s, config.n);
  exporter_end(&f);
  config.n = 0;
  exporter_start(&f, "weft.hf { 'made', weights = false }", export_meshes[0]);
  must(lang_hf_config(f.job.lp, NULL, DT_BF16, &config, &known, &f.job.e), &f.job.e,
       "config");
  ck_assert_msg(strstr(config.s, "\"dtype\": \"bfloat16\"") &&
                    strstr(config.s, "\"torch_dtype\": \"bfloat16\"") &&
                    !strstr(config.s, "float32"),
                "%s", config.s);
  text_free(&config);
  exporter_end(&f);
}
END_TEST

/* Classes of transformers refuse 0 for 0.0 and 8.0 for 8: of what the plan gives, of
 * defaults, and of what it changes in a folder's. */
START_TEST(numbers_keep_their_types) {
  static const struct {
    const char *model, *has[4];
  } cases[] = {
      {"weft.model { 'mixtral', vocab_size = 32, hidden_size = 16, "
       "intermediate_size = 64 / 4, num_hidden_layers = 1, num_attention_heads = 2, "
       "num_key_value_heads = 2, num_local_experts = 2, rms_norm_eps = 1 }",
       {"\"router_jitter_noise\": 0.0,", "\"rms_norm_eps\": 1.0,",
        "\"intermediate_size\": 16,", "\"head_dim\": 8,"}},
      {"weft.hf { '" ORACLES "deepseek_v3_moe', routed_scaling_factor = 2, "
       "num_hidden_layers = 4 / 2, weights = false }",
       {"\"routed_scaling_factor\": 2.0,", "\"num_hidden_layers\": 2,",
        "\"rope_theta\": 10000.0,", "\"n_group\": 4,"}}};
  Exporter f;
  Text config = {0};
  bool known;
  exporter_start(&f, cases[_i].model, export_meshes[0]);
  must(lang_hf_config(f.job.lp, NULL, DT_F32, &config, &known, &f.job.e), &f.job.e,
       "config");
  for (int i = 0; i < 4; i++)
    ck_assert_msg(strstr(config.s, cases[_i].has[i]), "%s is not in %s", cases[_i].has[i],
                  config.s);
  text_free(&config);
  exporter_end(&f);
}
END_TEST

/* A class has defaults of its own for what is not written, reads some names alone, and
 * takes no false where a list or a number is missing. */
START_TEST(what_is_written_is_read) {
  static const struct {
    const char *model, *has[3], *has_not[3];
  } cases[] = {
      {"'minimax_m2', head_dim = 8, num_local_experts = 2, num_experts_per_tok = 2",
       {"\"partial_rotary_factor\": 1.0", "\"num_local_experts\": 2"},
       {"\"num_experts\"", "rotary_factor\": false"}},
      {"'minimax_m2', head_dim = 8, rotary_dim = 4, num_local_experts = 8",
       {"\"partial_rotary_factor\": 0.5"},
       {0}},
      {"'phi', rope_parameters = { partial_rotary_factor = 1, rope_theta = 10000, "
       "rope_type = 'default' }",
       {"\"partial_rotary_factor\": 1.0", "\"layer_norm_eps\": "},
       {"rotary_factor\": 0.5", "rms_norm_eps"}},
      {"'nemotron_h', layer_norm_epsilon = 1e-3, ssm_state_size = 8, mamba_num_heads = "
       "8, "
       "mamba_head_dim = 4, layers_block_type = { 'mamba' }",
       {"\"layer_norm_epsilon\": 0.001", "\"layers_block_type\": [",
        "\"use_bias\": false"},
       {"\"norm_eps\"", "moe_latent_size", "hybrid_override_pattern"}},
      {"'gemma3_text', head_dim = 8, final_logit_softcapping = 30",
       {"\"final_logit_softcapping\": 30.0", "\"model_type\": \"gemma3_text\""},
       {"attn_logit_softcapping\": false"}},
      {"'smollm3'", {"\"attention_bias\": false"}, {"no_rope_layers", "layer_types"}}};
  Exporter f;
  Text config = {0};
  bool known;
  exporter_start(&f,
                 arena_printf(scratch_arena,
                              "weft.model { vocab_size = 32, hidden_size = 16, "
                              "intermediate_size = 8, num_hidden_layers = 1, "
                              "num_attention_heads = 2, num_key_value_heads = 2, %s }",
                              cases[_i].model),
                 export_meshes[0]);
  must(lang_hf_config(f.job.lp, NULL, DT_F32, &config, &known, &f.job.e), &f.job.e,
       "config");
  for (int i = 0; i < 3; i++) {
    const char *has = cases[_i].has[i], *not = cases[_i].has_not[i];
    ck_assert_msg(!has || strstr(config.s, has), "%s is not in %s", has, config.s);
    ck_assert_msg(!not || !strstr(config.s, not ), "%s is in %s", not, config.s);
  }
  text_free(&config);
  exporter_end(&f);
}
END_TEST

/* Ids of special tokens are in each config: a class has those of a tokenizer of its own
 * for what is not written, and may find no room for them in the vocabulary. */
static const struct {
  const char *keys, *has[3];
} special[] = {
    {"",
     {"\"bos_token_id\": null,", "\"eos_token_id\": null,", "\"pad_token_id\": null,"}},
    {"bos_token_id = 3, eos_token_id = { 7, 9 }, pad_token_id = false",
     {"\"bos_token_id\": 3,", "\"eos_token_id\": [\n    7,\n    9\n  ],",
      "\"pad_token_id\": null,"}},
};

START_TEST(special_tokens_are_said) {
  Exporter f;
  Text config = {0};
  bool known;
  exporter_start(&f,
                 arena_printf(scratch_arena,
                              "weft.model { 'phi3', vocab_size = 32, hidden_size = 16, "
                              "intermediate_size = 8, num_hidden_layers = 1, "
                              "num_attention_heads = 2, num_key_value_heads = 2, %s }",
                              special[_i].keys),
                 export_meshes[0]);
  must(lang_hf_config(f.job.lp, NULL, DT_F32, &config, &known, &f.job.e), &f.job.e,
       "config");
  for (int i = 0; i < 3; i++)
    ck_assert_msg(strstr(config.s, special[_i].has[i]), "%s is not in %s",
                  special[_i].has[i], config.s);
  /* In a folder's config a plan changes those that it writes, and no others. */
  ck_assert_int_eq(mkdir(scratch_path("made"), 0755), 0);
  scratch_put("made/config.json", config.s, config.n);
  exporter_end(&f);
  config.n = 0;
  exporter_start(&f, "weft.hf { 'made', weights = false, pad_token_id = 31 }",
                 export_meshes[0]);
  must(lang_hf_config(f.job.lp, NULL, DT_F32, &config, &known, &f.job.e), &f.job.e,
       "config");
  ck_assert_msg(strstr(config.s, "\"pad_token_id\": 31"), "%s", config.s);
  ck_assert_ptr_nonnull(strstr(config.s, special[_i].has[0]));
  scratch_put("made/config.json", config.s, config.n);
  exporter_end(&f);
  config.n = 0;
  exporter_start(&f, "weft.hf { 'made', weights = false, vocab_size = 16 }",
                 export_meshes[0]);
  must(lang_hf_config(f.job.lp, NULL, DT_F32, &config, &known, &f.job.e), &f.job.e,
       "config");
  ck_assert_msg(strstr(config.s, "\"pad_token_id\": null"), "%s", config.s);
  text_free(&config);
  exporter_end(&f);
}
END_TEST

/* What is no token of the model has its line. */
START_TEST(special_tokens_are_tokens) {
  static const char *const wrong[][2] = {
      {"pad_token_id = 32", "plan.model.pad_token_id: expected the id of a token, below "
                            "vocab_size = 32, or false, got 32"},
      {"eos_token_id = { 1, -1 }", "plan.model.eos_token_id: expected the id of a token"},
      {"eos_token_id = {}", "plan.model.eos_token_id: expected a list of ids"},
      {"bos_token_id = '<s>'", "plan.model.bos_token_id: expected the id of a token"},
  };
  for (int i = 0; i < LEN(wrong); i++) {
    const char *plan = arena_printf(
        scratch_arena,
        "return require 'weft'.plan { model = require 'weft'.model { 'llama',\n"
        "vocab_size = 32, hidden_size = 16, intermediate_size = 8, num_hidden_layers = "
        "1,\nnum_attention_heads = 2,\n%s }, batch = { global = 1, seq = 8 } }\n",
        wrong[i][0]);
    scratch_put("p.lua", plan, strlen(plan));
    Outcome o = process_run(60, "$weft check p.lua");
    ck_assert_msg(o.code == 1 && strstr(o.err, "p.lua:4: error: ") &&
                      strstr(o.err, wrong[i][1]),
                  "%s: %d: %s", wrong[i][0], o.code, o.err);
  }
}
END_TEST

/* What turns heads is written for each architecture that has it, whatever the default of
 * its class is. */
START_TEST(every_config_says_how_heads_turn) {
  static const char *const name[] = {"llama",   "qwen2",     "qwen3",
                                     "mixtral", "qwen3_moe", "deepseek_v3"};
  Exporter f;
  Text config = {0};
  bool known;
  const char *model = arena_printf(
      scratch_arena,
      "weft.model { '%s', vocab_size = 32, hidden_size = 16, intermediate_size = 8, "
      "num_hidden_layers = 1, num_attention_heads = 2, num_key_value_heads = 2, "
      "rope_theta = 777, rope_scaling = { rope_type = 'yarn', factor = 4, "
      "original_max_position_embeddings = 8 } }",
      name[_i]);
  exporter_start(&f, model, export_meshes[0]);
  must(lang_hf_config(f.job.lp, NULL, DT_F32, &config, &known, &f.job.e), &f.job.e,
       "config");
  ck_assert(known && strstr(config.s, "\"head_dim\": "));
  ck_assert_ptr_nonnull(strstr(config.s, "\"rope_theta\": 777.0"));
  ck_assert_ptr_nonnull(strstr(config.s, "\"rope_type\": \"yarn\""));
  ck_assert_ptr_nonnull(
      strstr(config.s, arena_printf(scratch_arena, "\"%s\"", name[_i])));
  text_free(&config);
  exporter_end(&f);
}
END_TEST

/* From a checkpoint as from the run that has written it. */
START_TEST(checkpoints_are_exported) {
  static const char plan[] =
      "local weft = require 'weft'\n"
      "return weft.plan { model = weft.hf '" ORACLES "llama', strategy = 'fsdp2', "
      "mesh = { tp = 2, pp = 2, dp = 2 }, batch = { global = 4, micro = 1, seq = 8 },\n"
      "checkpoint = { dir = 'runs' } }\n";
  scratch_put("p.lua", plan, strlen(plan));
  Outcome o = process_run(60, "$weft run p.lua --data " ORACLES
                              " --steps 3 -q --export run --shard-size 50KB");
  ck_assert_msg(o.code == 0, "%s", o.err);
  o = process_run(60, "$weft ckpt export p.lua runs out --data " ORACLES
                      " --shard-size 50KB");
  ck_assert_msg(o.code == 0, "%s", o.err);
  same_tensors(scratch_path("run"), scratch_path("out"));
  ck_assert_str_eq(scratch_get(scratch_path("run/config.json")),
                   scratch_get(scratch_path("out/config.json")));
  o = process_run(60, "$weft ckpt export p.lua runs out --data " ORACLES);
  ck_assert_int_eq(o.code, 2);
  ck_assert_ptr_nonnull(strstr(o.err, "out: error: exists and is not empty"));
  o = process_run(60, "$weft ckpt export p.lua runs new --data " ORACLES
                      " --set model.num_hidden_layers=2 --set model.weights=false");
  ck_assert_int_ne(o.code, 0);
  ck_assert_int_ne(access(scratch_path("new"), F_OK), 0);
}
END_TEST

START_TEST(processes_write_one_folder) {
  if (system("command -v mpirun >/dev/null 2>&1") != 0 ||
      access(WEFT_BINARY_DIR "/weft_mpi.so", R_OK) != 0) {
    puts("skipped: no mpirun, or no weft_mpi.so");
    return;
  }
  static const char plan[] =
      "local weft = require 'weft'\n"
      "return weft.plan { model = weft.hf '" ORACLES "llama', strategy = 'fsdp2', "
      "mesh = { tp = 2, dp = 2 }, batch = { global = 2, micro = 1, seq = 8 } }\n";
  scratch_put("p.lua", plan, strlen(plan));
  Outcome o =
      process_run(100,
                  MPIRUN " $weft run p.lua --data " ORACLES
                         " --steps 2 -q --threads 1 --export many --shard-size 50KB",
                  4);
  ck_assert_msg(o.code == 0, "%s", o.err);
  o = process_run(60, "$weft run p.lua --data " ORACLES
                      " --steps 2 -q --threads 1 --export one --shard-size 50KB");
  ck_assert_msg(o.code == 0, "%s", o.err);
  same_tensors(scratch_path("many"), scratch_path("one"));
  o = process_run(100,
                  MPIRUN " $weft run p.lua --data " ORACLES
                         " --steps 1 -q --threads 1 --export gone/many",
                  4);
  ck_assert_int_ne(o.code, 0);
  ck_assert_ptr_nonnull(strstr(o.err, "cannot be made: No such file"));
}
END_TEST

Suite *export_run_suite(void) {
  Suite *s = suite_create("export_run");
  TCase *t = tcase_create("export_run");
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_set_timeout(t, 600);
  tcase_add_test(t, a_run_exports_at_its_end);
  tcase_add_test(t, both_keys_of_a_type_are_set);
  tcase_add_loop_test(t, special_tokens_are_said, 0, LEN(special));
  tcase_add_test(t, special_tokens_are_tokens);
  tcase_add_loop_test(t, numbers_keep_their_types, 0, 2);
  tcase_add_loop_test(t, what_is_written_is_read, 0, 6);
  tcase_add_loop_test(t, every_config_says_how_heads_turn, 0, 6);
  tcase_add_test(t, checkpoints_are_exported);
  tcase_add_test(t, processes_write_one_folder);
  suite_add_tcase(s, t);
  return s;
}
