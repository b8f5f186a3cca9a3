-- ahead.lua - rows that are asked for one after the other, made by all threads at once.
-- ahead(points, list, row_of, whole, clock) gives look(i), which is called before item i of the
-- list is asked for: it makes that and as many behind it as there are threads, but for those of
-- which `wanted`, if it is given, says no.
return function(points, list, row_of, whole, clock)
  local upto = 0
  return function(i, wanted)
    if i <= upto then return end
    local rows = {}
    upto = math.min(i + points:lanes() - 1, #list)
    for k = i, upto do
      if k == i or not wanted or wanted(list[k]) then rows[#rows + 1] = row_of(list[k]) end
    end
    points:ahead(rows, whole, clock)
  end
end
