-- chatml.lua - <|im_start|>ROLE, a line, the message, <|im_end|>: many that were tuned by hand. A
-- default system message is given as an option: { system = "..." }. `name`: of a template that is
-- this one with another begin.
local text = require "weft.chat.text"

return function(messages, tools, options, name)
  local out, put = text.pieces()
  text.without_tools(name or "chatml", messages, tools)
  for _, m in ipairs(messages) do
    put("<|im_start|>" .. m.role .. "\n")
    put((m.content or "") .. "<|im_end|>\n", m.learn)
  end
  if options.generation_prompt then put("<|im_start|>assistant\n") end
  return out
end
