-- stages.lua - plan:stages(): what each pipeline stage runs.
local format, match = string.format, string.match

-- "embed_tokens, layers.0 to layers.3": neighbours that differ in their last number.
local function units(list)
  local out, i = {}, 1
  while i <= #list do
    local base, first = match(list[i], "^(.-)(%d+)$")
    local last, k = tonumber(first), i
    while base and list[k + 1] == base .. last + 1 do
      last, k = last + 1, k + 1
    end
    out[#out + 1] = k > i and format("%s to %s", list[i], list[k]) or list[i]
    i = k + 1
  end
  return table.concat(out, ", ")
end

return function(v, text)
  local rows = {}
  for i, s in ipairs(v) do
    rows[i] = { s.stage, s.pp, s.chunk, s.layers, text.count(s.parameters),
                format("%.1f %%", 100 * s.share), units(s.units) }
  end
  return text.columns(
    { "stage", "pp rank", "chunk", "layers", "parameters", "work", "units" }, rows)
end
