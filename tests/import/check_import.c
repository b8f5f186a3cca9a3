/* check_import.c - weft import as a user sees it: recipes of NeMo AutoModel become plans
 * that pass check, every setting is in one of the lists, and what a file holds can
 * neither run nor get out of the plan's strings and comments. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/harness/import_files.h"

static const char *import(const char *more) { return import_file("a.yaml", more); }

static const char recipe[] =
    "recipe: TrainFinetuneRecipeForNextTokenPrediction\n"
    "step_scheduler:\n"
    "  global_batch_size: 64\n"
    "  local_batch_size: 4\n"
    "  ckpt_every_steps: 50\n"
    "  max_steps: 300\n"
    "  num_epochs: 2\n"
    "dist_env:\n"
    "  backend: nccl\n"
    "  timeout_minutes: 5\n"
    "model:\n"
    "  _target_: nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained\n"
    "  pretrained_model_name_or_path: meta-llama/Llama-3.1-8B\n"
    "  torch_dtype: bf16\n"
    "distributed:\n"
    "  strategy: fsdp2\n"
    "  tp_size: 2\n"
    "  pp_size: 2\n"
    "  cp_size: 1\n"
    "  dp_size: none\n"
    "  sequence_parallel: true\n"
    "  activation_checkpointing: true\n"
    "  pipeline:\n"
    "    pp_schedule: interleaved1f1b\n"
    "    pp_microbatch_size: 1\n"
    "    layers_per_stage: 5\n"
    "    round_virtual_stages_to_pp_multiple: up\n"
    "    scale_grads_in_schedule: false\n"
    "loss_fn:\n"
    "  _target_: nemo_automodel.components.loss.masked_ce.MaskedCrossEntropy\n"
    "dataset:\n"
    "  _target_: nemo_automodel.components.datasets.llm.squad.make_squad_dataset\n"
    "  seq_length: 1024\n"
    "lr_scheduler:\n"
    "  lr_decay_style: cosine\n"
    "  min_lr: 1e-6\n"
    "  lr_warmup_steps: 20\n"
    "  init_lr: 0.0\n"
    "optimizer:\n"
    "  _target_: torch.optim.AdamW\n"
    "  lr: 1e-5\n"
    "  betas: [0.9, 0.95]\n"
    "  weight_decay: 0\n"
    "checkpoint:\n"
    "  enabled: true\n"
    "  checkpoint_dir: ckpts/run\n"
    "  save_consolidated: final\n"
    "peft:\n"
    "  _target_: nemo_automodel.components._peft.lora.PeftConfig\n"
    "  dim: 8\n"
    "made_up: 7\n";

START_TEST(a_recipe_becomes_a_plan) {
  import_put("a.yaml", recipe);
  const char *report = import("--world 16");
  import_plan_has("world = 16,  -- --world");
  import_plan_has("tp = 2,  -- a.yaml:17: distributed.tp_size");
  import_plan_has("sequence_parallel = true,  -- a.yaml:21");
  import_plan_has("\"fsdp2\",  -- a.yaml:16");
  import_plan_has("virtual = 4,");
  import_plan_has("schedule = \"interleaved_1f1b\"");
  import_plan_has("recompute = \"full\"");
  import_plan_has("global = 64,");
  import_plan_has("micro = 1,");
  import_plan_has("rounds = 4,");
  import_plan_has("seq = 1024,");
  import_plan_has("max = 1e-05,");
  import_plan_has("min = 1e-06,");
  import_plan_has("warmup = 20,");
  import_plan_has("betas = { 0.9, 0.95 },");
  import_plan_has("steps = 300,");
  import_plan_has("dir = \"ckpts/run\",");
  import_plan_has("timeout = 300,");
  import_has(report, "a.yaml:14: model.torch_dtype = bf16 -> precision.master_dtype");
  import_plan_has("\"lora\",  -- a.yaml:49: peft._target_");
  import_plan_has("rank = 8,  -- a.yaml:50: peft.dim");
  import_plan_has("alpha = 32,  -- AutoModel's default");
  import_plan_has("targets = \"all-linear\",");
  import_has(report, "a.yaml:50: peft.dim = 8 -> adapter.rank");
  import_has(report, "a.yaml:51: made_up = 7: weft import does not know this setting");
  import_has(report, "a.yaml:33: dataset.seq_length = 1024 -> batch.seq");
  import_has(report, "data: weft.synthetic, made-up tokens");
}
END_TEST

/* A recipe of one line, with more behind it. */
static const char *report_with(const char *more) {
  import_put("a.yaml",
             arena_printf(scratch_arena,
                          "step_scheduler: {global_batch_size: 8, max_steps: 5}\n"
                          "model: {pretrained_model_name_or_path: "
                          "meta-llama/Llama-3.1-8B}\n"
                          "dataset: {seq_length: 1024}\n%s",
                          more));
  return import("--world 1");
}

