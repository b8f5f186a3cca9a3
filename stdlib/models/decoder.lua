-- decoder.lua - the decoder of the Llama family: RMSNorm before attention and MLP, RoPE,
-- grouped-query attention, gated SiLU MLP. Models of the family are this decoder with
-- options (decoder.build); some have an attention of their own, or experts (moe.lua) in the
-- place of the MLP, of all layers or some.
--
-- Activations stay (batch, seq, heads * head_dim); unit = head_dim in the dimension says
-- where tensor parallelism may cut.
local checks = require "weft.models.checks"
local config = require "weft.models.config"
local moe = require "weft.models.moe"
local rope = require "weft.models.rope"

local decoder = {}

decoder.head_dim = checks.head_dim
local kv_heads = checks.kv_heads

local function scaled(g, x, by) return by and by ~= 1 and g:scale(x, { scale = by }) or x end

local ones = { init = "ones" }
local zeros = { init = "zeros" }

function decoder.linear(g, c, x, name, out, into, bias)
  local w = g:param(name .. ".weight", { out, into }, { std = c.initializer_range })
  local y = g:linear(x, w)
  if not bias then return y end
  return g:add_bias(y, g:param(name .. ".bias", { out }, zeros))
end

function decoder.norm(g, c, x, name, dim, eps)
  local w = g:param(name .. ".weight", { dim }, ones)
  return g:rmsnorm(x, w, { eps = eps or c.rms_norm_eps })
end

local head_dim, linear, norm = decoder.head_dim, decoder.linear, decoder.norm

-- A LayerNorm.
function decoder.layer_norm(g, c, x, name, dim)
  local w, b = g:param(name .. ".weight", { dim }, ones), g:param(name .. ".bias", { dim }, zeros)
  return g:layernorm(x, w, b, { eps = c.rms_norm_eps })
end

-- An RMSNorm whose weights are 1 + w: w begins with 0, to which weight decay pulls it.
function decoder.centered_norm(g, c, x, name, dim)
  local w = g:param(name .. ".weight", { dim }, zeros)
  return g:rmsnorm(x, w, { eps = c.rms_norm_eps, zero_centered = 1 })
end

-- Modules that some families call otherwise.
local NAMES = { mlp = "mlp", out = "o_proj", up = "up_proj", down = "down_proj", norm = "norm" }
local function called(o, which) return o.names and o.names[which] or NAMES[which] end

-- A norm over each head, or over all of them together.
local function norm_heads(g, c, x, name, heads, o)
  local dim = o.qk_norm == "heads" and { "head_dim", head_dim(c) } or heads
  return (o.norm or norm)(g, c, x, name, dim)
end

local GATES = { sigmoid = 0, softplus = 1 }

-- Attention of layer `i`, from 0; `o` are options of decoder.build.
function decoder.attention(g, c, x, name, o, i)
  local d, hidden = head_dim(c), { "hidden", c.hidden_size }
  local n = o.heads and o.heads(c, i) or c.num_attention_heads
  local heads = { "head", n * d, unit = d }
  local kv = { "kv_head", kv_heads(c) * d, unit = d }
  local q = linear(g, c, x, name .. ".q_proj", heads, hidden, o.qkv_bias)
  local k = linear(g, c, x, name .. ".k_proj", kv, hidden, o.qkv_bias)
  local v = linear(g, c, x, name .. ".v_proj", kv, hidden, o.qkv_bias)
  k = scaled(g, k, o.key_scale)
  if o.qk_norm then
    q = norm_heads(g, c, q, name .. ".q_norm", heads, o)
    k = norm_heads(g, c, k, name .. ".k_norm", kv, o)
  end
  if not o.turns or o.turns(c, i) then
    local of = o.rope_type and rope.of_type(c, o.rope_type(c, i)) or c
    local turn, positions = rope.attributes(of, d, g:context()), g:positions()
    turn.interleaved = o.interleaved and 1 or 0
    local longer = o.longer_queries and rope.longer(of, turn) or turn
    q, k = g:rope(q, positions, longer), g:rope(k, positions, turn)
  end
  local sinks = o.sinks and g:param(name .. ".sinks", { { "none", n } },
                                    { std = c.initializer_range }) or nil
  local y = g:attention(q, k, v, g:doc_starts(), sinks, {
    head_dim = d, scale = o.attention_scale, rate = c.attention_dropout or 0,
    window = o.window and o.window(c, i) or nil, soft_cap = o.score_cap,
  })
  if o.head_gate then
    local gate = o.head_gate(c) == "head" and { "head", n } or heads
    y = g:gate(y, linear(g, c, x, name .. ".g_proj", gate, hidden), { kind = GATES[o.gate_kind] })
  end
  return linear(g, c, y, name .. "." .. called(o, "out"), hidden, heads, o.out_bias)
