-- verify.lua - plan:verify(): many ranks against one.
local format = string.format
local text = use "reports/text"

return function(v)
  local lines = {}
  local function add(...) lines[#lines + 1] = format(...) end
  if v.not_covered ~= "" then add("made smaller, so not covered: %s", v.not_covered) end
  add("%s against one, %s, %s", text.plural(v.ranks, "rank"), text.plural(v.steps, "step"),
    text.plural(v.tensors, "tensor"))
  add("largest relative differences: loss %.1e, gradient norm %.1e, gradient %.1e, "
    .. "parameter %.1e", v.loss, v.grad_norm, v.grad, v.param)
  if v.worst ~= "" then add("worst tensor: %s", v.worst) end
  if v.rounding ~= "" then add("beyond the tolerance: %s", v.rounding) end
  add("%s (tolerance %g)", v.ok and "the same" or "DIFFERENT", v.tolerance)
  lines[#lines + 1] = v.first
  return table.concat(lines, "\n")
end
