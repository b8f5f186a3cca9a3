-- deepseek_v3.lua - DeepSeek V3, which does not reason: all system messages at the head; a message
-- with content makes no calls.
local deepseek = require "weft.chat.deepseek"

local version = {
  system = function(list) return list end,
  calls = function(m) return not m.content end,
  closes = "each",
  between = "\n",
}

return function(messages, tools, options) return deepseek(messages, tools, options, version) end
