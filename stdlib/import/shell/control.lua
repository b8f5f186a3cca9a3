-- control.lua - if, case, loops and functions of a shell script. Of each the branch is read that the script's own variables
-- say, and the others are walked over. Methods of script.lua.
local commands = use "import/shell/commands"
local glob = use "import/shell/glob"
local quote = use "import/quote"
local test_of = use "import/shell/test"
local value = use "import/shell/value"
local words_of = use "import/shell/words"
local literal, peek, step = words_of.literal, words_of.peek, words_of.step
local is_op, skip_newlines = words_of.is_op, words_of.skip_newlines

local limits = { rounds = 100 }
local control = {}

control.UNDECIDED = "whether the test in this line holds is not in the file: read as if it does not"

local function expect(self, word, line)
  while peek(self) and (peek(self).kind == "newline" or peek(self).op == ";") do step(self) end
  if literal(peek(self)) ~= word then
    value.wrong(self.env, line, "\"%s\" is missing", word)
  end
  return step(self)
end

function control:if_(live)
  local line = step(self).line
  local begin, unsure, undecided, taken, holds, guess = line, self.unsure, self.undecided, false, true, nil
  while true do
    local try = live and not taken and not self.leaving
    local test, how = self:block({ ["then"] = true }, try, line)
    expect(self, "then", line)
    if try and test == nil then self:note(line, control.UNDECIDED) end
    if try and (test == nil or how == "empty") then self.unsure = self.unsure + 1 end
    if try and test == nil then self.undecided = self.undecided + 1 end
    local run, from = try and test == true, self.at
    taken = taken or run
    local new, new_guess = self:block({ ["elif"] = true, ["else"] = true, ["fi"] = true }, run, begin)
    if run then holds, guess = new, new_guess end
    if try and test == nil then self:may_set(from, self.at) end
    local token = step(self)
    line = token.line
    if literal(token) == "fi" then break end
    if literal(token) == "else" then
      run = live and not taken
      new, new_guess = self:block({ ["fi"] = true }, run, begin)
      if run then holds, guess = new, new_guess end
      step(self)
      break
    end
  end
  if self.undecided > undecided then holds, guess = nil, holds ~= false end
  self.unsure, self.undecided = unsure, undecided
  return holds, guess
end

function control:for_(live)
  local line, values = step(self).line, nil
  local name = literal(step(self))
  skip_newlines(self)
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
  local holds, guess = true, nil
  if live and name and values and #values > 0 then
    local base = { exit = self.base.exit, ["return"] = self.base["return"], ["break"] = self.undecided }
    local loops = self.base["break"] and self.loops + 1 or 1
    holds, guess = self:with({ base = base, loops = loops }, function() return self:rounds(name, values, line) end)
  else
    if live and not values then
      self:note(line, "this loop is not read")
      holds, guess = nil, true
    end
    local from = self.at
    self:block({ done = true }, false, line)
    if live and not values then self:may_set(from, self.at) end
  end
  step(self)
  return holds, guess
end

-- All rounds of a loop; of one that starts a program the first: the others are other runs.
function control:rounds(name, values, line)
  local at, holds, guess = self.at, nil, nil
  for i, one in ipairs(values) do
    local before = #self.commands
    if value.unresolved(one.text) or string.find(one.text, "[*?%[]") then
      self:note(line, "what this loop goes over is not all in the file: %s is read as one round", quote.shown(one.text))
    end
    commands.assign(self, name, { text = value.mark(line) .. one.text, line = line })
    self.at = at
    holds, guess = self:block({ done = true }, true, line)
    if self:ends() then break end
    if i < #values and (commands.starts(self, before) or i >= limits.rounds) then
      self:note(line, "of this loop the %s read", i == 1 and "first round is" or "first rounds are")
      break
    end
  end
  return holds, guess
end

function control:while_(live)
  local line = step(self).line
  self:block({ ["do"] = true }, false, line)
  expect(self, "do", line)
  if live then self:note(line, "this loop is not read") end
  local from = self.at
  self:block({ done = true }, false, line)
  if live then self:may_set(from, self.at) end
  step(self)
  return nil, true
end

-- Whether the text is of one of the patterns up to the next ")"; nil: it is not known.
function control:patterns(live, text)
  local holds, depth = false, 0
  while peek(self) and not (depth == 0 and is_op(peek(self), ")")) do
    local token = step(self)
    if token.kind == "newline" then value.wrong(self.env, token.line, "a case has no )") end
    depth = depth + (is_op(token, "(") and 1 or is_op(token, ")") and -1 or 0)
    if depth > 0 then holds = nil end -- @(a|b)
    if live and text and token.kind == "word" and holds == false then
      local pieces, all = value.pieces(self.env, token)
      local known = string.find(all, test_of.unset) == nil and not value.unresolved(all)
      local pattern = known and value.pattern(self.env, pieces, text, token.line)
      holds = pattern and glob.matches(pattern, text)
      if not pattern then holds = nil end
    end
  end
  return holds
end

local NO_CASE = "which of these cases holds is not in the file: none is read"

function control:case(live)
  local line, unsure = step(self).line, self.unsure
  local word = step(self)
  local text, assumed
  self.env.relied = false
  if live and word and word.kind == "word" then
    local function note(one) self:note_empty(one) end
    text, assumed = test_of.tested({ text = value.plain(value.text(self.env, word)), line = word.line }, self.env, note)
  end
  expect(self, "in", line)
  if live and not text then self:note(line, NO_CASE) end
  if assumed or self.env.relied then self.unsure = self.unsure + 1 end
  local open, falls, holds, guess = live and text ~= nil, false, true, nil
  while true do
    while peek(self) and (peek(self).kind == "newline" or peek(self).op == "(") do step(self) end
    if literal(peek(self)) == "esac" then break end
    local match = self:patterns(open, text)
    if not step(self) then value.wrong(self.env, line, "\"esac\" is missing") end
    if open and match == nil then
      self:note(line, NO_CASE)
      open = false
    end
    local run = falls or open and match == true
    local new, new_guess = self:block({ [";;"] = true, [";&"] = true, [";;&"] = true, esac = true }, run, line)
    if run then holds, guess = new, new_guess end
    local stop = literal(peek(self)) ~= "esac" and step(self).op
    falls = run and stop == ";&"
    if run then open = stop == ";;&" end
  end
  step(self)
  self.unsure = unsure
  if live and not text then return nil, true end
  return holds, guess
end

-- NAME() { ... } is kept for when it is called.
function control:function_(live, name)
  local line = self.tokens[self.at - 1].line
  if is_op(peek(self), "(") and is_op(self.tokens[self.at + 1], ")") then self.at = self.at + 2 end
  skip_newlines(self)
  if not peek(self) then value.wrong(self.env, line, "{ is missing") end
  if live and name then self.functions[name] = { tokens = self.tokens, at = self.at } end
  self:statement(false)
  return true
end

return control
