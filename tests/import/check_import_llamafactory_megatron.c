/* check_import_llamafactory_megatron.c - weft import of LLaMA-Factory's arguments where
 * Megatron trains below it, mcore_adapter or Megatron-Bridge. */
#include <check.h>
#include <stdlib.h>

#include "tests/harness/llamafactory_rows.h"

START_TEST(megatron_is_known_by_its_arguments) {
  import_put("a.yaml",
             MODEL "finetuning_type: full\nbf16: true\nper_device_train_batch_size: 1\n"
                   "gradient_accumulation_steps: 8\ntensor_model_parallel_size: 2\n"
                   "pipeline_model_parallel_size: 2\nsequence_parallel: true\n"
                   "use_distributed_optimizer: true\nrecompute_granularity: selective\n"
                   "virtual_pipeline_model_parallel_size: 2\napply_rope_fusion: true\n");
  const char *report = import("--world 8");
  import_plan_has("tp = 2,");
  import_plan_has("pp = 2,");
  import_plan_has("virtual = 2,");
  import_plan_has("\"zero\",  -- Megatron");
  import_plan_has("stage = 1,");
  import_plan_has("sequence_parallel = true,");
  import_plan_has("recompute = \"selective\",");
  import_plan_has("global = 16,");
  import_has(report, "by those of each microbatch");
  import_put("a.yaml", MODEL "finetuning_type: full\nuse_packed_sequences: true\n"
                             "mixed_precision: bf16_mixed\nbf16: true\n");
  import("--world 2");
  import_plan_has("stage = 1,  -- the default there"); /* Megatron-Bridge's */
  import_plan_has("size = 2048,  -- a.yaml:4: use_packed_sequences");
}
END_TEST

/* Adam steps, three shapes are known, and parts of the steps are rounded down. */
static const Row bridge[] = {
    {"finetuning_type: full\nbf16: true\nuse_megatron_bridge: true\noptim: sgd\n"
     "lr_scheduler_type: polynomial\nmax_steps: 55\nwarmup_ratio: 0.1\nuse_muon: true\n",
     {"optimizer = weft.adamw {", "lr = weft.cosine {", "warmup = 5,", "!min =", "!power",
      "!warmup_ratio ="},
     {"below Megatron-Bridge LLaMA-Factory takes it for polynomial",
      "below Megatron-Bridge Adam steps, whatever it says", "rounded down"}},
    {"finetuning_type: full\nbf16: true\nuse_megatron_bridge: true\n"
     "lr_scheduler_type: constant\nmax_steps: 50\nwarmup_steps: 4\n",
     {"lr = weft.constant {", "warmup = 4,"},
     {NULL}},
    {"finetuning_type: full\nbf16: true\nuse_megatron_bridge: true\n"
     "lr_scheduler_type: warmup_stable_decay\nmax_steps: 50\nwarmup_steps: 0.2\n",
     {"lr = weft.cosine {", "!warmup =", "!decay_style"},
     {"takes it for a number of steps"}},
    /* Its own setting packs; LLaMA-Factory's make sequences shorter. */
    {"finetuning_type: full\nuse_megatron_bridge: true\n"
     "use_packed_sequences: false\nneat_packing: true\n",
     {"seq = 2047,", "alone = true,"},
     {"neat_packing = true -> batch.seq, a token less than cutoff_len: below"}},
    /* Its formats are those of mixed_precision alone. */
    {"finetuning_type: full\nuse_megatron_bridge: true\npure_bf16: true\n",
     {"param_dtype = \"bf16\",  -- LLaMA-Factory's default", "!master_dtype",
      "!state_dtype"},
     {"pure_bf16 = true: below Megatron-Bridge mixed_precision says it"}},
    {"finetuning_type: full\nbf16: true\nmixed_precision: fp16_mixed\n",
     {"param_dtype = \"f16\",  -- a.yaml:5: mixed_precision"},
     {"bf16 = true: below Megatron-Bridge mixed_precision says it"}},
    {"lora_rank: 4\nmixed_precision: bf16_with_fp8_delayed_scaling_mixed\nfp8: true\n",
     {"param_dtype = \"bf16\",", "!\"fp8\","},
     {"products are in bf16: precision", "fp8 = true: below Megatron-Bridge"}},
};

START_TEST(megatron_bridge_has_its_own_steps) { check_rows(bridge, LEN(bridge)); }
END_TEST

/* mcore_adapter has no adapters; Megatron-Bridge has them in stage sft, of all linears.
 */
static const Row below_megatron[] = {
    {"bf16: true\ntensor_model_parallel_size: 2\nlora_rank: 4\n",
     {"tp = 2,", "!adapter ="},
     {"adapter: none: mcore_adapter trains all parameters; use_megatron_bridge: true",
      "lora_rank = 4: mcore_adapter trains all parameters"}},
    {"bf16: true\nfinetuning_type: freeze\nrecompute_granularity: full\n",
     {"!freeze ="},
     {"finetuning_type = freeze: mcore_adapter trains all parameters, whatever it says"}},
    {"bf16: true\nstage: pt\nfinetuning_type: lora\nuse_megatron_bridge: true\n",
     {"!adapter ="},
     {"finetuning_type = lora: Megatron-Bridge in stage pt trains all parameters"}},
    {"bf16: true\nlora_rank: 4\nuse_megatron_bridge: true\nlora_target: q_proj\n"
     "lora_dropout: 0.1\nuse_rslora: true\nuse_dora: true\nadditional_target: lm_head\n",
     {"rank = 4,", "targets = \"all-linear\",  -- those of LLaMA-Factory below",
      "!dropout = 0.1,", "!rslora = true,", "!dora = true,", "!modules_to_save"},
     {"linear_fc1 and linear_fc2 have factors, whatever it says",
      "LLaMA-Factory does not tell Megatron-Bridge of it:\n    a.yaml:7: lora_dropout",
      "Megatron-Bridge's fused linears have one pair for all"}},
};

START_TEST(what_learns_below_megatron) {
  check_rows(below_megatron, LEN(below_megatron));
  import_put("a.yaml", "model_name_or_path: Qwen/Qwen3-30B-A3B\ndo_train: true\n"
                       "cutoff_len: 512\nuse_megatron_bridge: true\n");
  const char *report = import("--world 8");
  import_plan_has("targets = { \"q_proj\", \"k_proj\", \"v_proj\", \"o_proj\" },");
  import_has(report, "experts have no factors; Megatron-Bridge's do");
  import_fails(
      1, "a.yaml", "finetuning_type=freeze",
      "finetuning_type = freeze: below Megatron-Bridge LLaMA-Factory takes full");
  import_fails(1, "a.yaml", "stage=dpo", "trains in stages pt and sft alone");
  import_fails(1, "a.yaml", "mixed_precision=fast", "expected bf16_mixed, fp16_mixed");
  import_fails(1, "a.yaml", "quantization_bit=4", "takes no model that is quantized");
}
END_TEST

Suite *import_llamafactory_megatron_suite(void) {
  Suite *s = suite_create("import_llamafactory_megatron");
  TCase *t = tcase_create("megatron");
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_set_timeout(t, 120);
  tcase_add_test(t, megatron_is_known_by_its_arguments);
  tcase_add_test(t, megatron_bridge_has_its_own_steps);
  tcase_add_test(t, what_learns_below_megatron);
  suite_add_tcase(s, t);
  return s;
}
