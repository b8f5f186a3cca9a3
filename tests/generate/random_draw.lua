-- random_draw.lua - numbers that follow from a number, for the plans of `./dev fuzz`.
local draw = {}
draw.__index = draw

local function new_draw(seed)
  return setmetatable({ at = seed * 2654435761 % 4294967296 + 1 }, draw)
end

function draw:below(n)
  local x = self.at
  x = (x ~ (x << 13)) & 0xffffffff
  x = x ~ (x >> 17)
  x = (x ~ (x << 5)) & 0xffffffff
  self.at = x
  return x % n
end

function draw:pick(list) return list[self:below(#list) + 1] end
function draw:maybe(n) return self:below(n) == 0 end

return new_draw
