-- deepseek.lua - what DeepSeek V3, R1 and the models distilled from it share: system messages at the
-- head, turns without ends of their own, calls and results of tools between tokens. As in their
-- templates the list of calls, and that of results, is opened once a conversation. Of models that
-- reason the reasoning of all answers is left out, the last one's too, unless keep_reasoning = true.
local text = require "weft.chat.text"

local User, Assistant = "<｜User｜>", "<｜Assistant｜>"
local End, OutputsEnd = "<｜end▁of▁sentence｜>", "<｜tool▁outputs▁end｜>"

local function call_text(call)
  local to = text.callee(call)
  local arguments = to.arguments
  if type(arguments) ~= "string" then arguments = text.tojson(arguments) end
  return "<｜tool▁call▁begin｜>" .. (call.type or "function") .. "<｜tool▁sep｜>" .. to.name ..
         "\n```json\n" .. arguments .. "\n```<｜tool▁call▁end｜>"
end

-- The content of an answer, with the reasoning that lies beside it, if that is kept.
local function content_of(m, keeps)
  local content = m.content or ""
  local reasoning = keeps and text.strip_lines(m.reasoning or "") or ""
  if text.strip(reasoning) == "" then return content end
  return "<think>\n" .. reasoning .. "\n</think>\n\n" .. text.lstrip_lines(content)
end

-- `closes(n, first)`: whether the calls end after call n of the conversation.
local function calls_text(m, state, closes, keeps)
  local out = {}
  for _, call in ipairs(m.tool_calls) do
    out[#out + 1] = (state.called and "\n" or
                     Assistant .. content_of(m, keeps) .. "<｜tool▁calls▁begin｜>") ..
                    call_text(call)
    if state.called and closes == "each" then out[#out + 1] = "<｜tool▁calls▁end｜>" .. End end
    state.called = true
  end
  if closes == "last" then out[#out + 1] = "<｜tool▁calls▁end｜>" .. End end
  return table.concat(out)
end

local function answer(m, state, keeps, reasons)
  local content = content_of(m, keeps)
  if state.tool then
    state.tool = false
    return OutputsEnd .. content .. End
  end
  if reasons and not keeps then content = text.after_last(content, "</think>") end
  return Assistant .. content .. End
end

local function result(m, state, between)
  local open = state.output and between or "<｜tool▁outputs▁begin｜>"
  state.output, state.tool = true, true
  return open .. "<｜tool▁output▁begin｜>" .. (m.content or "") .. "<｜tool▁output▁end｜>"
end

-- The version has: system(list), which of several system messages count; calls(m): whether a message is
-- a call; closes: "last" or "each", after which calls their list ends; between: two results; reasons:
-- whether the model does.
return function(messages, tools, options, version)
  local out, put = text.pieces()
  if tools then error("deepseek has no place for tools: describe them in a system message", 0) end
  local systems, state = {}, {}
  for _, m in ipairs(messages) do
    if m.role == "system" then systems[#systems + 1] = m end
  end
  put(options.bos or "")
  for i, m in ipairs(version.system(systems)) do
    if i > 1 then put "\n\n" end
    put(m.content, m.learn)
  end
  for _, m in ipairs(messages) do
    if m.role == "user" then
      state.tool = false
      put(User)
      put(m.content, m.learn)
    elseif m.role == "tool" then
      put(result(m, state, version.between), m.learn)
    elseif m.role == "assistant" and m.tool_calls and version.calls(m) then
      state.tool = false
      put(calls_text(m, state, version.closes, options.keep_reasoning), m.learn)
    elseif m.role == "assistant" then
      put(answer(m, state, options.keep_reasoning, version.reasons), m.learn)
    end
  end
  if state.tool then put(OutputsEnd) end
  if options.generation_prompt and not state.tool then
    put(Assistant .. (version.reasons and "<think>\n" or ""))
  end
  return out
end
