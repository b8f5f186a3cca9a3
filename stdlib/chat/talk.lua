-- talk.lua - a conversation that goes on, question by question: open(spec) gives a function of
-- what is done and a text:
--
--   "ending"           the text that the template puts after an answer
--   "ask", question    the text of the conversation, up to where its next answer begins
--   "answer", text     adds the question and the model's answer; a question without one is none
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

-- A conversation of one answer, and where in it that begins and ends.
local function example(write)
  local marker = "weft's answer"
  local whole = write { { role = "user", content = "question" },
                        { role = "assistant", content = marker, learn = true } }
  local from, to = last_of(whole, marker)
  if not from then fail("the template leaves out what an answer says") end
  return whole, from, to
end

local function ending_of(write)
  local whole, from, to = example(write)
  check_prompt(write, whole, from)
  return whole:sub(to + 1)
end

-- "<think>\n", where prompts end with it and answers are not written with it: the answer to such a
-- prompt has only the end of its reasoning.
local function opened_by(write)
  local whole, from = example(write)
  local prompt = write({ { role = "user", content = "question" } }, true)
  local same = prompt:sub(1, from - 1) == whole:sub(1, from - 1)
  return same and prompt:match("^<think>%s*$", from) or ""
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
  local messages, asked, opened = {}, {}, nil
  local function with_reasoning(s)
    if not text.has(s, "</think>") then return s end
    opened = opened or opened_by(write)
    return opened .. s
  end
  local verbs = {
    ending = function() return ending_of(write) end,
    ask = function(question)
      local m = { role = "user", content = question }
      formats.check_message(m, "the question", options)
      asked = table.move(messages, 1, #messages, 1, {})
      asked[#asked + 1] = m
      return write(asked, true)
    end,
    answer = function(answer)
      messages = asked
      messages[#messages + 1] = answer_of(with_reasoning(answer))
      return ""
    end,
  }
  return function(verb, words) return verbs[verb](words) end
end

return talk
