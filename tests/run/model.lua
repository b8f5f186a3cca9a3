-- model.lua - a model function with a weight that does not fit.
local weft = require "weft"

local function model(g)
  local w = g:param("embed.weight", { { "vocab", 16 }, { "hidden", 8 } })
  local x = g:embedding(g:tokens(), w)
  return g:linear(x, g:param("w", { { "vocab", 16 }, { "hidden", 9 } }))
end

return weft.plan { model = model, batch = { global = 1, seq = 8 } }
