-- activation.lua - the activation function of MLPs that Megatron's settings choose, and how wide it leaves them.
local quote = use "import/quote"
local refused = use "import/megatron/refused"
local values = use "import/values"
local activation = {}

local function on(book, key) return values.flag(book, key) == true end

local GATED = { swiglu = "swiglu", ["silu"] = "swiglu" }
local SQUARED = { squared_relu = true, squaredrelu = true }

-- Whether settings of the model are keys of this group, not arguments.
local function is_below(book, group)
  for _, key in ipairs { "num_layers", "hidden_size", "num_attention_heads", "activation_func" } do
    local leaf = book:leaf(key)
    if leaf and string.find(leaf.given, "^" .. group .. "%.") then return true end
  end
  return false
end

-- Whether gelu is exact. Arguments fuse it with its bias into a kernel that has the tanh approximation; YAML files
-- never do that, and Megatron-Bridge where it is told to.
local function exact_gelu(book, m)
  local key = "bias_activation_fusion"
  if not m.bias then return true end
  if is_below(book, "language_model") then
    for _, one in ipairs { key, "bias_gelu_fusion" } do
      book:no_effect(one, "gelu is exact: with biases a YAML file does not fuse it, whatever this says")
    end
    return true
  elseif is_below(book, "model") then
    book:translated(key, "model")
    return not on(book, key)
  end
  return on(book, "no_bias_gelu_fusion")
end

-- Says m.act, and of gelu m.erf.
function activation.read(book, m)
  m.act = "gelu"
  if on(book, "swiglu") then m.act = "swiglu" end
  if on(book, "squared_relu") then m.act = "relu2" end
  local name = book:value "activation_func"
  if name ~= nil then
    name = tostring(name)
    local gated = on(book, "gated_linear_unit")
    if GATED[name] and (gated or name == "swiglu") then
      m.act = "swiglu"
    elseif SQUARED[name] then
      m.act = "relu2"
    elseif name ~= "gelu" or gated then
      book:refuse("activation_func", quote.shown(name) .. " " .. refused.ACTIVATION)
    end
  elseif on(book, "gated_linear_unit") and m.act == "gelu" then
    book:refuse("gated_linear_unit", "a gate with gelu " .. refused.ACTIVATION)
  end
  if m.act == "gelu" then m.erf = exact_gelu(book, m) end
end

-- Megatron's default width of an MLP.
function activation.usual_ffn(m)
  if m.act ~= "swiglu" then return 4 * m.hidden end
  return (4 * m.hidden * 2 // 3) // 64 * 64
end

return activation
