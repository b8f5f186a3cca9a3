-- llama3_1.lua - Llama 3.1 to 3.3: always a system message, with a date; tools are described in
-- the first user message, or in the system message; one tool call a message.
local text = require "weft.chat.text"

local function header(role) return "<|start_header_id|>" .. role .. "<|end_header_id|>\n\n" end

local form = 'Respond in the format {"name": function name, "parameters": dictionary of ' ..
             'argument name and its value}.Do not use variables.\n\n'

local function described(tools)
  local out = {}
  for i, tool in ipairs(tools) do out[i] = text.tojson(tool, 4) .. "\n\n" end
  return table.concat(out)
end

-- What stands before the text of the system message.
local function system_head(tools, options)
  local inside = tools and options.tools_in_user_message == false
  return (options.bos or "") .. header "system" ..
         (tools and "Environment: ipython\n" or "") ..
         "Cutting Knowledge Date: December 2023\nToday Date: " ..
         (options.date or "26 Jul 2024") .. "\n\n" ..
         (inside and "You have access to the following functions. To call a function, please " ..
          "respond with JSON for a function call." .. form .. described(tools) or "")
end

local function call_text(m)
  if #m.tool_calls ~= 1 then error("Llama 3 makes one tool call a message", 0) end
  local call = text.callee(m.tool_calls[1])
  return '{"name": "' .. call.name .. '", "parameters": ' .. text.tojson(call.arguments) ..
         "}<|eot_id|>"
end

return function(messages, tools, options)
  local out, put = text.pieces()
  local first = messages[1].role == "system" and 2 or 1
  local system = first == 2 and messages[1] or { content = "" }
  put(system_head(tools, options))
  put(text.strip(system.content) .. "<|eot_id|>", system.learn)
  if tools and options.tools_in_user_message ~= false then
    local m = messages[first]
    if not m then error("tools are described in the first user message, and there is none", 0) end
    put(header "user" .. "Given the following functions, please respond with a JSON for a " ..
        "function call with its proper arguments that best answers the given prompt.\n\n" ..
        form .. described(tools))
    put(text.strip(m.content) .. "<|eot_id|>", m.learn)
    first = first + 1
  end
  for i = first, #messages do
    local m = messages[i]
    local result = m.role == "tool" or m.role == "ipython"
    put(header(m.tool_calls and "assistant" or result and "ipython" or m.role))
    put(m.tool_calls and call_text(m) or
        (result and text.tojson(m.content) or text.strip(m.content)) .. "<|eot_id|>", m.learn)
  end
  if options.generation_prompt then put(header "assistant") end
  return out
end
