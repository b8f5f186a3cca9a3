-- diff.lua - plan:diff(): what differs, figures behind a =.
return function(v)
  local lines = {}
  for i, d in ipairs(v) do
    lines[i] = string.format("%s%s: %s -> %s", d.figure and "= " or "", d.path,
      d.from or "(nothing)", d.to or "(nothing)")
  end
  if not v.compared then
    lines[#lines + 1] = "figures are not compared: a plan does not compile (plan:check())"
  end
  return #lines > 0 and table.concat(lines, "\n") or "the same"
end
