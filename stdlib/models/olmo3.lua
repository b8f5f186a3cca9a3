-- olmo3.lua - OLMo 3: OLMo 2's decoder, where three layers of four see a window and turn by a
-- rope of their own, without what scales that of the others.
local config = require "weft.models.config"
local decoder = require "weft.models.decoder"
local rope = require "weft.models.rope"

local olmo3 = {
  class = "Olmo3ForCausalLM",
  aliases = {},
  ropes = true, -- each type of layers has one: see rope.of_type
  ignored = config.ignored(),
}
olmo3.defaults, olmo3.unwritten = decoder.defaults {
  vocab_size = 50304, rms_norm_eps = 1e-5, rope_theta = 500000.0, attention_bias = false,
  sliding_window = 4096, layer_types = false,
}

local rules = {
  { "attention_bias", "boolean" }, { "sliding_window", "count" },
  { "layer_types", "each", { "full_attention", "sliding_attention" } },
  { "rope_parameters", "ropes" },
}
config.dense(olmo3, rules)

olmo3.head_dim = decoder.head_dim

local function slides(_, i) return (i + 1) % 4 ~= 0 end

local function layer_type(c, i)
  return decoder.layer_type(c, i, slides(c, i) and "sliding_attention" or "full_attention")
end

function olmo3.build(g, c)
  return decoder.build(g, c, {
    qkv_bias = c.attention_bias, out_bias = c.attention_bias, qk_norm = "width",
    norms = decoder.NORMS.after, window = decoder.window_by_type(slides),
    rope_type = layer_type,
  })
end

-- Of a rope_theta beside the tables Hugging Face's class gives layers with a window nothing.
local function warn_of_theta(c, problems)
  local theta = olmo3.defaults.rope_theta
  if c.rope_theta == theta then return end
  for _, kind in ipairs(rope.TYPES) do
    if rope.of_type(c, kind).rope_parameters.rope_theta then return end
  end
  problems[#problems + 1] = {
    key = "rope_theta", severity = "warning",
    message = string.format("%s is that of all layers here; Transformers gives layers of sliding_attention %s: "
                            .. "rope_parameters with a table for each type says which", c.rope_theta, theta),
  }
end

function olmo3.check(c)
  local problems = decoder.check(olmo3.class, c, rules)
  if config.sound(problems) then warn_of_theta(c, problems) end
  return problems
end

return olmo3
