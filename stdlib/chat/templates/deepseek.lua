-- deepseek.lua - DeepSeek R1: all system messages at the head.
local deepseek = require "weft.chat.deepseek"

local version = {
  system = function(list) return list end,
  calls = function(m) return m.tool_calls ~= nil end,
  closes = "last",
  between = "",
  reasons = true,
}

return function(messages, tools, options) return deepseek(messages, tools, options, version) end