end

local function mlp(g, c, x, name, width, o, i)
  local hidden, ffn = { "hidden", c.hidden_size }, { "ffn", width }
  if o.activation then
    local up = linear(g, c, x, name .. "." .. called(o, "up"), ffn, hidden, o.mlp_bias)
    return linear(g, c, o.activation(g, up, name), name .. "." .. called(o, "down"), hidden, ffn, o.mlp_bias)
  end
  local gate = linear(g, c, x, name .. ".gate_proj", ffn, hidden, o.mlp_bias)
  local up = linear(g, c, x, name .. ".up_proj", ffn, hidden, o.mlp_bias)
  local y = o.glu and o.glu(g, gate, up, c, i) or g:silu_mul(gate, up)
  return linear(g, c, y, name .. ".down_proj", hidden, ffn, o.mlp_bias)
end

-- MLP or experts of layer `i`, and their loss or nil.
local function feed_forward(g, c, x, name, o, i)
  local experts = o.experts and o.experts(c, i)
  if not experts then
    local y = mlp(g, c, x, name .. "." .. called(o, "mlp"), c.intermediate_size, o, i)
    return scaled(g, y, o.mlp_scale)
  end
  local y, loss = moe.block(g, x, name .. "." .. (experts.module or "mlp"), experts)
  if not experts.shared then return y, loss end
  local beside = name .. "." .. (experts.beside or "mlp." .. (experts.shared_name or "shared_experts"))
  local shared = mlp(g, c, x, beside, experts.shared, o, i)
  if experts.shared_gate then
    local one = { "none", 1 }
    shared = g:gate(shared, linear(g, c, x, beside .. "_gate", one, { "hidden", c.hidden_size }))
  end
  return g:add(y, shared), loss
end

-- Names of the norms of a layer: before and after attention, before and after the MLP.
decoder.NORMS = {
  before = { "input_layernorm", false, "post_attention_layernorm", false },
  one = { "input_layernorm", false, false, false },
  after = { false, "post_attention_layernorm", false, "post_feedforward_layernorm" },
  around = { "input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm",
             "post_feedforward_layernorm" },
  apertus = { "attention_layernorm", false, "feedforward_layernorm", false },
  glm4 = { "input_layernorm", "post_self_attn_layernorm", "post_attention_layernorm",
           "post_mlp_layernorm" },
}

-- `loss` is that of the routers so far, or nil. Returns the hidden states and such a loss.
-- The layer has the kind of layer `i`, and the name of layer `at`.
local function layer(g, c, x, loss, i, o, at)
  local name, norms = "model.layers." .. (at or i), o.norms or decoder.NORMS.before
  local function normed(h, which)
    if not norms[which] then return h end
    return (o.norm or norm)(g, c, h, name .. "." .. norms[which], { "hidden", c.hidden_size })
  end
  local function add(h, y)
    if o.residual_dropout then y = g:dropout(y, { rate = o.residual_dropout }) end
    if o.residual_scale then y = g:scale(y, { scale = o.residual_scale }) end
    return g:add(h, y)
  end
  local attend, inner = o.attention or decoder.attention, normed(x, 1)
  x = add(x, normed(attend(g, c, inner, name .. ".self_attn", o, i), 2))
  local y, more = feed_forward(g, c, o.parallel and inner or normed(x, 3), name, o, i)
  return add(x, normed(y, 4)), moe.sum(g, loss, more)
end

local EMBEDDING = "model.embed_tokens.weight"

local function vocabulary(g, c, name)
  return g:param(name, { { "vocab", c.vocab_size }, { "hidden", c.hidden_size } },
                 { std = c.initializer_range })
