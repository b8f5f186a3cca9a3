-- params.lua - what reports say of a parameter.
local format = string.format

local params = {}

-- "(8192, 28672)"
function params.shape(p) return "(" .. table.concat(p.shape, ", ") .. ")" end

-- "rowwise, dimension 2 cut by tp=8"
function params.cut(p)
  local out = { p.style }
  for i, c in ipairs(p.cuts) do
    out[i + 1] = format("dimension %d cut by %s=%d", c.dim, c.axis, c.ways)
  end
  return table.concat(out, ", ")
end

return params