static const struct Rate {
  const char *scheduler, *plan;
} rates[] = {
    {"lr_decay_style: WSD, wsd_decay_steps: 2, lr_wsd_decay_style: exponential",
     "lr = weft.wsd {"},
    {"lr_decay_style: WSD, wsd_decay_steps: 2, lr_wsd_decay_style: exponential",
     "decay = 2,  -- a.yaml:5: lr_scheduler.wsd_decay_steps"},
    {"lr_decay_style: WSD, wsd_decay_steps: 2, lr_wsd_decay_style: exponential",
     "decay_style = \"exponential\","},
    {"lr_decay_style: inverse-square-root, lr_warmup_steps: 3",
     "lr = weft.inverse_sqrt {"},
    {"lr_decay_style: inverse-square-root, lr_warmup_steps: 3", "min = 1e-05,"},
    {"lr_decay_style: inverse-square-root, lr_warmup_steps: 0", "timescale = 1,"},
    {"lr_decay_style: cosine", "betas = { 0.9, 0.999 },  -- Adam's default"},
    {"lr_decay_style: cosine", "weight_decay = 0.01,  -- AdamW's default"},
    {"lr_decay_style: cosine", "decay_vectors = true,  -- norms and biases decay, too"},
};

START_TEST(rates_have_their_shapes) {
  report_with(arena_printf(scratch_arena,
                           "optimizer: {_target_: torch.optim.AdamW, lr: 1e-3}\n"
                           "lr_scheduler: {%s}\n",
                           rates[_i].scheduler));
  import_plan_has(rates[_i].plan);
}
END_TEST

/* Conversations are not at hand: the report has what a plan says of them. */
START_TEST(conversations_are_told) {
  import_put(
      "a.yaml",
      "step_scheduler: {global_batch_size: 8, num_epochs: 3, val_every_steps: 20}\n"
      "model: {pretrained_model_name_or_path: openai-community/gpt2}\n"
      "dataset:\n  _target_: nemo_automodel.components.datasets.llm.chat_dataset."
      "ChatDataset\n  path_or_dataset_id: ./chats/train.jsonl\n");
  const char *report = import("");
  import_has(report, "data = weft.chat { \"chats/train.jsonl\" } reads it");
  import_has(report, "train.epochs = 3 counts those of data in files");
  import_has(report, "data.val, and train.eval_every = 20");
  report = import("dataset.path_or_dataset_id=allenai/tulu-3-sft-mixture");
  import_has(report, "a data set of the Hub, which is not downloaded");
  import_has(report, "data = weft.chat { \"FILE.jsonl\" } reads its rows as JSON lines");
  report = import("dataset._target_=a.ColumnMappedTextInstructionDataset "
                  "dataset.column_mapping.question=q dataset.column_mapping.answer=a");
  import_has(report, "weft.chat { \"chats/train.jsonl\", format = { prompt = \"q\", "
                     "response = \"a\" } } reads it");
  report = import(
      "dataset._target_=nemo_automodel.components.datasets.llm.squad.make_squad_dataset "
      "dataset.path_or_dataset_id=null dataset.dataset_name=rajpurkar/squad");
  import_has(report, "data = weft.chat { \"FILE.jsonl\", format = { prompt = \"prompt\", "
                     "response = \"response\" } } reads JSON lines of its questions");
}
END_TEST

/* Epochs are steps where the settings say how many samples they take: here 3 of 13 local
 * batches. */
START_TEST(epochs_of_known_samples_are_steps) {
  import_put(
      "a.yaml",
      "step_scheduler: {global_batch_size: 8, local_batch_size: 2, num_epochs: 3}\n"
      "model: {pretrained_model_name_or_path: openai-community/gpt2}\n"
      "distributed: {dp_size: 4}\n"
      "dataset: {_target_: a.make_squad_dataset, split: \"train[:100]\"}\n"
      "optimizer: {lr: 0.001}\nlr_scheduler: {lr_decay_style: cosine}\n");
  const char *report = import("");
  import_has(report, "train.steps: 39: 3 epochs of 100 samples");
  import_plan_has("steps = 39,  -- a.yaml:1: step_scheduler.num_epochs");
  import_plan_has("warmup = 3,");
  import("dataset.split='train[4:80]' dataset.limit_dataset_samples=1000");
  import_plan_has("steps = 30,");
  import("dataset.dataset_name=rajpurkar/squad dataset.split=train");
  import_plan_has("steps = 32850,"); /* 10,950 local batches on each rank */
  report = import("packed_sequence.packed_sequence_size=64");
  import_has(report, "train.epochs = 3 counts those of data in files");
}
END_TEST

