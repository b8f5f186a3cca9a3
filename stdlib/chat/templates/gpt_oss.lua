-- gpt_oss.lua - gpt-oss: a system message with a date, the instructions as a developer's message,
-- answers in channels. Reasoning of earlier answers is left out. Options: date (needed),
-- reasoning_effort, model_identity.
local text = require "weft.chat.text"
local typescript = require "weft.chat.typescript"

local analysis, final = "<|channel|>analysis<|message|>", "<|channel|>final<|message|>"

local function system(tools, options)
  if not options.date then
    error('gpt-oss has a date in its system message: give date = "2025-08-05"', 0)
  end
  return "<|start|>system<|message|>" ..
         (options.model_identity or
          "You are ChatGPT, a large language model trained by OpenAI.") ..
         "\nKnowledge cutoff: 2024-06\nCurrent date: " .. options.date .. "\n\nReasoning: " ..
         (options.reasoning_effort or "medium") .. "\n\n# Valid channels: analysis, " ..
         "commentary, final. Channel must be included for every message." ..
         (tools and "\nCalls to these tools must go to the commentary channel: 'functions'." or
          "") .. "<|end|>"
end

-- Instructions are those of a message, or nothing.
local function put_developer(m, tools, put)
  local instructs = m and m.content ~= ""
  if not instructs and not tools then return end
  put "<|start|>developer<|message|>"
  if instructs then
    put "# Instructions\n\n"
    put(m.content, m.learn)
    put "\n\n"
  end
  put((tools and "# Tools\n\n" .. typescript.namespace("functions", tools) or "") .. "<|end|>")
end

local function check(m)
  for _, s in ipairs { m.content or "", m.reasoning or "" } do
    if text.has(s, analysis) or text.has(s, final) then
      error("<|channel|> is in a message: give the reasoning as `thinking`, the answer as " ..
            "`content`", 0)
    end
  end
end

local function later_answer(messages, i)
  for k = i + 1, #messages do
    if messages[k].role == "assistant" and not messages[k].tool_calls then return true end
  end
  return false
end

local function call_text(messages, i, call)
  local m, out = messages[i], ""
  local content, reasoning = m.content or "", m.reasoning or ""
  if #m.tool_calls > 1 then error("gpt-oss makes one tool call a message", 0) end
  if content ~= "" and reasoning ~= "" then
    error("a message with a tool call has content and reasoning; gpt-oss takes one of them", 0)
  end
  if content .. reasoning ~= "" and not later_answer(messages, i) then
    out = "<|start|>assistant" .. analysis .. content .. reasoning .. "<|end|>"
  end
  return out .. "<|start|>assistant to=functions." .. call.name .. "<|channel|>commentary " ..
         (call.content_type or "json") .. "<|message|>" .. text.tojson(call.arguments) ..
         "<|call|>"
end

-- <|return|> ends the last answer; the others, and all that come before a question, <|end|>.
local function answer(m, is_last)
  local reasoning = is_last and m.reasoning
  return (reasoning and "<|start|>assistant" .. analysis .. reasoning .. "<|end|>" or "") ..
         "<|start|>assistant" .. final .. (m.content or "") ..
         (is_last and "<|return|>" or "<|end|>")
end

return function(messages, tools, options)
  local out, put = text.pieces()
  tools = tools and #tools > 0 and tools
  local head = messages[1]
  local instructs = head.role == "developer" or head.role == "system"
  put(system(tools, options))
  put_developer(instructs and head, tools, put)
  local called
  for i = instructs and 2 or 1, #messages do
    local m = messages[i]
    if m.role == "assistant" then
      check(m)
      if m.tool_calls then
        local call = text.callee(m.tool_calls[1])
        called = call.name
        put(call_text(messages, i, call), m.learn)
      else
        local is_last = i == #messages and not options.generation_prompt
        if not is_last then called = nil end
        put(answer(m, is_last), m.learn)
      end
    elseif m.role == "tool" then
      if not called then error("the result of a tool comes without a call", 0) end
      put("<|start|>functions." .. called .. " to=assistant<|channel|>commentary<|message|>")
      put(text.tojson(m.content or "") .. "<|end|>", m.learn)
    elseif m.role ~= "user" then
      error(("message %d: gpt-oss takes instructions at the head of a conversation, and these " ..
             "are of the role %s"):format(i, m.role), 0)
    else
      put("<|start|>user<|message|>")
      put(m.content .. "<|end|>", m.learn)
    end
  end
  if options.generation_prompt then put "<|start|>assistant" end
  return out
end
