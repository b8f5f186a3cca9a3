-- deepseek_r1_distill.lua - Qwen and Llama distilled from DeepSeek R1: the last system message at
-- the head; a message with content makes no calls.
local deepseek = require "weft.chat.deepseek"

local version = {
  system = function(list) return { list[#list] } end,
  calls = function(m) return not m.content end,
  closes = "each",
  between = "\n",
  reasons = true,
}

return function(messages, tools, options) return deepseek(messages, tools, options, version) end
