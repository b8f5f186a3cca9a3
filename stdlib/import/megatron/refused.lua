-- refused.lua - Megatron's settings that make a model which no field of weft can say: encoders, images,
-- Mamba, other attentions.
local quote = use "import/quote"
local scalar = use "import/scalar"
local refused = {}

local HYBRID = "layers of Mamba are not in weft; --model NAME makes the plan with another model"
local ENCODER = "an encoder and a decoder, or an encoder alone, are not in weft; --model NAME makes the plan "
  .. "with a causal language model"
local IMAGES = "images are not in weft; --model NAME makes the plan of a language model alone"
local CHUNKS = "attention within chunks is not in weft; --window-size is: a window that goes along"
local ATTENTION = "is an attention that weft does not have"
local ACTIVATION = "is an activation function that weft does not have"
refused.ACTIVATION = ACTIVATION

-- Settings that make a model that no field of weft can say, unless they have one of `plain`.
refused.rows = {
  { "hybrid_layer_pattern", HYBRID }, { "hybrid_override_pattern", HYBRID },
  { "mamba_num_heads", HYBRID }, { "hybrid_attention_ratio", HYBRID, { 0 } },
  { "encoder_num_layers", ENCODER }, { "decoder_num_layers", ENCODER },
  { "encoder_seq_length", ENCODER }, { "bert_no_binary_head", ENCODER },
  { "vision_model_type", IMAGES }, { "language_model_type", IMAGES }, { "img_h", IMAGES },
  { "chunk_attention_size", CHUNKS },
  { "experimental_attention_variant", ATTENTION }, { "heterogeneous_layers_config_path",
    "layers that differ are not in weft's models" },
  { "heterogeneous_layers_config_encoded_json", "layers that differ are not in weft's models" },
  { "model_provider", HYBRID, { "gpt" } },
  { "softmax_type", ATTENTION, { "vanilla" } }, { "attention_output_gate", ATTENTION },
  { "quick_geglu", ACTIVATION }, { "openai_gelu", ACTIVATION }, { "onnx_safe", ACTIVATION },
  { "moe_shared_expert_gate", "the shared expert has no gate in weft" },
  { "encoder_pipeline_model_parallel_size", ENCODER, { 0 } },
  { "apply_residual_connection_post_layernorm", "norms are before attention and MLP in weft" },
  { "embedding_multiplier", "embeddings are not scaled in weft", { 1 } },
  { "scale_emb", "embeddings are not scaled in weft", { 1 } },
  { "moe_apply_probs_on_input", "scores of experts are applied to what comes of them in weft" },
  { "cross_layer_parameter_sharing", "layers have parameters of their own" },
}

local TOKENIZERS = "^Bert"
local PROGRAMS = { { "_bert", ENCODER }, { "_t5", ENCODER }, { "_ict", ENCODER }, { "_retro", ENCODER },
                   { "_vlm", IMAGES }, { "_vision", IMAGES }, { "_mamba", HYBRID }, { "_hybrid", HYBRID } }

-- Why a program or a tokenizer makes another kind of model.
local function other_kind(book)
  -- The program's folder may be a variable that nobody set: its name counts.
  local tokenizer, leaf = book:value "tokenizer_type", book:leaf "program"
  local program = scalar.behind_last(tostring(leaf and leaf.value), "/")
  if string.find(tostring(tokenizer), TOKENIZERS) then return "tokenizer_type", ENCODER end
  for _, row in ipairs(PROGRAMS) do
    if string.find(program, row[1], 1, true) then return "program", row[2] end
  end
end

-- The first setting that makes another model is the error, the others are told beside it.
function refused.refuse(book)
  local before = #book.refused
  local function refuse(key, why)
    if string.find(why, "^is ") then why = quote.shown(book:leaf(key).given) .. " " .. why end
    if #book.refused > before then book:cannot(key, why) else book:refuse(key, why) end
  end
  for _, row in ipairs(refused.rows) do
    local key, why = row[1], row[2]
    local value = book:value(key)
    local plain = value == nil or value == false
    for _, one in ipairs(row[3] or {}) do plain = plain or value == one end
    if plain then book:no_effect(key, "it is as without it") else refuse(key, why) end
  end
  local key, why = other_kind(book)
  if key then refuse(key, why) end
  return #book.refused > before
end

return refused
