-- gemma3.lua - Gemma 3: as Gemma, with the system message at the head of the first question.
local gemma = require "weft.chat.gemma"

return function(messages, tools, options)
  if messages[1].role ~= "system" then return gemma(messages, tools, options, "") end
  return gemma(table.move(messages, 2, #messages, 1, {}), tools, options,
               messages[1].content .. "\n\n")
end
