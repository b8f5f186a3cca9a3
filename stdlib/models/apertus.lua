-- apertus.lua - Apertus: Llama's decoder with norms over heads of q and k, and an MLP without a
-- gate, whose activation, xIELU (arXiv:2411.13010), has two numbers that each layer learns.
local config = require "weft.models.config"
local decoder = require "weft.models.decoder"

local apertus = {
  class = "ApertusForCausalLM",
  aliases = {},
  ignored = config.ignored(),
}
apertus.defaults, apertus.unwritten = decoder.defaults {
  vocab_size = 131072, hidden_size = 4096, intermediate_size = 14336, hidden_act = "xielu",
  max_position_embeddings = 65536, rms_norm_eps = 1e-5, rope_theta = 12000000.0,
  attention_bias = false, qk_norm = true, post_norm = false, hidden_dropout = false,
  -- A config with neither of its tables has the class's, whatever rope_theta is.
  rope_parameters = {
    rope_type = "llama3", rope_theta = 12000000.0, factor = 8.0, original_max_position_embeddings = 8192,
    low_freq_factor = 1.0, high_freq_factor = 4.0,
  },
}
-- Files have these, the class does not.
for _, key in ipairs { "qk_norm", "post_norm", "hidden_dropout" } do apertus.unwritten[key] = true end

local rules = {
  { "hidden_act", "only", { "xielu" } }, { "attention_bias", "boolean" },
  { "qk_norm", "only", { true } }, { "post_norm", "only", { false } },
  { "hidden_dropout", "only", { false, 0 } },
}
config.dense(apertus, rules)

apertus.head_dim = decoder.head_dim

-- Its class knows no other slope at 0, and no other border of the exponential; files have both.
local BETA <const>, EPS <const> = 0.5, -1e-6

-- What softplus makes `y` of.
local function before_softplus(y) return math.log(math.exp(y) - 1) end

local function xielu(g, x, mlp)
  local name, one = mlp .. ".act_fn", { { "none", 1 } }
  g:buffer(name .. ".beta", BETA)
  g:buffer(name .. ".eps", EPS)
  local above = g:param(name .. ".alpha_p", one, { init = before_softplus(0.8) })
  local below = g:param(name .. ".alpha_n", one, { init = before_softplus(0.8 - BETA) })
  return g:xielu(x, above, below, { beta = BETA, eps = EPS })
end

function apertus.build(g, c)
  return decoder.build(g, c, {
    norms = decoder.NORMS.apertus, qk_norm = "heads", activation = xielu,
    qkv_bias = c.attention_bias, out_bias = c.attention_bias,
  })
end

function apertus.check(c) return decoder.check(apertus.class, c, rules) end

return apertus
