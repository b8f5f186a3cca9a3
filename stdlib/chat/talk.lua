-- talk.lua - a conversation that goes on, question by question: open(spec) gives a function of
-- what is done and a text:
--
--   "ending"           the text that the template puts after an answer
--   "ask", question    the text of the conversation, up to where its next answer begins
--   "answer", text     adds the model's answer
--
-- spec has template and options, as in chat.lua.
local chat = require "weft.chat.chat"
local formats = require "weft.chat.formats"
local text = require "weft.chat.text"
local talk = {}

local function fail(...) error(string.format(...), 0) end

local function last_of(s, part)
  local from, to = s:find(part, 1, true)
  while from do
    local next_from, next_to = s:find(part, from + 1, true)
    if not next_from then return from, to end
    from, to = next_from, next_to
  end
end

-- A template that writes a header before answers, and none at the end of a prompt, leaves the
-- model to guess whose turn it is.
local function check_prompt(write, whole, answer_at)
  local question = { { role = "user", content = "question" } }
  local plain = write(question)
  if write(question, true) ~= plain or whole:sub(1, #plain) ~= plain then return end
  if answer_at > #plain + 1 then
    fail("the template puts %s before an answer, but not at the end of a prompt: it has to add " ..
         "it if options.generation_prompt is set", text.tojson(whole:sub(#plain + 1, answer_at - 1)))
  end
end

local function ending_of(write)
  local marker = "weft's answer"
  local whole = write { { role = "user", content = "question" },
                        { role = "assistant", content = marker, learn = true } }
  local from, to = last_of(whole, marker)
  if not from then fail("the template leaves out what an answer says") end
  check_prompt(write, whole, from)
  return whole:sub(to + 1)
end

-- gpt-oss answers in channels, which its template writes anew.
local function of_channels(s)
  local reasoning = s:match("<|channel|>analysis<|message|>(.-)<|end|>")
  return { role = "assistant", content = text.after_last(s, "<|message|>"), reasoning = reasoning }
end

local function of_text(s) return { role = "assistant", content = s } end

local said = { ["gpt-oss"] = of_channels }

function talk.open(spec)
  local template, options = chat.template(spec), spec.options
  local answer_of = said[spec.template] or of_text
  local prompted = { generation_prompt = true }
  for k, v in pairs(options) do prompted[k] = v end
  local function write(messages, prompt)
    local pieces = template(formats.with_system(messages, options), nil,
                            prompt and prompted or options)
    chat.check_pieces(pieces)
    return text.joined(pieces)
  end
  local messages = {}
  local verbs = {
    ending = function() return ending_of(write) end,
    ask = function(question)
      local m = { role = "user", content = question }
      formats.check_message(m, "the question", options)
      local asked = table.move(messages, 1, #messages, 1, {})
      asked[#asked + 1] = m
      local prompt = write(asked, true)
      messages = asked
      return prompt
    end,
    answer = function(answer)
      messages[#messages + 1] = answer_of(answer)
      return ""
    end,
  }
  return function(verb, words) return verbs[verb](words) end
end

return talk
