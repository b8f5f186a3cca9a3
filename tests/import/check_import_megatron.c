/* check_import_megatron.c - weft import of Megatron's settings as a user sees it: scripts
 * are read and never run, lists of arguments and YAML files too become plans that pass
 * check, and each setting is in one of the lists. */
#include <check.h>

#include "tests/harness/import_files.h"
#include "tests/harness/megatron_suite.h"

static const char llama[] =
    "#!/bin/bash\n"
    "#SBATCH --nodes=2\n"
    "export CUDA_DEVICE_MAX_CONNECTIONS=1 NCCL_IB_SL=1\n"
    "touch pwned $(touch pwned) `touch pwned`   # nothing of this runs\n"
    "TP=${TP:-2}; PP=\"2\"\n"
    "if [ \"$TP\" -gt 1 ]; then\n"
    "  MORE=\"--sequence-parallel\"\n"
    "else\n"
    "  MORE=\"--made-up-in-a-branch\"\n"
    "fi\n"
    "MODEL_ARGS=(\n"
    "    --num-layers 8  # layers\n"
    "    --hidden-size 512 --num-attention-heads 8\n"
    "    --group-query-attention --num-query-groups 4\n"
    "    --seq-length 1024 --max-position-embeddings 1024\n"
    "    --swiglu --normalization RMSNorm --position-embedding-type rope\n"
    "    --disable-bias-linear --untie-embeddings-and-output-weights\n"
    "    --attention-dropout 0.0 --hidden-dropout 0.0\n"
    ")\n"
    "OPTIMIZER=\"--lr 3.0e-4 --min-lr 3.0e-5 \\\n"
    "  --lr-decay-style cosine --lr-warmup-fraction .01 \\\n"
    "  --weight-decay 0.1\"\n"
    "MODEL_ARGS+=(--vocab-size 32000)\n"
    "torchrun --nproc_per_node $((4*2)) --nnodes 2 pretrain_gpt.py \\\n"
    "  ${MODEL_ARGS[@]} $OPTIMIZER ${MORE} \\\n"
    "  --tensor-model-parallel-size $TP --pipeline-model-parallel-size ${PP} \\\n"
    "  --num-layers-per-virtual-pipeline-stage 2 --use-distributed-optimizer \\\n"
    "  --micro-batch-size 1 --global-batch-size=64 --train-iters 1000 --bf16 \\\n"
    "  --save $1 --made-up 7 $EXTRA \"$@\" 2>&1 | tee log.txt\n";

START_TEST(a_script_becomes_a_plan) {
  import_put("a.sh", llama);
  const char *report = import_file("a.sh", "");
  import_plan_has("\"llama\",  -- a.sh:12: --num-layers");
  import_plan_has("num_key_value_heads = 4,");
  import_plan_has(
      "intermediate_size = 1344,");       /* 512 * 8 / 3, down to a multiple of 64 */
  import_plan_has("vocab_size = 32000,"); /* a multiple of 256 */
  import_plan_has("tie_word_embeddings = false,");
  import_plan_has("tp = 2,  -- a.sh:26: --tensor-model-parallel-size");
  import_plan_has("world = 16,  -- a.sh:24: launcher --nproc_per_node");
  import_plan_has("virtual = 2,  -- a.sh:27");
  import_plan_has("\"interleaved_1f1b\",");
  import_plan_has("group = 2,  -- Megatron's default: pp");
  import_plan_has("stage = 1,  -- a.sh:27: --use-distributed-optimizer");
  import_plan_has("overlap_grad_reduce = false,");
  import_plan_has("sequence_parallel = true,  -- a.sh:7: --sequence-parallel");
  import_plan_has("lr = weft.cosine {");
  import_plan_has("min = 3e-05,  -- a.sh:20: --min-lr");
  import_plan_has("warmup = 10,  -- a.sh:21: --lr-warmup-fraction");
  import_plan_has("weight_decay = 0.1,  -- a.sh:22: --weight-decay");
  import_plan_has("betas = { 0.9, 0.999 },  -- Megatron's default");
  import_plan_has("ib_sl = 1,  -- a.sh:3: export NCCL_IB_SL");
  import_has(report, "a.sh:29: --made-up = 7: weft import does not know this setting");
  import_has(report, "a.sh:29: ${EXTRA} = null: it has no value in the file");
  import_lacks(report, "made-up-in-a-branch");
  ck_assert_msg(!strstr(scratch_list(), "pwned"), "it ran");
  ck_assert_msg(!strstr(scratch_list(), "log.txt"), "it ran");
}
END_TEST

