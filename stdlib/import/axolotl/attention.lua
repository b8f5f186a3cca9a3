-- attention.lua - which attention a recipe of axolotl asks for, and what goes by it there: whether packed documents see
-- each other, and whether weights beside the linears stay in f32 (utils/schemas/enums.py).
local values = use "import/values"
local attention = {}

-- Older names, switches, of which the first that is on counts.
local SWITCHES = {
  { "xformers_attention", "xformers" }, { "sage_attention", "sage" }, { "flex_attention", "flex_attention" },
  { "flash_attention", "flash_attention_2" }, { "sdp_attention", "sdpa" }, { "eager_attention", "eager" },
  { "gemma4_hybrid_attn_impl", "flash_attention_2" },
}

-- Those that keep documents of a row apart.
local ISOLATES = {
  flash_attention_2 = true, flash_attention_3 = true, flex_attention = true, xformers = true, sage = true, sdpa = true, eager = true,
  ["kernels-community/flash-attn2"] = true, ["kernels-community/flash-attn3"] = true, ["kernels-community/sage-attention"] = true,
}

-- The name of one; nil: the recipe asks for none.
function attention.of(book)
  local name = book:value "attn_implementation"
  if name ~= nil then return tostring(name) end
  for _, row in ipairs(SWITCHES) do
    if values.switch(book, row[1]) then return row[2] end
  end
end

function attention.isolates(name) return ISOLATES[name] or false end

-- Whether it computes in the type of its inputs, so that embeddings and norms may be f32.
function attention.takes_f32(name) return name == nil or name == "sdpa" or name == "eager" end

return attention
