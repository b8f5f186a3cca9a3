-- shards.lua - plan:shards(): a line for each shard of a parameter.
local format, params = string.format, use "reports/params"

-- "dimension 1: 0 to 3 of each of 2 parts and 1 of padding"
local function range(r)
  local out = {}
  if r.count > 0 then
    out[1] = format("%d to %d", r.first, r.first + r.count - 1)
      .. (r.parts > 1 and format(" of each of %d parts", r.parts) or "")
  end
  if r.padding > 0 then out[#out + 1] = format("%d of padding", r.padding) end
  return format(" dimension %d: %s", r.dim, table.concat(out, " and "))
end

-- "    dp 2: elements 128 to 191 on rank 4"; of many pieces, the first and the last.
local function pieces(v, s, text, lines)
  local shown = 4
  for i, p in ipairs(s.pieces) do
    if i <= shown or i == #s.pieces then
      local what = p.count > 0 and format("elements %d to %d", p.first, p.first + p.count - 1)
        or "nothing"
      lines[#lines + 1] = format("    %s %-3d %s  on %s: %s", v.flat.axis, i - 1, what,
        text.plural(#p.ranks, "rank"), text.list(p.ranks, 8))
    elseif i == shown + 1 then
      lines[#lines + 1] = "    ..."
    end
  end
end

return function(v, text)
  local lines = { format("%s %s, %s, pipeline rank%s %s", v.name, params.shape(v),
    params.cut(v), #v.pp > 1 and "s" or "", text.list(v.pp, 8)) }
  if v.flat then
    lines[2] = format("each shard's %s cut by %s=%d", table.concat(v.flat, ", "), v.flat.axis,
      v.flat.ways)
  end
  for _, s in ipairs(v) do
    local line = #v.cuts > 0 and " " or "  whole"
    for _, c in ipairs(v.cuts) do line = line .. format(" %s %-3d", c.axis, s[c.axis]) end
    for _, r in ipairs(s.ranges) do line = line .. range(r) end
    lines[#lines + 1] = format("%s  on %s: %s", line, text.plural(#s.ranks, "rank"),
      text.list(s.ranks, 8))
    if s.pieces then pieces(v, s, text, lines) end
  end
  return table.concat(lines, "\n")
end