end

-- Embeddings with the noise that the plan asks for (NEFTune, arXiv:2310.05914). Its site is none that
-- what drops there has, so that both are drawn independently.
local NOISE_SITE <const> = 8192
function decoder.noisy(g, x)
  return g:noise(x, { rate = g:noise_alpha() / math.sqrt(x:size(2) * x:size(3)), site = NOISE_SITE })
end

-- Embeddings of the tokens `ahead` places further on. As Hugging Face adds it, noise is of what the
-- module of embeddings gives: Gemma's multiplies them, what other models do comes behind it.
local function embedded(g, c, ahead, o)
  local table = vocabulary(g, c, EMBEDDING)
  local y = scaled(g, g:embedding(g:tokens(ahead), table), o.embedding_scale)
  if ahead == 0 then y = decoder.noisy(g, y) end
  y = scaled(g, y, o.embedding_multiplier)
  return o.embedding_dropout and g:dropout(y, { rate = o.embedding_dropout }) or y
end

local function logits_of(g, c, x, o)
  local head = c.tie_word_embeddings and EMBEDDING or "lm_head.weight"
  -- Rows of hidden states are narrower than those of logits.
  local logits = g:linear(scaled(g, x, o.logits_scale), vocabulary(g, c, head), { name = "lm_head" })
  if o.head_bias then
    logits = g:add_bias(logits, g:param("lm_head.bias", { { "vocab", c.vocab_size } }, zeros))
  end
  return o.logits_cap and g:soft_cap(logits, { soft_cap = o.logits_cap }) or logits
end

local function last_norm(g, c, x, name, o)
  return (o.norm or norm)(g, c, x, name, { "hidden", c.hidden_size })
end

-- ---- multi-token prediction ---- DeepSeek-V3's (arXiv:2412.19437, section 2.2): module k
-- predicts of each token i the one k + 1 places further on, from what module k - 1, or the
-- model, has of i, h[i], and the token i + k:
--
--   h'[i] = M [RMSNorm(Emb(t[i + k])); RMSNorm(h[i])],  h = RMSNorm(Layer(h'))
--   P[i + k + 1] = OutHead(h[i]),  loss = weight / D * sum over k of cross entropies
--
-- with the embedding and the head of the model. h of the model is what its head reads, and
-- modules end in a norm of their own, as in Megatron and in DeepSeek's files; M has its
-- columns in their order. The layer is as the last one of the model. A cross entropy is
-- divided by the labels of the model, as in the paper, though the last k tokens of a document
-- have no label; modules read there a token 0.

-- Module k from `x`; loss is that of routers.
local function further(g, c, x, loss, k, o)
  local at, width = c.num_hidden_layers + k - 1, c.hidden_size
  local name = "model.layers." .. at
  local e = last_norm(g, c, embedded(g, c, k, o), name .. ".enorm", o)
  local h = last_norm(g, c, x, name .. ".hnorm", o)
  local both = g:join_heads(e, h, { head_dim = 2 * width, head_part = width })
  x = linear(g, c, both, name .. ".eh_proj", { "hidden", width }, { "none", 2 * width })
  x, loss = layer(g, c, x, loss, c.num_hidden_layers - 1, o, at)
  return last_norm(g, c, x, name .. ".shared_head.norm", o), loss
end

-- Of logits and labels k places further on; what a blend's sources are is of the model's
-- own loss alone.
local function further_loss(g, c, logits, k)
  local labels, of = g:labels(k), { vocab = c.vocab_size }
  return g:ce_loss(g:ce_sum(logits, labels, g:ce_max(logits, of), of), labels)
end

