-- cohere2.lua - Cohere 2 (Command R7B, Command A): LayerNorm without a bias, MLP and attention side by
-- side, a window and RoPE on neighbouring pairs in three layers of four, neither in the others, and
-- scaled logits.
local config = require "weft.models.config"
local decoder = require "weft.models.decoder"

local cohere2 = {
  class = "Cohere2ForCausalLM",
  files_have_aliases = true,
  not_of_files = { rms_norm_eps = true },
  aliases = { layer_norm_eps = "rms_norm_eps" },
  ignored = config.ignored { "cache_implementation", "order_of_interleaved_layers",
                             "position_embedding_type", "use_embedding_sharing",
                             "use_gated_activation", "use_parallel_embedding" },
}
cohere2.defaults, cohere2.unwritten = decoder.defaults {
  vocab_size = 256000, hidden_size = 8192, intermediate_size = 22528, num_hidden_layers = 40,
  num_attention_heads = 64, max_position_embeddings = 8192, rms_norm_eps = 1e-5,
  logit_scale = 0.0625, tie_word_embeddings = true, attention_bias = false,
  sliding_window = 4096, sliding_window_pattern = 4, layer_types = false,
  use_parallel_block = true,
}
for _, key in ipairs { "sliding_window_pattern", "use_parallel_block" } do
  cohere2.unwritten[key] = true
end

local rules = {
  { "attention_bias", "boolean" }, { "logit_scale", "positive" }, { "sliding_window", "count" },
  { "sliding_window_pattern", "count" }, { "use_parallel_block", "only", { true } },
  { "layer_types", "each", { "full_attention", "sliding_attention" } },
}
config.dense(cohere2, rules)

cohere2.head_dim = decoder.head_dim

local function slides(c, i)
  local kind = (i + 1) % c.sliding_window_pattern ~= 0 and "sliding_attention" or "full_attention"
  return decoder.layer_type(c, i, kind) == "sliding_attention"
end

local function norm(g, c, x, name, dim) return decoder.norm(g, c, g:center(x), name, dim) end

function cohere2.build(g, c)
  return decoder.build(g, c, {
    norm = norm, norms = decoder.NORMS.one, parallel = true, interleaved = true, turns = slides,
    window = decoder.window_by_type(slides), qkv_bias = c.attention_bias,
    out_bias = c.attention_bias, logits_scale = c.logit_scale,
  })
end

function cohere2.check(c) return decoder.check(cohere2.class, c, rules) end

return cohere2
