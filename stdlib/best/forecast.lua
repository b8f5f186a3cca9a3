-- forecast.lua - what the clock will say of a layout, by its bound and by what the clock said
-- of others: the logarithm of clock over bound is a sum of effects of the layout's values,
-- each drawn to zero where few layouts had it. It orders layouts for the clock and is no
-- result: whatever is told was on the clock.
local rounds = 12
local forecast = {}

-- `seen`: a list of { layout =, log = }.
function forecast.fit(names, seen)
  local fit = { names = names, mean = 0, effect = {} }
  for _, name in ipairs(names) do fit.effect[name] = {} end
  for _, x in ipairs(seen) do fit.mean = fit.mean + x.log / #seen end
  for _ = 1, rounds do
    for _, name in ipairs(names) do
      local sum, count, own = {}, {}, fit.effect[name]
      for _, x in ipairs(seen) do
        local v = x.layout[name]
        if v ~= nil then
          local rest = x.log - forecast.log(fit, x.layout) + (own[v] or 0)
          sum[v], count[v] = (sum[v] or 0) + rest, (count[v] or 0) + 1
        end
      end
      for v, total in next, sum do own[v] = total / (count[v] + 0.5) end
    end
  end
  return fit
end

function forecast.log(fit, layout)
  local log = fit.mean
  for _, name in ipairs(fit.names) do
    local v = layout[name]
    if v ~= nil then log = log + (fit.effect[name][v] or 0) end
  end
  return log
end

return forecast