/* What of LoRA and of frozen parts a plan can say, and what it cannot. */
START_TEST(adapters_are_taken_over) {
  const char *report =
      report_with("peft:\n"
                  "  target_modules: ['*.q_proj', '*o_proj', model.layers.*.mlp.up_proj, "
                  "'*fc*']\n"
                  "  alpha: 16\n  dropout: 0.1\n  use_dora: true\n"
                  "freeze_config: {freeze_embeddings: true}\n");
  import_plan_has("rank = 8,  -- AutoModel's default");
  import_plan_has("alpha = 16,  -- a.yaml:6: peft.alpha");
  import_plan_has("targets = { \"q_proj\", \"o_proj\", \"layers.*.mlp.up_proj\" },");
  import_has(report, "*fc* names modules that no pattern of adapter.targets does");
  import_plan_has("dropout = 0.1,  -- a.yaml:7: peft.dropout");
  import_plan_has("dropout_position = \"post\",  -- AutoModel's default");
  import_plan_has("dora = true,  -- a.yaml:8: peft.use_dora");
  import_has(report, "freeze_embeddings = true: with an adapter the model is frozen");
  report = report_with("quantization: {load_in_4bit: true, bnb_4bit_quant_type: nf4, "
                       "bnb_4bit_use_double_quant: true}\npeft: {dim: 4}\n");
  import_plan_has("base = \"nf4\",");
  import_has(report, "quantization.bnb_4bit_quant_type = nf4 -> adapter.base");
  report = report_with("quantization: {load_in_4bit: true, bnb_4bit_quant_type: fp4, "
                       "bnb_4bit_use_double_quant: true}\npeft: {dim: 4}\n");
  import_has(report,
             "weights are stored in 4 bits as NF4 with double quantisation alone");
  report_with("peft: {target_modules: '*_proj', dropout: 0.1, dropout_position: pre}\n");
  import_plan_has("dropout = 0.1,");
  import_plan_lacks("dropout_position");
  report = report_with("peft: {target_modules: '*_proj', dropout: 0}\n");
  import_has(report, "peft.target_modules = *_proj -> adapter.targets");
  import_has(report, "peft.dropout = 0: nothing is dropped");
  import_plan_has("\"gate_proj\", \"up_proj\", \"down_proj\" },");
  report = report_with("peft: {match_all_linear: true, target_modules: '*_proj'}\n");
  import_has(report, "peft.match_all_linear = true -> adapter.targets");
  import_plan_has("\"down_proj\", \"lm_head\" },");
  import("model.pretrained_model_name_or_path=MiniMaxAI/MiniMax-M2");
  import_plan_has(
      "targets = { \"q_proj\", \"k_proj\", \"v_proj\", \"o_proj\", \"lm_head\" },");
  import("model.pretrained_model_name_or_path=Qwen/Qwen2.5-3B");
  import_plan_has("\"down_proj\", \"lm_head\" },");
  import("model.pretrained_model_name_or_path=microsoft/phi-4");
  import_plan_has("targets = { \"qkv_proj\", \"o_proj\", \"gate_up_proj\", "
                  "\"down_proj\", \"lm_head\" },");
  import("model.pretrained_model_name_or_path=zai-org/GLM-4.7-Flash");
  import_plan_has("targets = { \"q_a_proj\", \"q_b_proj\", \"kv_a_proj_with_mqa\", "
                  "\"kv_b_proj\", \"o_proj\",");
  import("model.pretrained_model_name_or_path=Qwen/Qwen1.5-MoE-A2.7B");
  import_plan_has("\"shared_expert_gate\", \"lm_head\" },");
  report_with("neftune: {}\n");
  import_plan_has("neftune_noise_alpha = 5.0,  -- AutoModel's default");
  report = report_with(
      "freeze_config: {freeze_embeddings: true, freeze_language_model: true}\n");
  import_has(report, "nothing would be left that learns");
  import_plan_has("freeze = { \"embed_tokens\" },");
}
END_TEST

/* All experts of a layer are one module there, which "*" names and "*_proj" does not. */
START_TEST(adapters_of_experts_are_taken_over) {
  static const char moe[] = "model.pretrained_model_name_or_path=Qwen/Qwen3-30B-A3B";
  report_with("peft: {target_modules: '*_proj'}\n");
  import(moe);
  import_plan_has("targets = { \"q_proj\", \"k_proj\", \"v_proj\", \"o_proj\" },");
  import_plan_lacks("target_parameters");
  report_with("peft: {target_modules: ['*'], dim: 32, moe_rank_scaling: true}\n");
  const char *report = import(moe);
  import_plan_has("\"o_proj\", \"lm_head\" },");
  import_plan_has(
      "target_parameters = { \"experts.gate_up_proj\", \"experts.down_proj\" },");
  import_plan_has("rank_pattern = { [\"experts.down_proj\"] = 4, "
                  "[\"experts.gate_up_proj\"] = 4 },");
  import_has(report, "peft.moe_rank_scaling = true -> adapter.rank_pattern");
  report_with("peft: {target_modules: ['*'], dim: 4, moe_rank_scaling: true}\n");
  import_has(import(moe), "leaves experts no rank");
  report_with("peft: {target_modules: ['*']}\n");
  import_has(import("model.pretrained_model_name_or_path=mistralai/Mixtral-8x7B-v0.1"),
             "names modules that no pattern of adapter.targets does");
}
END_TEST

/* AutoModel's warmup is a tenth of all steps, which are those of the epochs without
 * max_steps: the plan's hundred then. */