START_TEST(words_behind_the_script_count) {
  import_put("a.sh", llama);
  const char *report =
      import_file("a.sh", "TP=4 global-batch-size=32 --set train-iters=50");
  import_plan_has("tp = 4,  -- a.sh:26");
  import_plan_has("global = 32,  -- the command line: global-batch-size");
  import_plan_has("steps = 50,  -- the command line: train-iters");
  import_has(report, "the command line gives it again, which counts:\n");
  import_has(report, "    a.sh:28: --train-iters = 1000\n");
  import_file("a.sh", "TP=1");
  import_plan_has("pp = 2,");
  import_file("a.sh", "TP=1 PP=1"); /* which the script sets without a test */
  import_plan_lacks("pp = 2,");
  import_file("a.sh", "TP=1");
  import_plan_lacks("sequence_parallel");
  import_file("a.sh",
              "--model llama3.2-1b --world 8 num-layers-per-virtual-pipeline-stage=4");
  import_plan_has("model = weft.model \"llama3.2-1b\",  -- --model llama3.2-1b");
}
END_TEST

/* Every argument and exported variable is in a list, once. */
START_TEST(nothing_is_dropped) {
  int said = 0;
  import_put("a.sh", llama);
  Outcome o = process_run(IMPORT_SECONDS, "$weft import a.sh --json");
  ck_assert_int_eq(o.code, 0);
  for (const char *p = o.out; (p = strstr(p, "\"place\": \"a.sh:")); p++) said++;
  /* 1 of Slurm, 2 exported, 2 of torchrun, the program, 15 of the model, 5 of OPTIMIZER,
   * 1 of MORE, and 10 and 2 words of the command */
  ck_assert_int_eq(said, 1 + 2 + 2 + 1 + 15 + 5 + 1 + 10 + 2);
}
END_TEST

START_TEST(lists_of_arguments_become_plans) {
  import_put("a.txt",
             "# a model with learned positions\n--num-layers 12\n--hidden-size=768\n"
             "--num-attention-heads 12 --micro-batch-size 4\n--global-batch-size 32\n"
             "--seq-length 1024 --max-position-embeddings 1024\n--lr 1e-4\n--fp16\n"
             "--lr 2e-4\n");
  const char *report = import_file("a.txt", "");
  import_plan_has("\"gpt2\",  -- a.txt:2: --num-layers");
  import_plan_has("activation_function = \"gelu_new\",");
  import_plan_has("vocab_size = 50304,"); /* 50257, padded to a multiple of 128 */
  import_plan_has("tie_word_embeddings = true,");
  import_plan_has("max = 0.0002,  -- a.txt:9: --lr");
  import_plan_has("init_scale = 4294967296,");
  import_plan_has("hysteresis = 2,");
  import_has(report, "a.txt:7: --lr = 0.0001: a.txt:9 gives it again, which counts");
  import_has(report, "no dropout; Megatron's default is 0.1");
}
END_TEST

#define DROPS "--hidden-dropout 0.1 --attention-dropout 0.2 "
#define DECODER                                                                          \
  "--num-layers 2 --hidden-size 64 --num-attention-heads 4 --micro-batch-size 1 "        \
  "--global-batch-size 4 --seq-length 64 --max-position-embeddings 64 --lr 1e-4 --bf16 "
#define LLAMA_LIKE                                                                       \
  "--position-embedding-type rope --normalization RMSNorm --disable-bias-linear "        \
  "--swiglu "

/* Dropout of GPT-2 is its architecture's; where hidden states drop in another one, the
 * plan's model is a function. */
START_TEST(dropout_is_of_the_model) {
  import_put("a.txt", DECODER DROPS);
  import_file("a.txt", "");
  import_plan_has("embd_pdrop = 0.1,");
  import_plan_has("resid_pdrop = 0.1,");
  import_plan_has("attn_pdrop = 0.2,");
  import_put("b.txt", DECODER LLAMA_LIKE "--attention-dropout 0.2 --hidden-dropout 0");
  import_file("b.txt", "");
  import_plan_has("\"llama\",");
  import_plan_has("attention_dropout = 0.2,");
  import_put("c.txt", DECODER LLAMA_LIKE DROPS);
  import_file("c.txt", "");
  import_plan_has(
      "local function drop(x) return g:dropout(x, { rate = c.hidden_dropout }) end");
  import_plan_has("x = g:add(x, drop(attention(norm(x, ");
  import_plan_has("hidden_dropout = 0.1,");
  import_plan_has("rate = c.attention_dropout })");
}
END_TEST

START_TEST(test_suites_become_plans) {
  import_put("a.yaml", MEGATRON_SUITE);
  const char *report = import_file("a.yaml", "");
  import_plan_has("\"gpt2\",  -- a.yaml:5: MODEL_ARGS.--num-layers");
  import_plan_has("pp = 4,");
  import_plan_has("schedule = \"1f1b\",");
  import_plan_has("deterministic = true,");
  import_plan_has("algo = \"ring\",  -- a.yaml:3: ENV_VARS.NCCL_ALGO");
  import_plan_has("weight_decay = 0.01,");
  import_has(report, "MODEL_ARGS.--swiglu = false -> model");
  /* Stages of their own sizes. */
  import_file("a.yaml",
              "decoder-first-pipeline-num-layers=2 decoder-last-pipeline-num-layers=4");
  import_plan_has("layers = { 2, 3, 3, 4 },");
  import_file("a.yaml", "account-for-embedding-in-pipeline-split=true "
                        "account-for-loss-in-pipeline-split=true num-layers=14 "
                        "num-layers-per-virtual-pipeline-stage=2");
  import_plan_has("layers = { 1, 2, 2, 2, 2, 2, 2, 1 },");
  import_file("a.yaml", "\"pipeline-model-parallel-layout=Et*2|(t*2|)*4t*2L\" "
                        "pipeline-model-parallel-size=2");
  import_plan_has("layout = \"Et*2|(t*2|)*4t*2L\",");
  import_plan_has("virtual = 3,");
  import_fails(1, "a.yaml", "pipeline-model-parallel-layout=Et*12Lx",
               "\"x\" means nothing");
  import_fails(1, "a.yaml", "num-layers-per-virtual-pipeline-stage=5",
               "stages of 5 layers cannot be made of 12 layers on 4 pipeline ranks");
}
END_TEST

