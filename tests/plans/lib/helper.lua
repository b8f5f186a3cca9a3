-- helper.lua - a file that bad_lines.lua requires.
local helper = {}

function helper.mesh(n)
  return {
    tp = n,
    pp = 2,
    dp = "two",
  }
end

return helper
