-- windows.lua - which tokens before it a token sees in each layer of a Megatron model: --window-size
-- counts those beside itself, --window-attn-skip-freq says which layers see all.
local layers_of = use "import/megatron/layers"
local quote = use "import/quote"
local scalar = use "import/scalar"
local windows = {}

windows.keys = { "window_size", "window_attn_skip_freq" }

-- "127,0", "(127, 0)" or a list; what lies behind a token is not seen, whatever the second number.
local function left_of(value)
  local left = value
  if type(value) == "table" then left = value[1] end
  if type(value) == "string" then left = string.match(value, "^[%(%[]?%s*(-?%d+)%s*,") end
  return scalar.integer(left)
end

-- The layers that see all, from 0; nil: the settings cannot be.
local function full_layers(value, layers)
  local full, every, list = {}, math.type(value) == "integer" and value, nil
  if value == nil then return full end
  if type(value) == "table" then list = value end
  if type(value) == "string" then list = layers_of.pattern(value, layers) end
  if not (every and every >= 1) and not (list and #list == layers) then return nil end
  for i = 0, layers - 1 do
    local slides = every and (i + 1) % every ~= 0 or list and list[i + 1] ~= 0
    if not slides then full[#full + 1] = i end
  end
  return full
end

-- Puts m.window = { tokens =, full = }; nothing: all layers see all.
function windows.read(book, m)
  local value, freq = book:value "window_size", book:value "window_attn_skip_freq"
  if value == nil then return book:no_effect("window_attn_skip_freq", "without --window-size all layers see all") end
  local left = left_of(value)
  if not left or left < -1 then
    return book:refuse("window_size", quote.shown(value) .. ": expected two numbers, such as 127,0")
  end
  local full = full_layers(freq, m.layers)
  if not full then
    return book:refuse("window_attn_skip_freq", string.format("%s: expected a number, or a list such as "
      .. "[1]*3+[0] with one number for each of %d layers", quote.shown(freq), m.layers))
  end
  if left >= 0 and #full < m.layers then m.window = { tokens = left + 1, full = full } end
end

-- The keys of one of weft's architectures.
function windows.put(c, m)
  if not m.window then return end
  c.sliding_window = m.window.tokens
  if c[1] == "qwen2" or c[1] == "qwen3" then c.use_sliding_window = true end
  if c[1] == "mistral" then return end
  local types = {}
  for i = 1, m.layers do types[i] = "sliding_attention" end
  for _, i in ipairs(m.window.full) do types[i + 1] = "full_attention" end
  c.layer_types = types
end

return windows