START_TEST(yaml_configs_and_recipes_become_plans) {
  import_put("a.yaml",
             "language_model:\n  num_layers: 24\n  hidden_size: 1024\n"
             "  num_attention_heads: 16\n  add_bias_linear: False\n"
             "  activation_func: swiglu\n  normalization: LayerNorm\n"
             "  ffn_hidden_size: null\nmodel_parallel:\n"
             "  tensor_model_parallel_size: 2\n  sequence_parallel: True\n"
             "  bf16: True\nmicro_batch_size: 2\nglobal_batch_size: 128\n"
             "position_embedding_type: rope\nrotary_percent: 0.5\nseq_length: 512\n"
             "train_samples: 12800\nlr: 6.0e-5\n");
  const char *report = import_file("a.yaml", "");
  import_plan_has(
      "local function model(g, c)"); /* none of weft's own has LayerNorm and rope */
  import_plan_has("rotary_dim = 32");
  import_plan_has("[\"layers.*.mlp.gate\"] = \"colwise\",");
  import_plan_has("steps = 100,  -- a.yaml:18: train_samples");
  import_has(report,
             "language_model.ffn_hidden_size = null: null is as if it were not given");
  import_put("b.sh",
             "torchrun --nproc_per_node=8 run_recipe.py --recipe "
             "llama32_1b_pretrain_config \\\n"
             "  model.seq_length=4096 train.global_batch_size=16 \\\n"
             "  model.tensor_model_parallel_size=2 dataset.seq_length=4096 \\\n"
             "  optimizer.lr=1e-4 logger.wandb_project=x model.sequence_parallel=True\n");
  report = import_file("b.sh", "");
  import_plan_has("weft.model \"llama3.2-1b\",  -- b.sh:1: --recipe");
  import_plan_has("world = 8,");
  import_plan_has("sequence_parallel = true,");
  import_has(report,
             "what llama32_1b_pretrain_config sets itself is Python, which is not read");
  import_fails(1, "b.sh", "recipe=gemma3_vl_4b_sft_config",
               "is a recipe of a model of images");
}
END_TEST

/* Megatron reads the file in the place of all arguments. */
START_TEST(the_file_of_yaml_cfg_is_followed) {
  import_put("a.sh", "torchrun --nproc_per_node 4 pretrain_gpt.py --num-layers 99 \\\n"
                     "  --made-up 1 --yaml-cfg configs/small.yaml\n");
  import_fails(1, "a.sh", "", "the settings are in that file: import it");
  import_put("small.yaml",
             "language_model:\n  num_layers: 4\n  hidden_size: 64\n"
             "  num_attention_heads: 4\nmicro_batch_size: 1\nseq_length: 64\n"
             "max_position_embeddings: 64\nmodel_parallel:\n"
             "  tensor_model_parallel_size: 2\n");
  const char *report = import_file("a.sh", "");
  import_plan_has("num_hidden_layers = 4,");
  import_plan_has("tp = 2,  -- small.yaml:9: model_parallel.tensor_model_parallel_size");
  import_plan_has("world = 4,");
  import_has(report, "a.sh:1: --num-layers = 99");
  import_has(report, "small.yaml, of --yaml-cfg, takes the place of all arguments");
  import_lacks(report, "does not know this setting");
  import_file("a.sh", "num-layers=6");
  import_plan_has("num_hidden_layers = 6,");
}
END_TEST

Suite *import_megatron_suite(void) {
  Suite *s = suite_create("import_megatron");
  TCase *c = tcase_create("import_megatron");
  tcase_add_checked_fixture(c, scratch_setup, scratch_teardown);
  tcase_set_timeout(c, 120);
  tcase_add_test(c, a_script_becomes_a_plan);
  tcase_add_test(c, words_behind_the_script_count);
  tcase_add_test(c, nothing_is_dropped);
  tcase_add_test(c, lists_of_arguments_become_plans);
  tcase_add_test(c, dropout_is_of_the_model);
  tcase_add_test(c, test_suites_become_plans);
  tcase_add_test(c, yaml_configs_and_recipes_become_plans);
  tcase_add_test(c, the_file_of_yaml_cfg_is_followed);
  suite_add_tcase(s, c);
  return s;
}
