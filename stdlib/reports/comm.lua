-- comm.lua - plan:comm(): operations by axis.
return function(v, text)
  if #v == 0 then return "no communication" end
  local rows = {}
  for i, r in ipairs(v) do
    local bytes = (r.at_most and "at most " or "") .. text.bytes(r.bytes)
    rows[i] = { r.axis, r.op, r.count, bytes, r.link }
  end
  local of = v.rank and "of rank " .. v.rank or "of the rank with most"
  return text.columns({ "axis", "operation", "count", "bytes", "link" }, rows)
    .. "\n" .. of .. ", each step"
end
