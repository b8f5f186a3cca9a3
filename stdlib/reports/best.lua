-- best.lua - weft.best: the layout that was found, what became of all others, and why those
-- that come next lose.
local format = string.format
local text = use "reports/text"
local NAMES = { "tp", "pp", "cp", "ep", "etp", "dp", "micro", "strategy", "recompute", "schedule", "virtual",
                "balance" }
local shown_reasons, shown_causes = 8, 3
local report = {}

local function span(s)
  if s < 1 then return format("%.4g ms", s * 1e3) end
  return format(s >= 100 and "%.0f s" or "%.2f s", s)
end

local function value(v)
  if type(v) == "table" then
    local parts = {}
    for i, x in ipairs(v) do parts[i] = tostring(x) end
    return table.concat(parts, "+")
  end
  return tostring(v)
end

-- What goes without saying: sizes of one, stages that are shared out evenly.
local function usual(name, v) return v == 1 and name ~= "micro" and name ~= "tp" or v == "even" end

local function layout_text(layout)
  local parts = {}
  for _, name in ipairs(NAMES) do
    local v = layout[name]
    if v ~= nil and not usual(name, v) then parts[#parts + 1] = name .. " " .. value(v) end
  end
  return table.concat(parts, ", ")
end

-- The fields in which a layout differs from the best.
local function differs(best, layout)
  local parts = {}
  for _, name in ipairs(NAMES) do
    if layout[name] ~= best[name] and name ~= "dp" then
      parts[#parts + 1] = name .. " " .. value(layout[name] == nil and "-" or layout[name])
    end
  end
  return table.concat(parts, ", ")
end

-- "bubble +2.1 %, exposed tp -0.4 %": of the best's step.
local function causes(why, seconds)
  local parts = {}
  for i, x in ipairs(why) do
    local share = 100 * x.seconds / seconds
    if i > shown_causes or math.abs(share) < 0.1 then break end
    parts[i] = format("%s %+.1f %%", x.class, share)
  end
  return #parts > 0 and table.concat(parts, ", ") or "-"
end

local function by_count(list)
  local sorted = table.move(list, 1, #list, 1, {})
  table.sort(sorted, function(a, b)
    if a.count ~= b.count then return a.count > b.count end
    return (a.first or 0) < (b.first or 0)
  end)
  return sorted
end

-- What became of every layout.
function report.counts(v)
  local out = { format("%s in %.1f s%s:", text.plural(v.layouts, "layout"), v.seconds, v.interrupted and ", interrupted" or "") }
  local function say(n, ...)
    if n > 0 then out[#out + 1] = format("%9d  " .. ..., n, select(2, ...)) end
  end
  say(v.on_the_clock, "on the clock")
  say(v.forecast_slower, "not on the clock: from what it said of others, the least of them is expected to take %s",
    v.least_forecast and span(v.least_forecast) or "")
  say(v.slower_by_bound, "slower even by their bound")
  say(v.memory, "need more than %.4g GiB on a rank%s", v.room_gib,
    v.memory_by_buffers > 0 and format(" (%d of them with all buffers only)", v.memory_by_buffers) or "")
  say(v.memory_beside, "have no room for what CUDA and NCCL take besides (memory = %.4g takes them in)", v.room_gib)
  say(v.refused, "are no plan:")
  for i, x in ipairs(by_count(v.reasons)) do
    if i > shown_reasons then
      out[#out + 1] = format("           and %s", text.plural(#v.reasons - shown_reasons, "more reason"))
      break
    end
    out[#out + 1] = format("           %d  %s: %s%s", x.count, x.code,
      x.path ~= "" and "plan." .. x.path .. ": " or "", x.message)
  end
  say(v.unseen, "not looked at")
  say(v.untimed or 0, "may fit, and none of them was on the clock")
  return table.concat(out, "\n")
end

local function rows_of(v)
  local rows = {}
  for i, row in ipairs(v.rows) do
    if i > 1 then
      rows[#rows + 1] = { span(row.seconds), row.tie and format("%.1f %%, a tie", 100 * row.behind)
        or format("%.1f %%", 100 * row.behind), differs(v.best.layout, row.layout), causes(row.why, v.best.seconds) }
    end
  end
  return text.columns({ "step", "behind", "layout", "why" }, rows)
end

local function others_of(v)
  local rows = {}
  for _, x in ipairs(v.others) do
    rows[#rows + 1] = { x.field .. " " .. value(x.value), format("%.1f %%", 100 * x.behind), tostring(x.layouts),
                        causes(x.why, x.seconds) }
  end
  return text.columns({ "with", "behind", "of", "why" }, rows)
end

function report.text(v)
  if not v.best then
    local why = v.interrupted and "no layout was on the clock yet" or "no layout fits"
    return format("%s on %d x %s: %s\n\n%s", v.plan, v.ranks, v.gpu, why, report.counts(v))
  end
  local b = v.best
  local out = {
    format("%s on %d x %s: %s a step, between %s and %s", v.plan, v.ranks, v.gpu, span(b.seconds),
      span(b.low), span(b.high)),
    "  " .. layout_text(b.layout),
    format("  %s tokens/s for each GPU, MFU %.1f %%, %.1f of %.4g GiB on the worst rank, %s",
      text.count(b.tokens_per_s_per_gpu), 100 * b.mfu, b.peak_gib, v.room_gib,
      text.plural(b.microbatches, "microbatch")),
    "", report.counts(v),
  }
  if v.forecast_error then
    out[#out + 1] = format("Expectations were off by %.1f %% on average where the clock followed.",
      100 * v.forecast_error)
  end
  if #v.rows > 1 then
    out[#out + 1] = ""
    out[#out + 1] = rows_of(v)
  end
  if #v.others > 0 then
    out[#out + 1] = ""
    out[#out + 1] = "the best on the clock with another value, of so many on it that have it:"
    out[#out + 1] = others_of(v)
  end
  out[#out + 1] = ""
  out[#out + 1] = "Ties are within 3 %, or change order between worse and better stacks: see planning.md. Percent"
  out[#out + 1] = "are of the best step, its classes of time the mean of all pipeline ranks."
  return table.concat(out, "\n")
end

return setmetatable(report, { __call = function(_, v) return report.text(v) end })