-- The whole model; returns the loss. Options are those of all layers, or of layer i, from 0:
--   qkv_bias, out_bias, mlp_bias, head_bias   which linear layers have one
--   names           of modules, in the place of NAMES
--   parallel        the MLP reads what attention does, which has the only norm of the layer
--   qk_norm         "heads": RMSNorm over each head of q and k, "width": over all together
--   turns(c, i)     whether q and k of the layer turn; they do without it
--   rope_type(c, i) the type of the layer, where each type has a rope of its own
--   interleaved     pairs that turn are neighbours
--   longer_queries  queries grow with their positions, as rope.longer says
--   heads(c, i)     query heads of the layer, which has c.num_attention_heads without it
--   head_gate(c)    what attention gives is multiplied by a function of g_proj, gate_kind "sigmoid" or
--                   "softplus": of a number for each "head", or for each "element"
--   window(c, i)    how many tokens a query of the layer sees, nothing: all before it
--   norms           see decoder.NORMS
--   norm(g, c, x, name, dim)  in the place of an RMSNorm
--   glu(g, gate, up, c, i)  in the place of silu(gate) * up
--   activation(g, up, name)  of an MLP without a gate, the module `name`
--   attention(g, c, x, name, options, i)  in the place of decoder.attention
--   experts(c, i)   what moe.block takes, or nothing for a layer with an MLP; and `shared`,
--                   the width of an MLP beside the experts, shared_name, its module, and
--                   shared_gate, whether a number for each token says how much of it counts;
--                   module and beside, where these are not in "mlp"
--   residual_dropout, embedding_dropout  what of branches and of embeddings is dropped
--   embedding_scale, embedding_multiplier (behind noise), attention_scale, key_scale, mlp_scale,
--   residual_scale, logits_scale
--                   what embeddings, scores, keys, what MLPs give, branches and logits are multiplied by
--   sinks           heads have one each: the score of a key without a value
--   score_cap, logits_cap  soft caps of scores and logits
function decoder.build(g, c, o)
  local extra
  local x = g:unit("embed_tokens", function() return embedded(g, c, 0, o) end)
  for i = 0, c.num_hidden_layers - 1 do
    x, extra = g:layer(i, function() return layer(g, c, x, extra, i, o) end)
  end
  x = g:unit("norm", function() return last_norm(g, c, x, "model." .. called(o, "norm"), o) end)
  local modules, weight = g:mtp()
  local hidden = { [0] = x }
  for k = 1, modules do
    hidden[k], extra = g:layer(c.num_hidden_layers + k - 1, function()
      return further(g, c, hidden[k - 1], extra, k, o)
    end)
  end
  return g:unit("lm_head", function()
    local loss = g:loss(logits_of(g, c, x, o))
    for k = 1, modules do
      local more = further_loss(g, c, logits_of(g, c, hidden[k], o), k)
      loss = g:add(loss, g:scale(more, { scale = weight / modules }))
    end
    return moe.sum(g, loss, extra)
  end)
end

-- Keys that all of the family have, with the values of Llama's configuration class.
function decoder.defaults(changes)
  local d = {
    vocab_size = 32000, hidden_size = 4096, intermediate_size = 11008,
    num_hidden_layers = 32, num_attention_heads = 32, num_key_value_heads = false,
    head_dim = false, max_position_embeddings = 2048, hidden_act = "silu",
    rms_norm_eps = 1e-6, initializer_range = 0.02, tie_word_embeddings = false,
    rope_theta = 10000.0, rope_scaling = false, rope_parameters = false,
    original_max_position_embeddings = false, attention_dropout = 0.0,
  }
  for key, value in pairs(changes) do d[key] = value end
  return config.defaults(d)
end

-- ---- windows ---- `window` of decoder.build

-- All layers have sliding_window, if it is given.
function decoder.same_window(c) return c.sliding_window or nil end

-- The kind of layer i, from 0: what layer_types says, or else `otherwise`.
function decoder.layer_type(c, i, otherwise)
  return c.layer_types and c.layer_types[i + 1] or otherwise
end

-- sliding_window is that of the layers of type sliding_attention; of a config without
-- layer_types, of those that `slides(c, i)` says.
function decoder.window_by_type(slides)
  return function(c, i)
    local kind = slides(c, i) and "sliding_attention" or "full_attention"
    return decoder.layer_type(c, i, kind) == "sliding_attention" and c.sliding_window or nil
  end
end

-- Qwen's: only with use_sliding_window, and from layer max_window_layers on.
local late_window = decoder.window_by_type(function(c, i)
  return i >= (c.max_window_layers or 0)
end)
function decoder.qwen_window(c, i)
  return c.use_sliding_window and late_window(c, i) or nil
end

decoder.check, decoder.check_keys = checks.decoder, checks.keys

return decoder
