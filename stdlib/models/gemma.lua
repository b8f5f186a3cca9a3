-- gemma.lua - Gemma of 2024, its first version: Llama's decoder with scaled embeddings, norms
-- by 1 + w, and the tanh approximation of GELU as gate. What later versions share is here, too.
local config = require "weft.models.config"
local decoder = require "weft.models.decoder"

local gelu = { "gelu_pytorch_tanh" }

local gemma = {
  class = "GemmaForCausalLM",
  aliases = {},
  ignored = config.ignored(),
}
gemma.defaults, gemma.unwritten = decoder.defaults {
  vocab_size = 256000, hidden_size = 3072, intermediate_size = 24576, num_hidden_layers = 28,
  num_attention_heads = 16, num_key_value_heads = 16, head_dim = 256,
  hidden_act = "gelu_pytorch_tanh", hidden_activation = false,
  max_position_embeddings = 8192, tie_word_embeddings = true, attention_bias = false,
}
gemma.unwritten.hidden_activation = true

-- Public files say "gelu" where they mean the approximation, and Hugging Face reads it so.
local rules = {
  { "attention_bias", "boolean" }, { "hidden_act", "only", { gelu[1], "gelu" } },
  { "hidden_activation", "only", { false, gelu[1] } },
}
config.dense(gemma, rules)

gemma.head_dim = decoder.head_dim

local function geglu(g, gate, up) return g:mul(g:gelu(gate), up) end

-- Options of decoder.build for all versions, with those of one.
function gemma.options(c, more)
  local o = {
    norm = decoder.centered_norm, glu = geglu, embedding_scale = math.sqrt(c.hidden_size),
    qkv_bias = c.attention_bias, out_bias = c.attention_bias,
  }
  for key, value in pairs(more) do o[key] = value end
  return o
end

-- An architecture with the keys of the second version and the third.
function gemma.later(class, changes)
  local d = {
    vocab_size = 256000, hidden_size = 2304, intermediate_size = 9216,
    num_hidden_layers = 26, num_attention_heads = 8, num_key_value_heads = 4,
    head_dim = 256, hidden_act = false, hidden_activation = gelu[1],
    max_position_embeddings = 8192, tie_word_embeddings = true, attention_bias = false,
    query_pre_attn_scalar = 256, sliding_window = 4096, layer_types = false,
    final_logit_softcapping = false,
  }
  for key, value in pairs(changes) do d[key] = value end
  local arch = {
    class = class, aliases = {}, head_dim = decoder.head_dim,
    ignored = config.ignored { "cache_implementation" },
  }
  arch.defaults, arch.unwritten = decoder.defaults(d)
  arch.unwritten.hidden_act = true -- the class reads hidden_activation alone
  local own = {
    { "attention_bias", "boolean" }, { "hidden_activation", "only", gelu },
    { "hidden_act", "only", { false, gelu[1], "gelu" } },
    { "query_pre_attn_scalar", "positive" }, { "sliding_window", "patterned" },
    { "layer_types", "each", { "full_attention", "sliding_attention" } },
    { "final_logit_softcapping", "optional_positive" },
  }
  config.dense(arch, own)
  return arch, own
end

-- Options of theirs; `slides(c, i)` as in decoder.window_by_type.
function gemma.later_options(c, slides, more)
  local o = gemma.options(c, more)
  o.norms, o.window = decoder.NORMS.around, decoder.window_by_type(slides)
  o.attention_scale = c.query_pre_attn_scalar ^ -0.5
  o.logits_cap = c.final_logit_softcapping or nil
  return o
end

function gemma.build(g, c) return decoder.build(g, c, gemma.options(c, {})) end

function gemma.check(c) return decoder.check(gemma.class, c, rules) end

return gemma
