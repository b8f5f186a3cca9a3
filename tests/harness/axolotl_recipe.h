/* axolotl_recipe.h - the beginning of a recipe of axolotl, and of one with LoRA. */
#ifndef WEFT_TESTS_AXOLOTL_RECIPE_H
#define WEFT_TESTS_AXOLOTL_RECIPE_H

#define RECIPE                                                                           \
  "base_model: HuggingFaceTB/SmolLM2-135M\n"                                             \
  "model_type: LlamaForCausalLM\n"                                                       \
  "datasets:\n  - {path: ./mine/talks.jsonl, type: chat_template}\n"                     \
  "sequence_len: 64\nmicro_batch_size: 2\ngradient_accumulation_steps: 3\n"              \
  "learning_rate: 2e-5\n"
#define LORA "adapter: lora\nlora_r: 16\nlora_alpha: 32\n"

#endif
