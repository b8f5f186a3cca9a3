-- qwen3.lua - Qwen 3: ChatML with tools and reasoning. Only answers after the last question keep
-- their reasoning, as when the model is asked; keep_reasoning = true keeps that of all. Models that
-- do not reason (Instruct-2507) have reasoning = false: contents are taken as they are.
local text = require "weft.chat.text"
local qwen = require "weft.chat.qwen"

-- The number of the last message of the user that is no result of a tool.
local function last_question(messages)
  for i = #messages, 1, -1 do
    local m = messages[i]
    if m.role == "user" and not (m.content:sub(1, 15) == "<tool_response>" and
                                 m.content:sub(-16) == "</tool_response>") then
      return i
    end
  end
  return #messages
end

-- Reasoning and answer, which may be in one text.
local function parts(m)
  local content = m.content or ""
  if m.reasoning then return m.reasoning, content end
  if not text.has(content, "</think>") then return "", content end
  local before = text.rstrip_lines(text.before(content, "</think>"))
  return text.lstrip_lines(text.after_last(before, "<think>")),
         text.lstrip_lines(text.after_last(content, "</think>"))
end

local function answer(m, plain, keeps, is_last)
  local reasoning, content = "", m.content or ""
  if not plain then reasoning, content = parts(m) end
  local out = { content }
  if not plain and keeps and (is_last or reasoning ~= "") then
    out[1] = "<think>\n" .. text.strip_lines(reasoning) .. "\n</think>\n\n" ..
             text.lstrip_lines(content)
  end
  for i, call in ipairs(m.tool_calls or {}) do
    call = text.callee(call)
    local arguments = call.arguments
    out[#out + 1] = ((i > 1 or content ~= "") and "\n" or "") ..
        qwen.call(call, type(arguments) == "string" and arguments or text.tojson(arguments))
  end
  return table.concat(out) .. "<|im_end|>\n"
end

return function(messages, tools, options)
  local out, put = text.pieces()
  qwen.system(messages[1].role == "system" and messages[1], tools and #tools > 0 and tools, put)
  local question, all = last_question(messages), options.keep_reasoning
  local plain = options.reasoning == false
  for i, m in ipairs(messages) do
    if m.role == "assistant" then
      put "<|im_start|>assistant\n"
      put(answer(m, plain, all or i > question, all or i == #messages), m.learn)
    elseif m.role == "tool" then
      qwen.result(messages, i, put)
    elseif m.role == "user" or m.role == "system" and i > 1 then
      put("<|im_start|>" .. m.role .. "\n")
      put(m.content .. "<|im_end|>\n", m.learn)
    end
  end
  if options.generation_prompt then
    put("<|im_start|>assistant\n" ..
        (options.enable_thinking == false and not plain and "<think>\n\n</think>\n\n" or ""))
  end
  return out
end
