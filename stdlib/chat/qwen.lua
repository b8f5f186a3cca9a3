-- qwen.lua - what the templates of Qwen 2.5 and Qwen 3 share: the list of tools, tool calls, and
-- results of tools, which are messages of the user.
local text = require "weft.chat.text"
local qwen = {}

-- The end of the system message, which lists the tools.
function qwen.tools(tools)
  local out = { "# Tools\n\nYou may call one or more functions to assist with the user query." ..
                "\n\nYou are provided with function signatures within <tools></tools> XML " ..
                "tags:\n<tools>" }
  for _, tool in ipairs(tools) do out[#out + 1] = "\n" .. text.tojson(tool) end
  out[#out + 1] = "\n</tools>\n\nFor each function call, return a json object with function " ..
                  "name and arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n" ..
                  '{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>' ..
                  "<|im_end|>\n"
  return table.concat(out)
end

-- The system message: `m`, or nothing, and the tools, or nothing.
function qwen.system(m, tools, put)
  if not m and not tools then return end
  put "<|im_start|>system\n"
  if m then put(m.content .. (tools and "" or "<|im_end|>\n"), m.learn) end
  if tools then put((m and "\n\n" or "") .. qwen.tools(tools)) end
end

function qwen.call(call, arguments)
  return '<tool_call>\n{"name": "' .. call.name .. '", "arguments": ' .. arguments ..
         "}\n</tool_call>"
end

-- Message i is the result of a tool: several in a row are one message of the user.
function qwen.result(messages, i, put)
  local m, before, after = messages[i], messages[i - 1], messages[i + 1]
  if not before or before.role ~= "tool" then put "<|im_start|>user" end
  put("\n<tool_response>\n" .. (m.content or "") .. "\n</tool_response>", m.learn)
  if not after or after.role ~= "tool" then put "<|im_end|>\n" end
end

return qwen