START_TEST(the_warmup_is_a_share_of_the_steps) {
  import_put(
      "a.yaml",
      "recipe: TrainFinetuneRecipeForNextTokenPrediction\n"
      "step_scheduler: {global_batch_size: 8, local_batch_size: 1, num_epochs: 3}\n"
      "model: {pretrained_model_name_or_path: openai-community/gpt2}\n"
      "lr_scheduler: {lr_decay_style: cosine, max_lr: 2e-4}\n"
      "optimizer: {lr: 1e-4}\n");
  const char *report = import("");
  import_plan_has("warmup = 10,  -- AutoModel's default: a tenth of the steps");
  import_plan_has("max = 0.0002,  -- a.yaml:4: lr_scheduler.max_lr");
  import_has(report, "optimizer.lr.warmup: 10, a tenth of the 100 steps assumed");
  import_lacks(import("step_scheduler.max_steps=5000"), "a tenth of the 100");
  import_plan_has("warmup = 500,");
  import("step_scheduler.max_steps=50000");
  import_plan_has("warmup = 1000,");
}
END_TEST

/* What the first versions wrote, AutoModel's own GPT-2, and numbers that YAML takes for
 * texts. */
START_TEST(older_recipes_are_read) {
  import_put("a.yaml",
             "step_scheduler: {grad_acc_steps: 4, num_epochs: 1}\n"
             "model:\n"
             "  _target_: nemo_automodel.components.models.gpt2.build_gpt2_model\n"
             "  vocab_size: 640\n  n_embd: 64\n  n_layer: 2\n  n_head: 4\n"
             "distributed: {_target_: "
             "nemo_automodel.components.distributed.nvfsdp.NVFSDPManager}\n"
             "dataloader: {batch_size: 2}\n"
             "qat: {enabled: true}\n"
             "optimizer: {lr: 1e-4}\n");
  const char *report = import("--world 2");
  import_plan_has("\"gpt2\",");
  import_plan_has("activation_function = \"gelu\",");
  import_plan_has("n_positions = 2048,");
  import_plan_has("\"megatron_fsdp\",");
  import_plan_has("global = 16,  -- a.yaml:1: step_scheduler.grad_acc_steps");
  import_plan_has("micro = 2,  -- a.yaml:9: dataloader.batch_size");
  import_has(report, "qat.enabled = true: products are not rounded");
  import_put("a.yaml",
             "recipe: TrainFinetuneRecipeForNextTokenPrediction\n"
             "model:\n  config:\n"
             "    _target_: transformers.models.llama.configuration_llama.LlamaConfig\n"
             "    hidden_size: 64\n    num_hidden_layers: 2\n    num_attention_heads: 4\n"
             "    intermediate_size: 96\n    vocab_size: 320\n    rms_norm_eps: 1e-05\n");
  import("");
  import_plan_has("rms_norm_eps = 1e-05,");
}
END_TEST

/* Variables of the environment are not read: a default counts, and is said. */
START_TEST(variables_and_other_files_are_told) {
  import_put("a.yaml",
             "recipe: TrainFinetuneRecipeForNextTokenPrediction\n"
             "defaults: [base, _self_]\n"
             "model: {pretrained_model_name_or_path: "
             "\"${oc.env:MODEL,openai-community/gpt2}\"}\n"
             "distributed: {strategy: fsdp2, tp_size: \"${TP, ${oc.env:N,2}}\"}\n"
             "checkpoint: {enabled: true, checkpoint_dir: \"${oc.env:OUT}/x\"}\n"
             "wandb: {project: \"${oc.env:WHO}\"}\n");
  const char *report = import("--world 4");
  import_plan_has("tp = 2,");
  import_plan_has("\"gpt2\",");
  import_plan_lacks("${OUT");
  import_has(report, "a.yaml:4: N is 2, its default: the environment is not read");
  import_has(report,
             "a.yaml:2: defaults = { \"base\", \"_self_\" }: it names other files");
  import("--world 4 TP=4");
  import_plan_has("tp = 4,");
  import_fails(1, "a.yaml", "'distributed.tp_size=${oc.env:SIZE}'",
               "the command line: error: ${oc.env:SIZE} has no value in the file: --set "
               "distributed.tp_size=VALUE gives one");
}
END_TEST

/* JSON as Python writes it is no YAML everywhere. */
START_TEST(json_that_is_no_yaml_is_read) {
  Text t = {0};
  text_printf(&t,
              "{\"train_micro_batch_size_per_gpu\": 2, \"bf16\": {\"enabled\": true},\n"
              "\"zero_optimization\"\n: {\"stage\": 3},\n"
              "\"a\": \"\\ud83d\\ude00 \\/\", \"b\": "
              "\"x\xc2\x85y\xe2\x80\xa8z\x7f\xef\xbf\xbe\",\n\"");
  for (int i = 0; i < 1500; i++) text_printf(&t, "k");
  text_printf(&t, "\": 1,\n\"gradient_clipping\": 0.5}\n");
  import_put("ds.json", t.s);
  text_free(&t);
  const char *report = import_file("ds.json", "--model llama3.2-1b --world 2");
  import_plan_has("micro = 2,  -- ds.json:1");
  import_plan_has("-- ds.json:6: gradient_clipping");
  import_plan_has("stage = 3,");
  import_has(report, "ds.json:4: a = \xf0\x9f\x98\x80 /");
}
END_TEST

