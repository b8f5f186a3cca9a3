-- checks.lua - what is wrong with the config of a decoder (decoder.lua): with single keys, and with sizes
-- that do not go together. Problems are as config.lua has them.
local config = require "weft.models.config"
local rope, rope_check = require "weft.models.rope", require "weft.models.rope_check"

local checks = {}

-- Sizes that other keys determine when they are not given.
function checks.head_dim(c)
  return c.head_dim or c.hidden_size // c.num_attention_heads
end
function checks.kv_heads(c) return c.num_key_value_heads or c.num_attention_heads end

local head_dim, kv_heads = checks.head_dim, checks.kv_heads

-- Adds what is wrong with layer_types beside the other keys.
local function check_types(c, problems)
  if not c.layer_types then return end
  if #c.layer_types ~= c.num_hidden_layers then
    config.add(problems, "layer_types", "%d types for num_hidden_layers = %d", #c.layer_types,
               c.num_hidden_layers)
  end
end

-- Whether a rule is of the kind, and its key.
local function has_kind(rules, kind)
  for _, rule in ipairs(rules) do
    if rule[2] == kind then return true, rule[1] end
  end
end

-- Adds the first layer that has a window, where no key says how long. A rule of the kind "switch" is of a key
-- without which none has one, one of the kind "patterned" says that some have one unless layer_types says otherwise.
local function check_windows(c, problems, rules)
  local switched, key = has_kind(rules, "switch")
  local why = switched and not c[key] and key .. " is false" or not c.sliding_window and "there is no sliding_window"
  if not why then return end
  for i, kind in ipairs(c.layer_types or {}) do
    if kind == "sliding_attention" then
      return config.add(problems, "layer_types", "item %d has a window, and %s", i, why)
    end
  end
  if not c.layer_types and has_kind(rules, "patterned") then
    config.add(problems, "sliding_window", "layers of this family have windows, unless layer_types has "
               .. "full_attention for each")
  end
end

-- Adds a number of heads, of some layers, that key-value heads do not divide.
function checks.heads_of_some(c, problems, key)
  local kv = kv_heads(c)
  if c[key] % kv ~= 0 then
    config.add(problems, key, "num_key_value_heads = %d does not divide %d", kv, c[key])
  end
end

-- Adds what is wrong with a list of the heads of each layer, the key `list`.
function checks.heads(c, problems, list)
  local all, kv = c[list], kv_heads(c)
  if not all then return end
  if #all ~= c.num_hidden_layers then
    return config.add(problems, list, "%d numbers for num_hidden_layers = %d", #all, c.num_hidden_layers)
  end
  for i, n in ipairs(all) do
    if n % kv ~= 0 then
      config.add(problems, list, "item %d: num_key_value_heads = %d does not divide %d", i, kv, n)
    end
  end
end

local rules = {
  { "vocab_size", "count" }, { "hidden_size", "count" }, { "intermediate_size", "count" },
  { "num_hidden_layers", "count" }, { "num_attention_heads", "count" },
  { "num_key_value_heads", "optional_count" }, { "head_dim", "optional_count" },
  { "max_position_embeddings", "count" }, { "rms_norm_eps", "positive" },
  { "initializer_range", "positive" }, { "tie_word_embeddings", "boolean" },
  { "hidden_act", "only", { "silu", "swish" } }, { "attention_dropout", "rate" },
}

-- Problems of single keys; `more` holds rules of the architecture, `class` is as in
-- config.lua. And whether sizes can be compared, and whether the one rope of all layers is sound, too.
-- A rule for partial_rotary_factor says that the architecture has it, one of the kind "ropes" that each
-- type of layers has a rope, of a part of each head if it says "partial", one of the kind "grows" that
-- queries grow with their positions.
function checks.keys(class, c, more)
  local all, own = {}, {}
  for _, rule in ipairs(more) do own[rule[1]] = true end
  for _, rule in ipairs(rules) do if not own[rule[1]] then all[#all + 1] = rule end end
  table.move(more, 1, #more, #all + 1, all)
  local problems = config.check(class, c, all)
  local sound = config.sound(problems)
  local partial, types, grows, parts = false, false, false, false
  for _, rule in ipairs(more) do
    partial = partial or rule[1] == "partial_rotary_factor"
    types, grows = types or rule[2] == "ropes", grows or rule[2] == "grows"
    parts = parts or rule[2] == "ropes" and rule[3] == "partial"
  end
  if types then
    rope_check.types(c, problems, parts, sound)
  else
    rope_check.keys(c, problems, partial, grows, sound)
  end
  return problems, sound, not types and config.sound(problems)
end

-- Problems of a whole configuration.
function checks.decoder(class, c, more)
  local problems, sound, turns = checks.keys(class, c, more)
  if not sound then return problems end
  local heads, kv = c.num_attention_heads, kv_heads(c)
  check_types(c, problems)
  if not c.head_dim and c.hidden_size % heads ~= 0 then
    config.add(problems, "num_attention_heads",
               "%d does not divide hidden_size = %d (or give head_dim)", heads,
               c.hidden_size)
  elseif head_dim(c) % 2 ~= 0 then
    config.add(problems, c.head_dim and "head_dim" or "num_attention_heads",
               "the size of a head must be even, got %d", head_dim(c))
  elseif turns and rope.turning(c, head_dim(c)) % 2 ~= 0 then
    config.add(problems, c.head_dim and "head_dim" or "num_attention_heads",
               "%d elements of a head of %d turn, which must be even",
               rope.turning(c, head_dim(c)), head_dim(c))
  end
  if heads % kv ~= 0 then
    config.add(problems, "num_key_value_heads",
               "%d does not divide num_attention_heads = %d", kv, heads)
  end
  check_windows(c, problems, more)
  return problems
end

return checks
