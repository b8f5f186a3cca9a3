-- preset.lua - a preset by name (-D preset=llama3-8b); check_models builds its graph.
local weft = require "weft"

return weft.plan {
  model = weft.model(weft.vars.preset),
  batch = { global = 1, seq = 8 },
}
