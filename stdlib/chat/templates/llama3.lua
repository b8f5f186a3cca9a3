-- llama3.lua - Llama 3: roles between header tokens, <|eot_id|> after each message.
local text = require "weft.chat.text"

return function(messages, tools, options)
  local out, put = text.pieces()
  text.without_tools("llama3", messages, tools)
  for i, m in ipairs(messages) do
    put((i == 1 and options.bos or "") .. "<|start_header_id|>" .. m.role ..
        "<|end_header_id|>\n\n")
    put(text.strip(m.content or "") .. "<|eot_id|>", m.learn)
  end
  if options.generation_prompt then put("<|start_header_id|>assistant<|end_header_id|>\n\n") end
  return out
end
