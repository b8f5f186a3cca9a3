-- glm4.lua - GLM-4-0414: GLM with a second norm behind attention and MLP.
local decoder = require "weft.models.decoder"
local glm = require "weft.models.glm"

return glm.family("Glm4ForCausalLM", decoder.NORMS.glm4)
