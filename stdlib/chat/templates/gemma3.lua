-- gemma3.lua - Gemma 3: as Gemma, with the system message at the head of the first question.
local gemma = require "weft.chat.gemma"

return function(messages, tools, options)
  local head = messages[1]
  if head.role ~= "system" then return gemma(messages, tools, options) end
  if head.parts and #head.parts > 1 then
    error("gemma3 reads one part of a system message: give its content as one text", 0)
  end
  return gemma(table.move(messages, 2, #messages, 1, {}), tools, options, head)
end
