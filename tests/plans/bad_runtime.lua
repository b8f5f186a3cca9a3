local weft = require "weft"
local sizes = nil

local function half(t)
  return t.tp // 2
end

return weft.plan {
  mesh = { tp = half(sizes) },
}
--> bad_runtime.lua:5: error: attempt to index a nil value (local 't')
--> 1 error