/* Each leaf of the recipe is in a list, once. */
START_TEST(nothing_is_dropped) {
  int leaves = 0, said = 0;
  import_put("a.yaml", recipe);
  Outcome o = process_run(IMPORT_SECONDS, "$weft import a.yaml --world 16 --json");
  ck_assert_int_eq(o.code, 0);
  for (const char *p = recipe; (p = strchr(p, '\n')); p++) leaves += p[-1] != ':';
  for (const char *p = o.out; (p = strstr(p, "\"place\": \"a.yaml:")); p++) said++;
  ck_assert_int_eq(said, leaves);
}
END_TEST

START_TEST(a_gpu_that_there_is_not_is_refused) {
  import_put("a.yaml", recipe);
  import_fails(2, "a.yaml", "--world 16 --gpu foo -o b.lua",
               "weft: --gpu: there is no GPU \"foo\" (known: a100-40gb, ");
  ck_assert_int_ne(access(scratch_path("b.lua"), F_OK), 0);
  import("--world 16 --gpu H100");
}
END_TEST

START_TEST(words_behind_the_file_take_its_place) {
  import_put("a.yaml", recipe);
  const char *report = import("--world 16 distributed.tp_size=4 --set optimizer.lr=0.002 "
                              "distributed.pipeline.pp_microbatch_size=2");
  import_plan_has("tp = 4,  -- the command line: distributed.tp_size");
  import_plan_has("micro = 2,  -- the command line");
  import_plan_has("max = 0.002,");
  import_lacks(report, "a.yaml:17");
  /* A word may take the place of a whole group. */
  import("--world 16 lr_scheduler=null");
  import_plan_has("lr = 1e-05,");
  import_fails(2, "a.yaml", "nonsense", "\"nonsense\" is no key=value");
  import_fails(1, "a.yaml", "--world 16 distributed.tp_sz=4",
               "the command line: error: weft import does not know the setting "
               "\"distributed.tp_sz\" (did you mean \"distributed.tp_size\"?)");
  import_fails(1, "a.yaml", "--world 16 TPP=8",
               "does not know the setting \"TPP\" (did you mean \"distributed.");
}
END_TEST

/* A setting of the table that the others leave out is known, and none of it is in the
 * plan. */
START_TEST(settings_that_do_not_count_are_known) {
  static const char depth[] =
      "distributed:\n  strategy: fsdp2\n  bucket_cap_mb: 25\n"
      "step_scheduler:\n  global_batch_size: 8\n"
      "model:\n  pretrained_model_name_or_path: Qwen/Qwen2.5-7B\n";
  import_put("a.yaml", depth);
  import_has(import(""),
             "a.yaml:3: distributed.bucket_cap_mb = 25: it counts only with other "
             "settings than these");
  import_fails(
      1, "a.yaml", "distributed.bucket_cap_mb=25",
      "the command line: error: \"distributed.bucket_cap_mb\" counts only with other "
      "settings than these");
  import("distributed.strategy=ddp");
  import_plan_has("bucket_bytes = 26214400,");
}
END_TEST

START_TEST(models_by_name_folder_and_class) {
  import_put("a.yaml", recipe);
  import("--world 16 model.pretrained_model_name_or_path=Qwen/Qwen2.5-7B-Instruct "
         "distributed.pipeline.layers_per_stage=7");
  import_plan_has("\"qwen2\",  -- the command line");
  import_plan_has("hidden_size = 3584,");
  import("--world 16 --model llama3-8b");
  import_plan_has("model = weft.model \"llama3-8b\",  -- --model llama3-8b");
  /* 61 layers, 8 in a stage: 8 stages. */
  const char *report = import("--world 16 --model deepseek-v3 distributed.moe=null "
                              "distributed.pipeline.layers_per_stage=8");
  import_plan_has("virtual = 4,");
  import_lacks(report, "distributed.moe = null: weft import does not know");
  import_put(
      "config.json",
      "{\"model_type\": \"mistral\", \"hidden_size\": 64,\n"
      "\"num_hidden_layers\": 32, \"num_attention_heads\": 4, \"vocab_size\": 99,\n"
      "\"intermediate_size\": 128, \"num_key_value_heads\": 2, \"rms_norm_eps\": 1e-5,\n"
      "\"sliding_window\": 4096, \"architectures\": [\"MistralForCausalLM\"]}");
  report = import("--world 16 --model .");
  import_plan_has("\"mistral\",");
  import_plan_has("rms_norm_eps = 1e-05,");
  import_plan_has("sliding_window = 4096,");
  import_fails(1, "a.yaml", "model.pretrained_model_name_or_path=google/gemma-3-4b-it",
               "error: google/gemma-3-4b-it is a Gemma 3, with images; weft has apertus");
  import_fails(1, "a.yaml", "model.pretrained_model_name_or_path=me/mine-3b",
               "the sizes of me/mine-3b are not in weft's table of public models");
  /* Families that weft has, of which it knows no sizes. */
  import_fails(1, "a.yaml",
               "model.pretrained_model_name_or_path=tiiuae/Falcon-H1-3B-Base",
               "the sizes of tiiuae/Falcon-H1-3B-Base are not in weft's table");
  import_fails(1, "a.yaml",
               "model.pretrained_model_name_or_path=nvidia/Nemotron-H-8B-Base-8K",
               "the sizes of nvidia/Nemotron-H-8B-Base-8K are not in weft's table");
  import_fails(1, "a.yaml", "model.pretrained_model_name_or_path=null", "name no model");
  import_fails(2, "a.yaml", "--model ./none", "./none/config.json");
}
END_TEST

