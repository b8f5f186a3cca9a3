-- smollm2.lua - SmolLM2: ChatML with a system message where there is none.
local chatml = require "weft.chat.templates.chatml"

local default = { role = "system",
                  content = "You are a helpful AI assistant named SmolLM, trained by Hugging Face" }

return function(messages, tools, options)
  if messages[1].role == "system" then return chatml(messages, tools, options, "smollm2") end
  local whole = table.move(messages, 1, #messages, 2, { default })
  return chatml(whole, tools, options, "smollm2")
end
