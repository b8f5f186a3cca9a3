-- figures.lua - what is known of a judged point, by column. A row is what `core` gives: the
-- figures of a line of JSON.
local gib = 1 << 30

local figures = {
  "dp", "microbatches", "peak_gib", "bubble", "comm_gib.tp", "comm_gib.cp", "comm_gib.ep",
  "comm_gib.ep_even", "comm_gib.dp", "comm_gib.pp", "tflop", "tflop_recomputed", "step_ms", "clock_ms",
  "tokens_per_s",
}

-- column[name](row): nil where a row has no such figure.
figures.column = {
  dp = function(r) return r.dp end,
  microbatches = function(r) return r.microbatches end,
  peak_gib = function(r) return r.peak_bytes / gib end,
  bubble = function(r) return r.bubble end,
  ["comm_gib.tp"] = function(r) return r.comm_bytes.tp / gib end,
  ["comm_gib.cp"] = function(r) return r.comm_bytes.cp / gib end,
  ["comm_gib.ep"] = function(r) return r.comm_bytes.ep / gib end,
  ["comm_gib.ep_even"] = function(r) return r.comm_bytes.ep_even / gib end,
  ["comm_gib.dp"] = function(r) return r.comm_bytes.dp / gib end,
  ["comm_gib.pp"] = function(r) return r.comm_bytes.pp / gib end,
  tflop = function(r) return r.flop / 1e12 end,
  tflop_recomputed = function(r) return r.flop_recomputed / 1e12 end,
  step_ms = function(r) return r.step_ms end,
  clock_ms = function(r) return r.clock_ms end,
  tokens_per_s = function(r) return r.tokens_per_s end,
}

-- Adds the figures of a row to the fields of its point, as a script sees them.
function figures.add(t, row)
  for _, name in ipairs(figures) do
    local v, table, last = figures.column[name](row), string.match(name, "(.*)%.(.*)")
    if table then
      t[table] = type(t[table]) == "table" and t[table] or {}
      t[table][last] = v
    elseif v ~= nil then
      t[name] = v
    end
  end
  t.worst_rank = row.worst_rank
  return t
end

return figures
