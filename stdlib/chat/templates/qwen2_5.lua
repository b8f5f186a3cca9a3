-- qwen2_5.lua - Qwen 2.5: ChatML with tools, and a system message where there is none.
local text = require "weft.chat.text"
local qwen = require "weft.chat.qwen"

local default = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."

local function answer(m)
  local out = { m.content and (m.content ~= "" or not m.tool_calls) and "\n" .. m.content or "" }
  for _, call in ipairs(m.tool_calls or {}) do
    call = text.callee(call)
    out[#out + 1] = "\n" .. qwen.call(call, text.tojson(call.arguments))
  end
  return table.concat(out) .. "<|im_end|>\n"
end

return function(messages, tools, options)
  local out, put = text.pieces()
  local has_tools = tools and #tools > 0
  qwen.system(messages[1].role == "system" and messages[1] or { content = default },
              has_tools and tools, put)
  for i, m in ipairs(messages) do
    if m.role == "assistant" then
      put "<|im_start|>assistant"
      put(answer(m), m.learn)
    elseif m.role == "tool" then
      qwen.result(messages, i, put)
    elseif m.role == "user" or m.role == "system" and i > 1 then
      put("<|im_start|>" .. m.role .. "\n")
      put(m.content .. "<|im_end|>\n", m.learn)
    end
  end
  if options.generation_prompt then put "<|im_start|>assistant\n" end
  return out
end
