-- formats.lua - a row of a data set as a conversation: { messages, tools }. The formats differ in
-- where messages are and how roles are called; what a message may be is the same in all.
local text = require "weft.chat.text"
local formats = {}

local function fail(...) error(string.format(...), 0) end

local roles = { system = "system", developer = "developer", user = "user", human = "user",
                assistant = "assistant", gpt = "assistant", model = "assistant", tool = "tool",
                observation = "tool", ipython = "ipython" }

-- ---- a message ----

-- A text, or a list of parts that are texts.
local function take_content(m, v, where)
  if text.is_null(v) then return end
  if type(v) == "string" then
    m.content = v
    return
  end
  if not text.is_list(v) then fail("%s: content is neither a text nor a list of parts", where) end
  m.parts = {}
  for i, part in ipairs(v) do
    local kind = text.is_object(part) and part.type
    if kind ~= "text" or type(part.text) ~= "string" then
      fail('%s: part %d of content is %s; only texts can be trained on', where, i,
           type(kind) == "string" and '"' .. kind .. '"' or "no text")
    end
    m.parts[i] = part.text
  end
  m.content = table.concat(m.parts)
end

local function take_calls(m, v, where)
  if text.is_null(v) or text.is_list(v) and #v == 0 then return end
  if not text.is_list(v) then fail("%s: tool_calls is not a list", where) end
  for i, call in ipairs(v) do
    local f = text.is_object(call) and text.callee(call)
    if not f or type(f.name) ~= "string" then
      fail("%s: tool call %d has no name", where, i)
    end
  end
  m.tool_calls = v
end

-- Whether the message is said to be learnt, by `train` or `weight`.
local function take_train(m, v, where)
  if not text.is_null(v.train) then
    if type(v.train) ~= "boolean" then fail("%s: train is true or false", where) end
    m.train = v.train
  end
  if not text.is_null(v.weight) then
    if v.weight ~= 0 and v.weight ~= 1 then
      fail("%s: weight is 0 or 1: a token is learnt or not", where)
    end
    if v.weight == 0 and m.train then fail("%s: train is true, and weight is 0", where) end
    if v.weight == 0 then m.train = false end
  end
end

local function optional_text(v, key, where)
  local s = v[key]
  if text.is_null(s) then return nil end
  if type(s) ~= "string" then fail("%s: %s is not a text", where, key) end
  return s
end

local function message(v, role_key, content_key, i)
  local where = "message " .. i
  if not text.is_object(v) then fail("%s is not an object", where) end
  local role = v[role_key]
  local m = { role = roles[role] }
  if not m.role then
    fail("%s: the %s is %s, and not system, developer, user, assistant, tool or ipython", where,
         role_key, type(role) == "string" and '"' .. role .. '"' or "missing")
  end
  take_content(m, v[content_key], where)
  take_calls(m, v.tool_calls, where)
  take_train(m, v, where)
  m.name = optional_text(v, "name", where)
  m.tool_call_id = optional_text(v, "tool_call_id", where)
  m.reasoning = optional_text(v, "reasoning_content", where) or
                optional_text(v, "thinking", where) or optional_text(v, "reasoning", where)
  return m
end

local function messages_of(list, role_key, content_key, what)
  if not text.is_list(list) then fail("%s is not a list of messages", what) end
  local out = {}
  for i, v in ipairs(list) do out[i] = message(v, role_key, content_key, i) end
  return out
end

-- ---- what a conversation may be ----

-- Fails if one of the texts holds a special token, which the tokenizer would take for what it is.
local function refuse_special(texts, where, special)
  for _, s in ipairs(texts) do
    local token = special(s)
    if token then fail("%s: holds the special token %s", where, token) end
  end
end

-- A text of JSON as a template writes it that reads it: what is escaped in it, is not then.
local function reread(s, options)
  local v = type(s) == "string" and options.json(s)
  return v and text.tojson(v) or ""
end

