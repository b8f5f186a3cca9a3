-- sim.lua - plan:sim(): the time of a step, and of each pipeline rank where it goes.
local format = string.format

local longest = use "reports/waits"

local axes = { "tp", "cp", "ep", "dp", "pp" }
local shown = 6 -- waits

local function span(s)
  if s >= 1 then return format("%.3f s", s) end
  return format(s >= 1e-3 and "%.2f ms" or "%.4f ms", s * 1e3)
end

-- Ranks whose times are the same to a thousandth of the step are one row.
local function alike(a, b, step)
  local function near(x, y) return math.abs((x or 0) - (y or 0)) < step / 1000 end
  if not (near(a.compute, b.compute) and near(a.bubble, b.bubble) and near(a.shared, b.shared)) then
    return false
  end
  for _, axis in ipairs(axes) do
    if not near(a.exposed[axis], b.exposed[axis]) then return false end
  end
  return true
end

local function rows(v)
  local out = {}
  for _, r in ipairs(v.pipeline) do
    local last = out[#out]
    if last and alike(last.of, r, v.seconds) then
      last.to = r.pp
    else
      out[#out + 1] = { of = r, from = r.pp, to = r.pp }
    end
  end
  return out
end

local classes = { "products", "expert products", "attention", "attention backward", "memory", "optimizer" }

-- Columns in which some rank has time.
local function used(v, key, names)
  local out = {}
  for _, name in ipairs(names) do
    local most = 0
    for _, r in ipairs(v.pipeline) do most = math.max(most, r[key][name] or 0) end
    if most > v.seconds / 1e4 then out[#out + 1] = name end
  end
  return out
end

local function share(part, v) return format("%.1f", 100 * (part or 0) / v.seconds) end

local function table_of(v, text)
  local heads, kernels, exposed = { "pp rank" }, used(v, "kernels", classes), used(v, "exposed", axes)
  for _, name in ipairs(kernels) do heads[#heads + 1] = name end
  for _, name in ipairs(exposed) do heads[#heads + 1] = "exposed " .. name end
  local shared = false
  for _, r in ipairs(v.pipeline) do shared = shared or r.shared ~= nil end
  if shared then heads[#heads + 1] = "shared cores" end
  heads[#heads + 1] = "bubble"
  local out = {}
  for _, row in ipairs(rows(v)) do
    local cells = { row.from == row.to and format("%d", row.from) or format("%d-%d", row.from, row.to) }
    for _, name in ipairs(kernels) do cells[#cells + 1] = share(row.of.kernels[name], v) end
    for _, name in ipairs(exposed) do cells[#cells + 1] = share(row.of.exposed[name], v) end
    if shared then cells[#cells + 1] = share(row.of.shared, v) end
    cells[#cells + 1] = share(row.of.bubble, v)
    out[#out + 1] = cells
  end
  return text.columns(heads, out)
end

-- How the times are known, and which ops no row of the calibration is near to.
local function known(v)
  local s = v.sources
  if not v.ops then
    return "  all of it is by data sheets: nothing was measured; from better to worse stacks, see planning.md"
  end
  local out = format("  of kernels and transfers %.1f %% measured, %.1f %% interpolated, %.1f %% by data sheet",
    100 * s.measured, 100 * s.interpolated, 100 * s["data sheet"])
  local without = {}
  for _, op in ipairs(v.ops) do
    if op.sources["data sheet"] > 0 then without[#without + 1] = op.name .. " " .. op.dtype end
  end
  if #without == 0 then return out end
  local more = #without > shown and format(" and %d more", #without - shown) or ""
  return out .. ":\n    no row for " .. table.concat(without, ", ", 1, math.min(#without, shown)) .. more
end

return function(v, text)
  local out = {
    format("%s on %d x %s: %s a step", v.plan, v.ranks, v.gpu, span(v.seconds)) ..
      (v.low == v.high and "" or format(", between %s and %s", span(v.low), span(v.high))),
    format("  %s tokens/s for each GPU, MFU %.1f %%, HFU %.1f %% (causal attention counts half)",
      text.count(v.tokens_per_s_per_gpu), 100 * v.mfu, 100 * v.hfu),
    known(v),
    "", "percent of the step:", table_of(v, text),
  }
  if #v.waits > 0 then
    out[#out + 1] = ""
    out[#out + 1] = "longest waits for transfers:"
    for _, w in ipairs(longest(v, shown)) do
      out[#out + 1] = format("  %-8s %s exposed in %s, pp rank %d", w.field, span(w.seconds), w.where, w.pp)
    end
  end
  for i, w in ipairs(v.warnings or {}) do
    if i == 1 then out[#out + 1] = "" end
    out[#out + 1] = "warning: " .. w.message
  end
  return table.concat(out, "\n")
end
