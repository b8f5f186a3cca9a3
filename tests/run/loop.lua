-- loop.lua - never ends.
while true do end