static const struct Wrong {
  const char *word, *says;
} wrong[] = {
    {"distributed.tp_size=two",
     "distributed.tp_size = two: expected an integer, at least 1"},
    {"distributed.strategy=fsdp3", "the strategy fsdp3 is none of fsdp2"},
    {"distributed.pipeline.pp_schedule=dfs", "the schedule dfs is none of PyTorch's"},
    {"distributed.pipeline.layers_per_stage=40",
     "1 stages of 32 layers, which 2 pipeline ranks cannot share"},
    {"optimizer.lr=fast", "optimizer.lr = fast: expected a number, at least 0"},
    {"lr_scheduler.lr_decay_style=fast", "fast: expected constant, linear, cosine"},
    {"lr_scheduler.lr_decay_style=WSD", "WSD needs wsd_decay_steps"},
    {"optimizer.betas=0.9", "optimizer.betas: expected two numbers"},
    {"step_scheduler.global_batch_size=1e400", "expected a smaller number"},
    {"distributed.sequence_parallel=7", "expected true or false"},
    {"checkpoint.save_consolidated=often",
     "checkpoint.save_consolidated = often: expected true, false, \"final\" or "
     "\"every\""},
    {"model._target_=nemo_automodel.NeMoAutoModelForImageTextToText.from_pretrained",
     "makes another kind of model than a causal language model"},
};

START_TEST(wrong_values_are_refused) {
  char word[200];
  import_put("a.yaml", recipe);
  if (strstr(wrong[_i].word, "layers_per_stage"))
    snprintf(word, sizeof word,
             "%s distributed.pipeline.round_virtual_stages_to_pp_multiple=null",
             wrong[_i].word);
  else
    snprintf(word, sizeof word, "%s", wrong[_i].word);
  import_fails(1, "a.yaml", word, wrong[_i].says);
}
END_TEST

/* ---- what files may hold ---- */

#define HEAD                                                                             \
  "recipe: TrainFinetuneRecipeForNextTokenPrediction\nmodel:\n"                          \
  "  pretrained_model_name_or_path: openai-community/gpt2\n"

static const struct Hostile {
  const char *name, *text, *says;
} hostile[] = {
    {"h.yaml", "a: &a [*a]\nrecipe: x\n",
     "h.yaml:1: *a stands for nothing that ends before it"},
    {"h.yaml", "a: !!python/object/apply:os.system [touch pwned]\n",
     "h.yaml:1: the tag tag:yaml.org,2002:python/object/apply:os.system would make an "
     "object"},
    {"h.yaml", "? [a, b]\n: 1\n", "h.yaml:1: a key is no name"},
    {"h.yaml", "a: 1\n---\nb: 2\n", "h.yaml:2: a second document begins"},
    {"h.yaml", "a: 1\nb: {<<: 3}\n", "h.yaml:2: \"<<\" takes maps"},
    {"h.yaml", "", "h.yaml: is empty"},
    {"h.yaml", "# nothing\n", "h.yaml: is empty"},
    {"h.yaml", "just a text\n", "h.yaml: is no table of settings"},
    {"h.yaml", "a: [1, 2\n", "is no YAML"},
    {"h.yaml", "a: \"\xff\xfe\"\n", "is no YAML"},
    {"h.yaml", "a: 1\n", "is none of the settings that weft import knows"},
    {"h.json", "{\"a\": 1, \"a\": 2}", "h.json:1: is not JSON: duplicate object key"},
    {"h.json", "{'a': 1}", "h.json:1: is not JSON"},
    {"h.pdf", "a: 1\n", "h.pdf: weft import reads .conf, .json, .py, .toml"},
    {"none.yaml", NULL, "none.yaml: "},
};

START_TEST(hostile_files_are_refused) {
  const struct Hostile *h = &hostile[_i];
  if (h->text) import_put(h->name, h->text);
  import_fails(2, h->name, "", h->says);
  ck_assert_msg(!strstr(scratch_list(), "pwned"), "it ran");
}
END_TEST

/* A few lines that stand for 10^9 values, 100 levels, and more bytes than settings have.
 */
