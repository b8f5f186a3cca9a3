-- chat.lua - conversations to pieces of text: open(spec) gives the function that takes a row of
-- a data set and returns the pieces { text, learn = true or false } of its conversation, with
-- answer 1 or 2 where it has a chosen and a rejected one. The field `unreasoned` of the pieces is
-- how many learnt answers had reasoning that is not in the text.
--
-- spec: template (a name or a function(messages, tools, options)), format, train_on, and options,
-- which the template gets, too: bos, eos, json(text), system, any_order and its own.
local formats = require "weft.chat.formats"
local known = require "weft.chat.known"
local text = require "weft.chat.text"
local chat = {}

local function fail(...) error(string.format(...), 0) end

local common = { "any_order", "bos", "eos", "generation_prompt", "json", "special",
                 "system" }

local function check_options(name, options)
  local allowed = {}
  for _, list in ipairs { common, known.templates[name] } do
    for _, key in ipairs(list) do allowed[key] = true end
  end
  for key in pairs(options) do
    if not allowed[key] then fail('the template "%s" has no option "%s"', name, key) end
  end
end

-- The template of a spec, a function.
function chat.template(spec)
  local name = spec.template
  if type(name) == "function" then return name end
  if not known.templates[name] then
    local names = {}
    for k in pairs(known.templates) do names[#names + 1] = k end
    fail('there is no template "%s": %s, or a function of your own', tostring(name),
         table.concat(names, ", "))
  end
  check_options(name, spec.options)
  return require("weft.chat.templates." .. known.file(name))
end

-- ---- which messages are learnt ----

local function mark(messages, train_on)
  local last
  for i, m in ipairs(messages) do
    if m.role == "assistant" then last = i end
  end
  for i, m in ipairs(messages) do
    local answer = m.role == "assistant"
    m.learn = train_on == "all" or answer and (train_on ~= "last" or i == last)
    if m.train == false and train_on == "all" then
      fail('message %d is not to be learnt, and train_on = "all" learns every token', i)
    end
    if m.train ~= nil then m.learn = m.train end
  end
end

function chat.check_pieces(pieces)
  if type(pieces) ~= "table" or #pieces == 0 then fail("the template gives no pieces") end
  for i, p in ipairs(pieces) do
    if type(p) ~= "table" or type(p[1]) ~= "string" then
      fail("piece %d of the template is not { text, learn = true or false }", i)
    end
  end
end

-- ---- what a template leaves out ----

-- What an answer says before it answers, and the rest.
local function reasoning_of(m)
  local content = m.content or ""
  if m.reasoning then return text.strip(m.reasoning), content end
  if not text.has(content, "</think>") then return "", content end
  return text.strip(text.after_last(text.before(content, "</think>"), "<think>")),
         text.after_last(content, "</think>")
end

-- How many learnt answers have reasoning that is nowhere in the text: whoever has written it may
-- think that it is learnt. An answer that has nothing else is none.
local function unreasoned(messages, pieces)
  local whole, n, left = nil, 0, 0
  for _, m in ipairs(messages) do
    if m.role == "assistant" then
      n = n + 1
      local reasoning, rest = reasoning_of(m)
      if m.learn and reasoning ~= "" then
        whole = whole or text.joined(pieces)
        if not text.has(whole, reasoning) then
          left = left + 1
          if text.strip(rest) == "" and not m.tool_calls then
            fail("answer %d is empty without its reasoning, which the template leaves out", n)
          end
        end
      end
    end
  end
  return left
end

function chat.open(spec)
  local template, options = chat.template(spec), spec.options
  local train_on = spec.train_on
  if train_on ~= "assistant" and train_on ~= "last" and train_on ~= "all" then
    fail('train_on is "assistant", "last" or "all", not "%s"', tostring(train_on))
  end
  formats.reader(spec.format)
  local named = { name = spec.template, roles = known.roles[spec.template] }
  local answers = spec.format == "preference" and { "chosen", "rejected" } or {}
  return function(row, answer)
    local messages, tools, texts, prompt =
      formats.conversation(row, spec.format, options, answers[answer], named)
    if texts then return texts end
    mark(messages, train_on)
    for i = 1, prompt or 0 do messages[i].learn = false end
    local pieces = template(messages, tools, options)
    chat.check_pieces(pieces)
    for _, p in ipairs(pieces) do
      p.learn = train_on == "all" and not prompt or p.learn or false
    end
    pieces.unreasoned = unreasoned(messages, pieces)
    return pieces
  end
end

-- The template of a tokenizer_config.json, by the hash of its chat_template: its name, and the
-- options with which it gives the same text.
function chat.recognize(hash)
  local found = known.hashes[hash]
  if found then return found[1], found end
end

return chat
