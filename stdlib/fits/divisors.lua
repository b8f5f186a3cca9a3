-- divisors.lua - divisors(n, most): those of n up to `most`, the least first.
return function(n, most)
  local list = {}
  for d = 1, math.min(n, most) do
    if n % d == 0 then list[#list + 1] = d end
  end
  return list
end
