-- script.lua - what a shell script says, read from top to bottom: variables, the branches of tests
-- that its own variables decide, the first round of a loop. Nothing is run. Gives { env, commands,
-- vars, notes }: what it exports, the words of each command, its variables in their order, and
-- what could not be decided.
local lexer = use "import/shell/lexer"
local quote = use "import/quote"
local test_of = use "import/shell/test"
local texts_of = use "import/shell/texts"
local value = use "import/shell/value"

local limits = { calls = 8, commands = 20000, rounds = 100 }
local Script = {}
Script.__index = Script

-- ---- words and tests ----

local function literal(token)
  local part = token and token.kind == "word" and #token.parts == 1 and token.parts[1]
  return part and part[1] == "text" and part[2] or nil
end

local function peek(self) return self.tokens[self.at] end
local function step(self)
  local token = self.tokens[self.at]
  self.at = self.at + 1
  return token
end

function Script:note(line, ...)
  self.notes[#self.notes + 1] = { line = line, text = string.format(...) }
end

function Script:note_empty(word)
  local name = string.match(word.text, test_of.unset)
  if name and not self.empty[name] then
    self.empty[name] = true
    self:note(word.line, "the file does not set %s: here it is tested as empty; %s=VALUE behind the file sets it",
              quote.shown(name), quote.shown(name))
  end
end

-- ---- assignments and commands ----

local DECLARE = { export = true, declare = true, typeset = true, ["local"] = true, readonly = true }

local function assignment(token)
  local part = token.parts and token.parts[1]
  if not part or part[1] ~= "text" then return nil end
  local name, plus = string.match(part[2], "^([%a_][%w_]*)(%+?)=")
  return name, plus == "+", name and #name + #plus + 2
end

function Script:set(token, exported)
  local name, append, from = assignment(token)
  local var = self.env.at[name]
  if token.kind == "array" then
    local items = append and var and (var.items or { var.text }) or {}
    for _, word in ipairs(token.items) do
      for _, one in ipairs(value.words(self.env, word)) do
        items[#items + 1] = value.mark(one.line) .. one.text
      end
    end
    var = { items = items, line = token.line, map = texts_of.map(items, append and var and var.map) }
  else
    -- The text begins behind "NAME=".
    local text = value.mark(token.line) .. value.text(self.env, token, from)
    if append and var and var.items then
      table.insert(var.items, text)
    else
      var = { text = append and var and var.text .. text or text, line = token.line }
    end
  end
  if self.given[name] then var = self.env.at[name] end
  if not self.env.at[name] then self.names[#self.names + 1] = name end
  self.env.at[name] = var
  if exported and var.text then
    self.exports[#self.exports + 1] = { name = name, text = value.plain(var.text), line = token.line }
  end
end

local REDIRECT = { [">"] = true, [">>"] = true, ["<"] = true, [">&"] = true, ["<&"] = true,
                   ["&>"] = true, ["&>>"] = true, ["<<<"] = true }

-- Reads one command up to what ends it; returns whether it holds.
function Script:simple(live)
  local tokens, here = {}, nil
  while true do
    local token = peek(self)
    if not token or token.kind == "newline" then break end
    if token.kind == "op" and REDIRECT[token.op] then
      step(self)
      if peek(self) and peek(self).kind == "word" then step(self) end
    elseif token.kind == "op" and (token.op == "<<" or token.op == "<<-") then
      here = step(self)
    elseif token.kind == "op" then
      break
    else
      tokens[#tokens + 1] = step(self)
    end
  end
  if not live or #tokens == 0 then return true end
  if here then self:take_here(here, tokens) end
  return self:act(tokens)
end

-- Text behind a command: `read ... NAME` gives it to a variable; any other may be a script of its own.
function Script:take_here(here, tokens)
  local lines = {}
  for i, line in ipairs(here.body) do lines[i] = here.literal and line or texts_of.expanded(self.env, line) end
  local name = literal(tokens[1]) == "read" and literal(tokens[#tokens])
  if name and string.find(name, "^[%a_][%w_]*$") then
    local marked = {}
    for i, line in ipairs(lines) do marked[i] = value.mark(here.line + i) .. line end
    if not self.env.at[name] then self.names[#self.names + 1] = name end
    self.env.at[name] = { text = table.concat(marked, "\n"), line = here.line }
  else
    self.heres[#self.heres + 1] = { text = string.rep("\n", here.line) .. table.concat(lines, "\n") .. "\n" }
  end
end

function Script:act(tokens)
  local i, declared = 1, DECLARE[literal(tokens[1]) or ""]
  local exported = literal(tokens[1]) == "export"
  if declared then i = 2 end
  local before = {}
  while tokens[i] and (assignment(tokens[i]) or declared) do
    if assignment(tokens[i]) then before[#before + 1] = tokens[i] end
    i = i + 1
  end
  for _, token in ipairs(before) do self:set(token, exported or tokens[i] ~= nil) end
  local words = {}
  for k = i, #tokens do
    if tokens[k].kind == "array" then
      value.wrong(self.env, tokens[k].line, "an array has no meaning here")
    end
    local more = value.words(self.env, tokens[k])
    table.move(more, 1, #more, #words + 1, words)
  end
  if #words == 0 then return true end
  local body = self.functions[words[1].text]
  if body then return self:call(body, words) end
  if self:arguments(words) then return true end
  if words[1].text == "let" then
    for i = 2, #words do value.compute(self.env, words[i].text, words[i].line) end
    return true
  end
  if words[1].text == "source" or words[1].text == "." then return self:source(words) end
  if #self.commands >= limits.commands then
    value.wrong(self.env, words[1].line, "has more than %d commands", limits.commands)
  end
  self.commands[#self.commands + 1] = words
  if test_of.brackets[words[1].text] then
    for k = 2, #words do self:note_empty(words[k]) end
  end
  return test_of.status(words)
end

-- The words from `from` on, with marks.
local function texts(words, from)
  local list = {}
  for i = from, #words do list[#list + 1] = value.mark(words[i].line) .. words[i].marked end
  return list
end

-- Whether the command is one that changes $1 and those behind it: shift, set -- A B.
function Script:arguments(words)
  local env = self.env
  if words[1].text == "set" and words[2] and words[2].text == "--" then
    env.args, env.whole = texts(words, 3), true
    return true
  end
  if words[1].text ~= "shift" then return false end
  local n = words[2] and math.tointeger(tonumber(words[2].text)) or 1
  local most, rest = 0, {}
  for i in pairs(env.args) do most = math.max(most, i) end
  for i = n + 1, most do rest[i - n] = env.args[i] end
  env.args = rest
  return true
end

-- Another script that this one reads, if `load` finds it; its lines are said as those of the command.
function Script:source(words)
  local name = words[2] and words[2].text or ""
  local text = self.load and self.depth < limits.calls and self.load(name)
  if not text then
    self:note(words[1].line, "%s is not beside the script: what it sets is not known", quote.shown(name))
    return true
  end
  local tokens, at = self.tokens, self.at
  self.tokens, self.at, self.depth = lexer(text, name), 1, self.depth + 1
  for _, token in ipairs(self.tokens) do texts_of.relocate(token, words[1].line) end
  self:block({}, true)
  self.tokens, self.at, self.depth = tokens, at, self.depth - 1
  return true
end

function Script:call(body, words)
  local env = self.env
  if self.depth >= limits.calls then value.wrong(env, words[1].line, "functions call each other too deeply") end
  local at, args, whole = self.at, env.args, env.whole
  self.at, self.depth = body, self.depth + 1
  env.args, env.whole = texts(words, 2), true
  self:block({ ["}"] = true }, true)
  self.at, self.depth = at, self.depth - 1
  env.args, env.whole = args, whole
  return true
end

-- ---- control ----

-- A list of commands with && and ||; whether the last one that counts holds.
function Script:list(live)
  local holds, line = nil, peek(self) and peek(self).line or 0
  local run = live
  while true do
    local done = self:statement(run)
    if run then
      holds = done
      if holds == nil then self.undecided = line end
    end
    local token = peek(self)
    local op = token and token.kind == "op" and token.op
    if op == "&&" then
      run = live and holds == true
    elseif op == "||" then
      run = live and holds ~= true
    elseif op == "|" then
      run = live
    else
      return holds
    end
    step(self)
    while peek(self) and peek(self).kind == "newline" do step(self) end
  end
end

local function expect(self, word, line)
  while peek(self) and (peek(self).kind == "newline" or peek(self).op == ";") do step(self) end
  if literal(peek(self)) ~= word then
    value.wrong(self.env, line, "\"%s\" is missing", word)
  end
  return step(self)
end

-- Commands up to one of the words `stops`, which is left.
function Script:block(stops, live, open)
  local holds = true
  while true do
    local token = peek(self)
    if not token then
      if next(stops) then
        value.wrong(self.env, open or 1, "what begins here has no end (%s)", table.concat(keys(stops), ", "))
      end
      return holds
    end
    local word = literal(token) or token.op
    if word and stops[word] then return holds end
    if token.kind == "newline" or token.op == ";" or token.op == "&" then
      step(self)
    elseif token.kind == "op" and token.op ~= "(" then
      value.wrong(self.env, token.line, "%s is not where a command can begin", quote.shown(token.op))
    else
      local before = self.at
      holds = self:list(live)
      if self.at == before then value.wrong(self.env, token.line, "is no shell script that can be read") end
    end
  end
end

local UNDECIDED = "whether the test in this line holds is not in the file: read as if it does not"

function Script:if_(live)
  local line = step(self).line
  local taken = false
  while true do
    local try = live and not taken
    local holds = self:block({ ["then"] = true }, try, line)
    expect(self, "then", line)
    if try and holds == nil then self:note(line, UNDECIDED) end
    local run = try and holds == true
    taken = taken or run
    self:block({ ["elif"] = true, ["else"] = true, ["fi"] = true }, run, line)
    local word = literal(step(self))
    if word == "fi" then return true end
    if word == "else" then
      self:block({ ["fi"] = true }, live and not taken, line)
      step(self)
      return true
    end
  end
end

function Script:for_(live)
  local line, values = step(self).line, nil
  local name = literal(step(self))
  if literal(peek(self)) == "in" then
    step(self)
    values = {}
    while peek(self) and peek(self).kind == "word" do
      local more = live and value.words(self.env, step(self)) or { step(self) and nil }
      table.move(more, 1, #more, #values + 1, values)
    end
  end
  while peek(self) and literal(peek(self)) ~= "do" do step(self) end
  expect(self, "do", line)
  local run = live and name and values and #values > 0
  if not run then
    if live then self:note(line, "this loop is not read") end
    self:block({ done = true }, false, line)
  else
    self:rounds(name, values, line)
  end
  step(self)
  return true
end

-- All rounds of a loop; of one that starts a program the first: the others are other runs.
function Script:rounds(name, values, line)
  local at = self.at
  for i, one in ipairs(values) do
    local before = #self.commands
    if not self.given[name] then self.env.at[name] = { text = value.mark(line) .. one.text, line = line } end
    self.at = at
    self:block({ done = true }, true, line)
    local starts = false
    for k = before + 1, #self.commands do
      for _, word in ipairs(self.commands[k]) do starts = starts or string.find(word.text, "%.py") ~= nil end
    end
    if i < #values and (starts or i >= limits.rounds) then
      return self:note(line, "of this loop the %s read", i == 1 and "first round is" or "first rounds are")
    end
  end
end

function Script:while_(live)
  local line = step(self).line
  self:block({ ["do"] = true }, false, line)
  expect(self, "do", line)
  if live then self:note(line, "this loop is not read") end
  self:block({ done = true }, false, line)
  step(self)
  return true
end

local function glob(pattern, text)
  if pattern == "*" then return true end
  if string.find(pattern, "[%[%]?]") then return false end
  local plain = string.gsub(pattern, "[%^%$%(%)%%%.%+%-]", "%%%0")
  return string.find(text, "^" .. string.gsub(plain, "%*+", ".*") .. "$") ~= nil
end

function Script:case(live)
  local line = step(self).line
  local word = step(self)
  local words = live and word and word.kind == "word" and value.words(self.env, word) or {}
  if words[1] then self:note_empty(words[1]) end
  local text = words[1] and test_of.tested(words[1]) or #words == 0 and "" or nil
  expect(self, "in", line)
  if live and not text then self:note(line, "which of these cases holds is not in the file: none is read") end
  local taken = false
  while true do
    while peek(self) and (peek(self).kind == "newline" or peek(self).op == "(") do step(self) end
    if literal(peek(self)) == "esac" then break end
    local holds = false
    while peek(self) and peek(self).op ~= ")" do
      local token = step(self)
      if token.kind == "newline" then value.wrong(self.env, token.line, "a case has no )") end
      if token.kind == "word" and live and text and #text < 1000 then
        local pattern = value.plain(value.text(self.env, token))
        holds = holds or (#pattern < 100 and glob(pattern, text))
      end
    end
    if not step(self) then value.wrong(self.env, line, "\"esac\" is missing") end
    local run = live and holds and not taken
    taken = taken or run
    self:block({ [";;"] = true, [";&"] = true, [";;&"] = true, esac = true }, run, line)
    if literal(peek(self)) ~= "esac" then step(self) end
  end
  step(self)
  return true
end

-- NAME() { ... } is kept for when it is called.
function Script:function_(live, name)
  local line = peek(self).line
  while peek(self) and literal(peek(self)) ~= "{" do step(self) end
  if not step(self) then value.wrong(self.env, line, "{ is missing") end
  if live and name then self.functions[name] = self.at end
  self:block({ ["}"] = true }, false, line)
  step(self)
  return true
end

local forms = { ["if"] = Script.if_, ["for"] = Script.for_, ["select"] = Script.while_,
                ["while"] = Script.while_, ["until"] = Script.while_, case = Script.case }

function Script:statement(live)
  self.level = self.level + 1
  if self.level > 60 then value.wrong(self.env, peek(self).line, "is nested too deeply") end
  local token, holds = peek(self), nil
  local word = literal(token)
  local ahead, behind = self.tokens[self.at + 1], self.tokens[self.at + 2]
  if word and forms[word] then
    holds = forms[word](self, live)
  elseif word == "function" then
    holds = self:function_(live, literal(ahead))
  elseif word and ahead and ahead.op == "(" and behind and behind.op == ")" then
    holds = self:function_(live, word)
  elseif word == "!" then
    step(self)
    holds = self:statement(live)
    if holds ~= nil then holds = not holds end
  elseif token and token.kind == "arithmetic" then
    step(self)
    if live then holds = value.compute(self.env, token.body, token.line) end
  elseif word == "{" or token and token.op == "(" then
    step(self)
    local stop = word == "{" and "}" or ")"
    holds = self:block({ [stop] = true }, live, token.line)
    step(self)
  else
    holds = self:simple(live)
  end
  self.level = self.level - 1
  return holds
end

-- `given` has variables that come from outside, positional ones by their number: { name = text }. The script
-- does not change them. `load(name)` gives the text of a file that the script sources, or nil.
return function(text, file, given, load)
  local self = setmetatable({ tokens = lexer(text, file), at = 1, env = value.new(file), exports = {},
    commands = {}, names = {}, heres = {}, functions = {}, notes = {}, empty = {}, given = given or {}, load = load, depth = 0, level = 0 }, Script)
  for name, set in pairs(given or {}) do
    local n = math.tointeger(tonumber(name))
    if n then self.env.args[n] = set else self.env.at[name] = { text = set, line = 0 } end
  end
  self:block({}, true)
  return { env = self.exports, commands = self.commands, vars = self.env, names = self.names,
           notes = self.notes, heres = self.heres }
end
