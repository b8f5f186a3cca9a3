-- gemma.lua - Gemma 1 and 2: turns of user and model, no system message.
local gemma = require "weft.chat.gemma"

return function(messages, tools, options)
  if messages[1].role == "system" then
    error("gemma has no system messages; gemma3 puts them into the first question", 0)
  end
  return gemma(messages, tools, options)
end