START_TEST(bombs_are_refused) {
  Text t = {0};
  text_add(&t, "a0: &a0 [1,1,1,1,1,1,1,1,1,1]\n");
  for (int i = 1; i < 9; i++) {
    text_printf(&t, "a%d: &a%d [", i, i);
    for (int k = 0; k < 10; k++) text_printf(&t, "*a%d%s", i - 1, k < 9 ? "," : "]\n");
  }
  import_put("h.yaml", t.s);
  text_free(&t);
  import_fails(2, "h.yaml", "", "has more than 100000 values, aliases counted");
  text_add(&t, "a: ");
  for (int i = 0; i < 100; i++) text_add(&t, "[");
  import_put("h.yaml", t.s);
  text_free(&t);
  import_fails(2, "h.yaml", "", "is nested more than 64 deep");
  text_add(&t, "a: 1\n");
  for (int i = 0; i < 1 << 16; i++)
    text_add(&t, "# 64 bytes of a comment that say nothing, but there are many of.\n");
  import_put("h.yaml", t.s);
  text_free(&t);
  import_fails(2, "h.yaml", "", "settings have at most 4194304");
  /* What is behind the last point of a long text is found in one pass. */
  text_add(&t, "step_scheduler: {max_steps: 1}\ndistributed: {_target_: ");
  for (int i = 0; i < 1 << 20; i++) text_add(&t, "a");
  text_add(&t, "}\nmodel: {pretrained_model_name_or_path: Qwen/Qwen3-8B}\n");
  import_put("h.yaml", t.s);
  text_free(&t);
  import_fails(1, "h.yaml", "", "is none of fsdp2, megatron_fsdp and ddp");
}
END_TEST

/* Values that would end a string or a comment of the plan, or turn what a terminal shows.
 */
static const char *const tricks[] = {
    "\\\"}} os.exit(7) --",
    "]] os.exit(7) --[[",
    "\\n os.exit(7) --",
    "\\r\\n} error 'x' --",
    "\\e[2J\\e[31m",
    "\\u202e\\u200b",
    "\\\\\\\"",
    "--[[ ]] error 'x' --[[",
    "\\0",
};

START_TEST(values_stay_in_strings_and_comments) {
  char text[1000];
  snprintf(text, sizeof text,
           HEAD "  torch_dtype: \"bf16\"\n"
                "checkpoint:\n  checkpoint_dir: \"%s\"\n  save_consolidated: \"%s\"\n"
                "\"k%s\": \"v%s\"\n",
           tricks[_i], "final", tricks[_i], tricks[_i]);
  import_put("a.yaml", text);
  const char *report = import("");
  const char *plan = scratch_get(scratch_path("a.lua"));
  for (const char *p = report; *p; p++)
    ck_assert_msg(*p == '\n' || (unsigned char)*p >= ' ', "byte %d in the report", *p);
  for (const char *p = plan; *p; p++)
    ck_assert_msg(*p == '\n' || (unsigned char)*p >= ' ', "byte %d in the plan", *p);
  import_lacks(plan, "\xe2\x80\xae");
  /* The same as a value that the plan has, and as one that is refused. */
  snprintf(text, sizeof text,
           "recipe: x\nmodel:\n  config:\n    pretrained_model_name_or_path: gpt2\n"
           "    tokenizer_class: \"%s\"\n",
           tricks[_i]);
  import_put("a.yaml", text);
  process_run(IMPORT_SECONDS, "rm -f a.lua");
  Outcome o = process_run(IMPORT_SECONDS, "$weft import a.yaml -o a.lua");
  if (o.code == 0) {
    ck_assert_int_eq(process_run(IMPORT_SECONDS, "$weft check -q a.lua").code, 0);
    import_plan_has("    tokenizer_class = \"");
  } else {
    import_fails(
        1, "a.yaml", "",
        "a.yaml:5: error: model.tokenizer_class: a string of a plan has no control");
  }
  import_fails(
      1, "a.yaml",
      arena_printf(scratch_arena, "'model.config.activation_function=%s'", tricks[_i]),
      "the command line: error: model.activation_function: ");
}
END_TEST

START_TEST(yaml_means_what_its_readers_say) {
  import_put("a.yaml",
             "\xef\xbb\xbf"
             "base: &base {strategy: ddp, tp_size: 1}\n" HEAD
             "distributed:\n  <<: *base\n  strategy: fsdp2\n  defer_fsdp_grad_sync: off\n"
             "  cp_size: 0x2\n"
             "optimizer: {lr: 1e-4, eps: 1.0e-7, betas: \"[0.8, 0.9]\"}\n"
             "dataset:\n  _target_: x.MockIterableDataset\n  seq_len: 1_024\n"
             "seed: 012\n");
  const char *report = import("");
  import_plan_has("\"fsdp2\",");
  import_plan_has("defer_fsdp_grad_sync = false,");
  import_plan_has("cp = 2,");
  import_plan_has("seq = 1024,");
  import_plan_has("lr = 0.0001,");
  import_plan_has("eps = 1e-07,");
  import_plan_has("betas = { 0.8, 0.9 },");
  import_plan_has("seed = 10,");
  import_has(report, "distributed.tp_size = 1 -> mesh.tp, 1 as without it");
}
END_TEST

START_TEST(settings_name_others) {
  import_put("a.yaml", HEAD "tp: 2\nstep_scheduler:\n  global_batch_size: 16\n"
                            "  max_steps: ${.global_batch_size}\n"
                            "distributed: {tp_size: \"${tp}\", cp_size: \"${no.such}\"}\n"
                            "seed: \"${step_scheduler.max_steps}\"\n"
                            "dataset: {seq_length: \"${dataset.seq_length}\"}\n");
  import_fails(1, "a.yaml", "", "a.yaml:8: error: ${no.such} has no value in the file");
  import_fails(1, "a.yaml", "distributed.cp_size=1",
               "a.yaml:10: error: ${dataset.seq_length} has no value");
  import("distributed.cp_size=1 dataset.seq_length=64");
  import_plan_has("tp = 2,  -- a.yaml:8: distributed.tp_size");
  import_plan_has("steps = 16,");
  import_plan_has("seed = 16,");
}
END_TEST

