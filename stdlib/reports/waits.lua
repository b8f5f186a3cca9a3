-- waits.lua - the longest waits of plan:sim(): of each place the pipeline rank that waits
-- longest, at most `most` of them.
return function(sim, most)
  local out, told = {}, {}
  for _, w in ipairs(sim.waits) do
    local place = w.axis .. " " .. w.what
    if not told[place] and #out < most then
      local where = w.what ~= "" and w.what or w.axis == "pp" and "transfers between stages" or "what units share"
      out[#out + 1] = { field = "mesh." .. w.axis, where = where, pp = w.pp, count = w.count, seconds = w.seconds }
    end
    told[place] = true
  end
  return out
end
