-- mistral.lua - Mistral's third format with a byte-level vocabulary (Nemo): [INST], the question,
-- [/INST], the answer, </s>. The system message is at the head of the last question, the tools
-- are before it.
local text = require "weft.chat.text"

local function last_question(messages)
  for i = #messages, 1, -1 do
    if messages[i].role == "user" then return i end
  end
  error("mistral puts the system message and tools into a question, and there is none", 0)
end

-- A string that holds JSON is that JSON, as mistral-common has it.
local function parsed(s, options)
  local v = type(s) == "string" and options.json(s)
  if v == nil or v == false and s ~= "false" then return s end
  return v
end

local function tools_text(tools)
  local out = { [0] = false }
  for i, tool in ipairs(tools) do
    local f = text.callee(tool)
    out[i] = { [0] = true, "type", "function", type = "function", ["function"] = {
      [0] = true, "name", "description", "parameters", name = f.name,
      description = f.description or "", parameters = f.parameters or { [0] = true } } }
  end
  return "[AVAILABLE_TOOLS]" .. text.tojson(out) .. "[/AVAILABLE_TOOLS]"
end

local function calls_text(m, options)
  local out = {}
  for i, call in ipairs(m.tool_calls) do
    local f = text.callee(call)
    out[i] = { [0] = true, "name", "arguments", name = f.name,
               arguments = parsed(f.arguments, options) }
    if call.id and call.id ~= "null" then
      out[i][3], out[i].id = "id", call.id
    end
  end
  return "[TOOL_CALLS]" .. text.tojson(out)
end

local function result_text(m, options)
  if not m.tool_call_id then error("the result of a tool has no tool_call_id", 0) end
  return "[TOOL_RESULTS]" ..
         text.tojson { [0] = true, "content", "call_id", call_id = m.tool_call_id,
                       content = parsed(m.content or "", options) } .. "[/TOOL_RESULTS]"
end

return function(messages, tools, options)
  local out, put = text.pieces()
  local eos, last = options.eos or "</s>", last_question(messages)
  local systems = {}
  put(options.bos or "<s>")
  for i, m in ipairs(messages) do
    if m.role == "system" then
      if i > last then
        error(("message %d: mistral puts system messages into the last question, and this one "
               .. "comes after it"):format(i), 0)
      end
      systems[#systems + 1] = m
    elseif m.role == "user" then
      put((i == last and tools and #tools > 0 and tools_text(tools) or "") .. "[INST]")
      for _, system in ipairs(i == last and systems or {}) do
        put(system.content, system.learn)
        put "\n\n"
      end
      put(m.content, m.learn)
      put "[/INST]"
    elseif m.role == "tool" then
      put(result_text(m, options), m.learn)
    elseif m.role == "assistant" and m.tool_calls then
      if m.content and m.content ~= "" then
        error("an answer has content and tool calls; mistral takes one of them", 0)
      end
      put(calls_text(m, options) .. eos, m.learn)
    elseif m.role == "assistant" then
      put(m.content:gsub(" +$", "") .. eos, m.learn)
    end
  end
  return out
end
