-- chatml.lua - <|im_start|>ROLE, a line, the message, <|im_end|>: SmolLM2, and many that were
-- tuned by hand. A default system message is given as an option: { system = "..." }.
local text = require "weft.chat.text"

return function(messages, tools, options)
  local out, put = text.pieces()
  text.without_tools("chatml", messages, tools)
  for _, m in ipairs(messages) do
    put("<|im_start|>" .. m.role .. "\n")
    put((m.content or "") .. "<|im_end|>\n", m.learn)
  end
  if options.generation_prompt then put("<|im_start|>assistant\n") end
  return out
end
