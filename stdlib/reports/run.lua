-- run.lua - plan:run(): a row for each step.
local format = string.format

return function(v)
  local lines = { format("%6s %12s %12s %12s %10s %12s", "step", "loss", "grad norm", "lr",
    "ms", "tokens/s") }
  for i, s in ipairs(v) do
    lines[i + 1] = format("%6d %12.6f %12.6f %12.4g %10.1f %12.0f", s.step, s.loss,
      s.grad_norm, s.lr, s.ms, s.tokens_per_s)
  end
  return table.concat(lines, "\n")
end