-- What templates may write of a message, in each way in which they do.
local function check_special(m, where, options)
  local texts = { m.content or "", m.reasoning or "", m.name or "", m.tool_call_id or "",
                  text.tojson(m.tool_calls), reread(m.content, options) }
  for _, call in ipairs(m.tool_calls or {}) do
    texts[#texts + 1] = reread(text.callee(call).arguments, options)
  end
  local parts = {}
  for i, part in ipairs(m.parts or {}) do parts[i] = text.strip(part) end
  texts[#texts + 1] = table.concat(parts)
  refuse_special(texts, where, options.special)
end

function formats.check_message(m, where, options)
  local empty = not m.content or text.strip(m.content) == ""
  if m.role == "assistant" then
    if empty and not m.tool_calls then fail("%s: an empty answer", where) end
  elseif m.tool_calls then
    fail("%s: a message of the %s has tool calls", where, m.role)
  elseif not m.content then
    fail("%s: a message of the %s has no content", where, m.role)
  elseif m.role == "user" and empty then
    fail("%s: an empty question", where)
  end
  if options.special then check_special(m, where, options) end
end

-- What may come after a message; "" is before the first.
local follows = {
  [""] = { system = true, developer = true, user = true },
  system = { user = true }, developer = { user = true }, user = { assistant = true },
  assistant = { user = true }, call = { tool = true, ipython = true },
  tool = { tool = true, ipython = true, assistant = true },
  ipython = { tool = true, ipython = true, assistant = true },
}
local said = { [""] = "the beginning", call = "a tool call", system = "the system message",
               developer = "the developer's message", user = "a question",
               assistant = "an answer", tool = "the result of a tool",
               ipython = "the result of a tool" }

local function check_order(messages)
  local before = ""
  for i, m in ipairs(messages) do
    if not follows[before][m.role] then
      fail("message %d: %s comes after %s; roles do not alternate (any_order takes them)", i,
           said[m.role], said[before])
    end
    before = m.tool_calls and "call" or m.role
  end
end

-- `roles` are those that the template writes; nil: it is the plan's own.
local function check_roles(messages, roles, name)
  local writes = {}
  for _, role in ipairs(roles or {}) do writes[role] = true end
  for i, m in ipairs(messages) do
    if roles and not writes[m.role] then
      fail("message %d: %s has no place for a message of the role %s: it writes %s", i, name,
           m.role, table.concat(roles, ", "))
    end
  end
end

-- ---- the formats ----

local function system_first(messages, system)
  if type(system) == "string" and system ~= "" then
    table.insert(messages, 1, { role = "system", content = system })
  end
  return messages
end

local function text_field(row, key, needed)
  local v = row[key]
  if text.is_null(v) and not needed then return "" end
  if type(v) ~= "string" then
    fail('%s', text.is_null(v) and ('has no "%s"'):format(key) or
         ('"%s" is not a text'):format(key))
  end
  return v
end

local function has_no(row, key, format)
  local other = { messages = "messages", conversations = "sharegpt", instruction = "alpaca" }
  for _, name in ipairs { "messages", "conversations", "instruction" } do
    if name ~= key and not text.is_null(row[name]) then
      fail('has no "%s", as format "%s" needs, but "%s": format "%s"?', key, format, name,
           other[name])
    end
  end
  fail('has no "%s", as format "%s" needs', key, format)
end

function formats.messages(row)
  if text.is_null(row.messages) then has_no(row, "messages", "messages") end
  return messages_of(row.messages, "role", "content", "messages")
end

-- A call as ShareGPT's data has it: {"name": ..., "arguments": ...} as the text of a message.
local function share_call(v, options)
  local call = text.is_object(v) and v.from == "function_call" and
               type(v.value) == "string" and options.json(v.value)
  if not call then return v end
  local list = text.is_list(call) and call or { call }
  return { [0] = true, from = "gpt", tool_calls = list, train = v.train, weight = v.weight }
end

function formats.sharegpt(row, options)
  if text.is_null(row.conversations) then has_no(row, "conversations", "sharegpt") end
  if not text.is_list(row.conversations) then fail("conversations is not a list of messages") end
  local list = {}
  for i, v in ipairs(row.conversations) do list[i] = share_call(v, options) end
  return system_first(messages_of(list, "from", "value", "conversations"), row.system)
end

-- The input comes below the instruction; earlier turns are pairs in `history`.
function formats.alpaca(row)
  if text.is_null(row.instruction) then has_no(row, "instruction", "alpaca") end
  local out, input = {}, text_field(row, "input")
  for i, turn in ipairs(text.is_list(row.history) and row.history or {}) do
    if type(turn) ~= "table" or type(turn[1]) ~= "string" or type(turn[2]) ~= "string" then
      fail("history[%d] is not a question and its answer", i)
    end
    out[#out + 1] = { role = "user", content = turn[1] }
    out[#out + 1] = { role = "assistant", content = turn[2] }
  end
  out[#out + 1] = { role = "user", content = text_field(row, "instruction", true) ..
                                             (input == "" and "" or "\n" .. input) }
  out[#out + 1] = { role = "assistant", content = text_field(row, "output", true) }
  return system_first(out, row.system)
end

-- Two columns, each a text or a list of messages.
function formats.columns(row, _, columns)
  local out = {}
  for _, c in ipairs { { columns.prompt, "user" }, { columns.response, "assistant" } } do
    local key, role = c[1], c[2]
    if text.is_list(row[key]) then
      for _, m in ipairs(messages_of(row[key], "role", "content", key)) do out[#out + 1] = m end
    else
      out[#out + 1] = { role = role, content = text_field(row, key, true) }
    end
  end
  return system_first(out, row.system)
end

-- ---- preferences ----

-- Whether any template writes the same of both.
local function same(a, b)
  for _, key in ipairs { "role", "content", "reasoning", "name", "tool_call_id" } do
    if a[key] ~= b[key] then return false end
  end
  return text.tojson(a.tool_calls) == text.tojson(b.tool_calls) and
         text.tojson(a.parts) == text.tojson(b.parts)
end

-- How many messages two conversations begin with alike.
local function common(a, b)
  local n = 0
  while a[n + 1] and b[n + 1] and same(a[n + 1], b[n + 1]) do n = n + 1 end
  return n
end

-- The pieces of a prompt and an answer that are texts, which no template is for: what the tokenizer
-- puts before a text comes before them, and the end token behind them, unless they have it.
local function preferred_text(row, options, which)
  local eos = options.eos
  for _, key in ipairs { "prompt", "chosen", "rejected" } do
    local s = text_field(row, key, true)
    if s == "" and key ~= "prompt" then fail('"%s" is empty', key) end
    if options.special then refuse_special({ s }, '"' .. key .. '"', options.special) end
  end
  if not eos then
    fail("no end token is known, which texts end with: eos_token in tokenizer_config.json, or "
         .. "options = { eos = \"...\" }")
  end
  local answer = row[which]
  if answer:sub(-#eos) ~= eos then answer = answer .. eos end
  return { begins = true, { row.prompt }, { answer, learn = true } }
end

-- Answer `which`, "chosen" or "rejected": the messages, how many of these are the prompt, or
-- pieces, where the row has texts.
function formats.preference(row, options, which)
  for _, key in ipairs { "chosen", "rejected" } do
    if text.is_null(row[key]) then
      fail('has no "%s", as format "preference" needs: a pair has "chosen" and "rejected"', key)
    end
  end
  if type(row.chosen) == "string" or type(row.rejected) == "string" then
    return nil, preferred_text(row, options, which)
  end
  local lists = {}
  for _, key in ipairs { "chosen", "rejected" } do
    lists[key] = messages_of(row[key], "role", "content", key)
    if #lists[key] == 0 then fail('"%s" has no messages', key) end
  end
  if text.is_null(row.prompt) then
    local n = common(lists.chosen, lists.rejected)
    if n == #lists.chosen or n == #lists.rejected then
      fail('"chosen" and "rejected" do not differ in an answer')
    end
    return lists[which], nil, n
  end
  local messages = messages_of(row.prompt, "role", "content", "prompt")
  local n = #messages
  for _, m in ipairs(lists[which]) do messages[#messages + 1] = m end
  return messages, nil, n
end

local function tools_of(row, options)
  local tools = row.tools
  if tools == "" then return nil end
  if type(tools) == "string" then
    tools = options.json(tools)
    if tools == nil then fail("tools is a text that is no JSON") end
  end
  if text.is_null(tools) then return nil end
  if not text.is_list(tools) then fail("tools is not a list") end
  for i, tool in ipairs(tools) do
    if not text.is_object(tool) or type(text.callee(tool).name) ~= "string" then
      fail("tool %d has no name", i)
    end
    if options.special then
      refuse_special({ text.tojson(tool) }, ("tool %d"):format(i), options.special)
    end
  end
  return tools
end

-- The reader of a format: a name or { prompt =, response = }.
function formats.reader(format)
  if type(format) == "table" then
    if type(format.prompt) ~= "string" or type(format.response) ~= "string" then
      fail('format names both columns: { prompt = "question", response = "answer" }')
    end
    return formats.columns
  end
  local named = { messages = formats.messages, sharegpt = formats.sharegpt,
                  alpaca = formats.alpaca, preference = formats.preference }
  if not named[format] then
    fail('there is no format "%s": messages, sharegpt, alpaca, preference or { prompt =, response = }',
         tostring(format))
  end
  return named[format]
end

-- The messages with the option's system message, where they begin with none, nor with a
-- developer's, which is the same by another name.
function formats.with_system(messages, options)
  local first = messages[1].role
  if not options.system or first == "system" or first == "developer" then return messages end
  return system_first(table.move(messages, 1, #messages, 1, {}), options.system)
end

-- The messages of a row and its tools, or nil. Of preferences `which` says which answer; then
-- pieces are given instead, or how many messages are the prompt. `known`: the template's name and
-- the roles that it writes.
function formats.conversation(row, format, options, which, known)
  if not text.is_object(row) then fail("is not an object") end
  local messages, pieces, prompt = formats.reader(format)(row, options, which or format)
  if pieces then return nil, nil, pieces end
  if #messages == 0 then fail("has no messages") end
  for i, m in ipairs(messages) do
    formats.check_message(m, "message " .. i, options)
  end
  if not options.any_order then check_order(messages) end
  check_roles(messages, known.roles, known.name)
  local whole = formats.with_system(messages, options)
  return whole, tools_of(row, options), nil, prompt and prompt + #whole - #messages
end

return formats