/* As to PyYAML, the last one counts; what does not is told. */
START_TEST(a_key_that_is_there_twice_is_told) {
  import_put("a.yaml", HEAD "optimizer: {lr: 1e-3, betas: [0.8, 0.9]}\n"
                            "dataset:\n  seq_length: 64\n  seq_length: 128\n"
                            "optimizer:\n  lr: 1e-4\n");
  const char *report = import("");
  import_plan_has("lr = 0.0001,  -- a.yaml:9: optimizer.lr");
  import_plan_has("seq = 128,  -- a.yaml:7: dataset.seq_length");
  import_plan_has("betas = { 0.9, 0.999 },  -- Adam's default");
  import_has(report, "optimizer is given again in line 8, which counts:\n"
                     "    a.yaml:4: optimizer.lr = 1e-3\n"
                     "    a.yaml:4: optimizer.betas = { 0.8, 0.9 }\n");
  import_has(report,
             "a.yaml:6: dataset.seq_length = 64: dataset.seq_length is given again "
             "in line 7, which counts");
  import("optimizer.betas=[0.5,0.6] optimizer.lr=1e-5");
  import_plan_has("betas = { 0.5, 0.6 },");
  import_plan_has("lr = 1e-05,");
}
END_TEST

START_TEST(a_plan_that_is_there_stays) {
  import_put("a.yaml", HEAD);
  import_put("a.lua", "mine");
  Outcome o = process_run(IMPORT_SECONDS, "$weft import a.yaml -o a.lua");
  ck_assert_int_eq(o.code, 2);
  import_has(o.err, "a.lua");
  ck_assert_str_eq(scratch_get(scratch_path("a.lua")), "mine");
  o = process_run(IMPORT_SECONDS, "$weft import a.yaml --quiet");
  ck_assert_int_eq(o.code, 0);
  import_has(o.out, "return weft.plan {");
  ck_assert_str_eq(o.err, "");
}
END_TEST

/* Variables in lists are replaced, too; what another resolver makes is not its default.
 */
START_TEST(resolvers_are_told_from_variables) {
  import_put("a.yaml", HEAD "distributed: {tp_size: 2}\n"
                            "optimizer: {lr: 1e-4, betas: [0.9, \"${B2,0.95}\"]}\n");
  const char *report = import("");
  import_plan_has("betas = { 0.9, 0.95 },");
  import_has(report, "B2 is 0.95, its default: the environment is not read");
  import("B2=0.99");
  import_plan_has("betas = { 0.9, 0.99 },");
  import_put("a.yaml", HEAD "foo: {tp: 2}\n"
                            "distributed: {tp_size: \"${oc.select:foo.tp,4}\"}\n");
  import_fails(1, "a.yaml", "", "${oc.select:foo.tp,4} has no value in the file");
}
END_TEST

Suite *import_suite(void) {
  Suite *s = suite_create("import");
  TCase *c = tcase_create("import");
  tcase_add_checked_fixture(c, scratch_setup, scratch_teardown);
  tcase_set_timeout(c, 120);
  tcase_add_test(c, a_recipe_becomes_a_plan);
  tcase_add_test(c, conversations_are_told);
  tcase_add_test(c, epochs_of_known_samples_are_steps);
  tcase_add_loop_test(c, rates_have_their_shapes, 0, LEN(rates));
  tcase_add_test(c, adapters_are_taken_over);
  tcase_add_test(c, adapters_of_experts_are_taken_over);
  tcase_add_test(c, the_warmup_is_a_share_of_the_steps);
  tcase_add_test(c, older_recipes_are_read);
  tcase_add_test(c, variables_and_other_files_are_told);
  tcase_add_test(c, resolvers_are_told_from_variables);
  tcase_add_test(c, json_that_is_no_yaml_is_read);
  tcase_add_test(c, nothing_is_dropped);
  tcase_add_test(c, a_gpu_that_there_is_not_is_refused);
  tcase_add_test(c, words_behind_the_file_take_its_place);
  tcase_add_test(c, settings_that_do_not_count_are_known);
  tcase_add_test(c, models_by_name_folder_and_class);
  tcase_add_loop_test(c, wrong_values_are_refused, 0, LEN(wrong));
  tcase_add_loop_test(c, hostile_files_are_refused, 0, LEN(hostile));
  tcase_add_test(c, bombs_are_refused);
  tcase_add_loop_test(c, values_stay_in_strings_and_comments, 0, LEN(tricks));
  tcase_add_test(c, yaml_means_what_its_readers_say);
  tcase_add_test(c, settings_name_others);
  tcase_add_test(c, a_key_that_is_there_twice_is_told);
  tcase_add_test(c, a_plan_that_is_there_stays);
  suite_add_tcase(s, c);
  return s;
}
