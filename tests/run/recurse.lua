-- recurse.lua - has no end of calls.
local function f() return 1 + f() end
f()
