-- eat.lua - wants all memory.
local t = {}
for i = 1, 1e12 do t[i] = ("x"):rep(1000) .. i end
