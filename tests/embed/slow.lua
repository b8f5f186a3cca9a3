-- slow.lua - few instructions that take long: each read goes along 1,990 tables.
-- Expected output: none; the limit of CPU time ends it.
local t = {}
for _ = 1, 1990 do t = setmetatable({}, { __index = t }) end
while true do local _ = t.x end
