-- gemma.lua - turns of user and model that alternate, which Gemma 1 to 3 have. `before` stands
-- at the head of the first one: a message, or nothing.
local text = require "weft.chat.text"

return function(messages, tools, options, before)
  local out, put = text.pieces()
  text.without_tools("gemma", messages, tools)
  put(options.bos or "")
  for i, m in ipairs(messages) do
    if (m.role == "user") ~= (i % 2 == 1) then
      error("gemma takes questions and answers by turns, beginning with a question", 0)
    end
    put("<start_of_turn>" .. (m.role == "assistant" and "model" or m.role) .. "\n")
    if i == 1 and before then
      put(before.content, before.learn)
      put "\n\n"
    end
    local parts = {}
    for k, part in ipairs(m.parts or { m.content }) do parts[k] = text.strip(part) end
    put(table.concat(parts) .. "<end_of_turn>\n", m.learn)
  end
  if options.generation_prompt then put "<start_of_turn>model\n" end
  return out
end
