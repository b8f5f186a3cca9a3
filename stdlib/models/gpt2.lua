-- gpt2.lua - GPT-2: learned positions, LayerNorm, biases everywhere, GELU, q, k and v in
-- one packed weight. Weights of linear layers are stored [in, out] (layout 1), as Hugging
-- Face's Conv1D does. Both spellings of the sizes are accepted: n_embd or hidden_size.
local config = require "weft.models.config"
local decoder = require "weft.models.decoder"

local gpt2 = {
  class = "GPT2LMHeadModel",
  files_have_aliases = true,
  aliases = {
    n_layer = "num_hidden_layers", n_embd = "hidden_size", n_head = "num_attention_heads",
    n_inner = "intermediate_size", n_positions = "max_position_embeddings",
  },
  -- n_ctx repeats n_positions; the rest is about heads of other tasks.
  ignored = config.ignored {
    "n_ctx", "gradient_checkpointing", "summary_activation", "summary_first_dropout",
    "summary_proj_to_labels", "summary_type", "summary_use_proj",
  },
}
gpt2.defaults, gpt2.unwritten = config.defaults {
  vocab_size = 50257, hidden_size = 768, num_hidden_layers = 12,
  num_attention_heads = 12, intermediate_size = false, max_position_embeddings = 1024,
  activation_function = "gelu_new", layer_norm_epsilon = 1e-5,
  initializer_range = 0.02, tie_word_embeddings = true, scale_attn_weights = true,
  scale_attn_by_inverse_layer_idx = false, reorder_and_upcast_attn = false,
  add_cross_attention = false, attn_pdrop = 0.0, embd_pdrop = 0.0, resid_pdrop = 0.0,
}

-- Attribute `kind` of g:gelu by the name of the activation.
local gelu = { gelu_new = 0, gelu_pytorch_tanh = 0, gelu = 1 }

local zeros = { init = "zeros" }

local function linear(g, x, name, into, out, std)
  local w = g:param(name .. ".weight", { into, out }, { std = std })
  local b = g:param(name .. ".bias", { out }, zeros)
  return g:add_bias(g:linear(x, w, { layout = 1 }), b)
end

local function norm(g, c, x, name)
  local hidden = { "hidden", c.hidden_size }
  local w = g:param(name .. ".weight", { hidden }, { init = "ones" })
  local b = g:param(name .. ".bias", { hidden }, zeros)
  return g:layernorm(x, w, b, { eps = c.layer_norm_epsilon })
end

local function layer(g, c, x, name)
  local width, std = c.hidden_size, c.initializer_range
  local d = width // c.num_attention_heads
  local hidden = { "hidden", width }
  local ffn = { "ffn", c.intermediate_size or 4 * width }
  local packed = { "head", 3 * width, unit = d, parts = 3 }
  -- The two projections onto the residual stream start smaller, by the number of them.
  local residual = std / math.sqrt(2 * c.num_hidden_layers)

  local h = norm(g, c, x, name .. ".ln_1")
  local q, k, v =
    g:split(linear(g, h, name .. ".attn.c_attn", hidden, packed, std), { n = 3 })
  h = g:attention(q, k, v, g:doc_starts(), { head_dim = d, rate = c.attn_pdrop or 0 })
  local heads = { "head", width, unit = d }
  local function add(x, y) return g:add(x, g:dropout(y, { rate = c.resid_pdrop or 0 })) end
  x = add(x, linear(g, h, name .. ".attn.c_proj", heads, hidden, residual))

  h = linear(g, norm(g, c, x, name .. ".ln_2"), name .. ".mlp.c_fc", hidden, ffn, std)
  h = g:gelu(h, { kind = gelu[c.activation_function] })
  return add(x, linear(g, h, name .. ".mlp.c_proj", ffn, hidden, residual))
end

local function embedding(g, c, name, tag, rows)
  return g:param(name, { { tag, rows }, { "hidden", c.hidden_size } },
                 { std = c.initializer_range })
end

function gpt2.build(g, c)
  local trained, context = g:tokens():size(2), g:context()
  if context > c.max_position_embeddings then
    local what = context == trained and "batch.seq = %d exceeds" or "%d tokens of a sample exceed"
    error(string.format(what .. " max_position_embeddings = %d", context, c.max_position_embeddings), 0)
  end
  local wte = "transformer.wte.weight"
  local x = g:unit("wte", function()
    local positions =
      embedding(g, c, "transformer.wpe.weight", "position", c.max_position_embeddings)
    local tokens = embedding(g, c, wte, "vocab", c.vocab_size)
    local x = decoder.noisy(g, g:embedding(g:tokens(), tokens))
    return g:dropout(g:add(x, g:embedding(g:positions(), positions)), { rate = c.embd_pdrop or 0 })
  end)
  for i = 0, c.num_hidden_layers - 1 do
    x = g:layer(i, function() return layer(g, c, x, "transformer.h." .. i) end)
  end
  x = g:unit("ln_f", function() return norm(g, c, x, "transformer.ln_f") end)
  return g:unit("lm_head", function()
    local head = c.tie_word_embeddings and wte or "lm_head.weight"
    local w = embedding(g, c, head, "vocab", c.vocab_size)
    return g:loss(g:linear(x, w, { name = "lm_head" }))
  end)
end

local rules = {
  { "vocab_size", "count" }, { "hidden_size", "count" }, { "num_hidden_layers", "count" },
  { "num_attention_heads", "count" }, { "intermediate_size", "optional_count" },
  { "max_position_embeddings", "count" }, { "layer_norm_epsilon", "positive" },
  { "initializer_range", "positive" }, { "tie_word_embeddings", "boolean" },
  { "activation_function", "only", { "gelu_new", "gelu_pytorch_tanh", "gelu" } },
  { "scale_attn_weights", "only", { true } },
  { "scale_attn_by_inverse_layer_idx", "only", { false } },
  { "reorder_and_upcast_attn", "only", { false } },
  { "attn_pdrop", "rate" }, { "embd_pdrop", "rate" }, { "resid_pdrop", "rate" },
}

config.dense(gpt2, rules)

function gpt2.check(c)
  local problems = config.check(gpt2.class, c, rules)
  if config.sound(problems) and c.hidden_size % c.num_attention_heads ~= 0 then
    config.add(problems, "num_attention_heads", "%d does not divide hidden_size = %d",
               c.num_attention_heads, c.hidden_size)
  end
  return problems
end

return gpt2
