-- match.lua - plan:match(): parameters that differ in their layer only are one line.
local format, params = string.format, use "reports/params"

return function(v)
  if #v == 0 then
    return format('no parameter matches "%s"%s', v.pattern,
      v.near and format(' (did you mean "%s"?)', v.near) or "")
  end
  local groups, of, lines = {}, {}, {}
  for _, p in ipairs(v) do
    local what = params.shape(p) .. "  " .. params.cut(p)
    local key = table.concat({ p.like, what, p.pattern }, "\n")
    if not of[key] then
      of[key] = { name = p.name, like = p.like, what = what, n = 0 }
      groups[#groups + 1] = of[key]
    end
    of[key].n = of[key].n + 1
  end
  for i, g in ipairs(groups) do
    lines[i] = format("%-44s %4d x %s", g.n > 1 and g.like or g.name, g.n, g.what)
  end
  return table.concat(lines, "\n")
end
