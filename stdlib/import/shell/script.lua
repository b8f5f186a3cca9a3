-- script.lua - what a shell script says, read from top to bottom: variables, the branches of tests
-- that its own variables decide, the first round of a loop. Nothing is run. Gives { env, commands,
-- vars, notes }: what it exports, the words of each command, its variables in their order, and
-- what could not be decided.
--
-- A status is true, false or nil, and what nil is taken for (see commands.lua). `undecided` counts the tests around that
-- are not decided, `unsure` also those that rest on variables which nobody set: there no exit ends what is read.
local commands = use "import/shell/commands"
local control = use "import/shell/control"
local lexer = use "import/shell/lexer"
local quote = use "import/quote"
local scopes = use "import/shell/scopes"
local test_of = use "import/shell/test"
local value = use "import/shell/value"
local words_of = use "import/shell/words"
local literal, redirects, peek, step = words_of.literal, words_of.redirects, words_of.peek, words_of.step
local is_op, skip_newlines = words_of.is_op, words_of.skip_newlines

local limits = { levels = 60 }
local Script = {}
Script.__index = Script

for _, methods in ipairs { scopes, control } do
  for name, method in next, methods do Script[name] = method end
end

-- Each note once.
function Script:note(line, ...)
  local text = string.format(...)
  local key = line .. ":" .. text
  if self.noted[key] then return end
  self.noted[key] = true
  self.notes[#self.notes + 1] = { line = line, text = text }
end

function Script:note_empty(word)
  local name = string.match(word.text, test_of.unset)
  if name and not self.empty[name] then
    self.empty[name] = true
    self:note(word.line, "the file does not set %s: here it is tested as empty; %s=VALUE behind the file sets it",
              quote.shown(name), quote.shown(name))
  end
end

local SUCCEEDS = "whether the command in this line succeeds is not in the file: read as if it does"

-- ---- simple commands ----

-- Skips what is behind < and > from here on; the text behind <<EOF, if there is one.
function Script:redirections()
  local here
  while redirects(peek(self)) do
    local token = step(self)
    if token.op == "<<" or token.op == "<<-" then
      here = token
    else
      if redirects(peek(self)) then step(self) end -- < <(command)
      if is_op(peek(self), "(") then
        local line = step(self).line
        self:block({ [")"] = true }, false, line)
        step(self)
      elseif peek(self) and peek(self).kind == "word" then
        step(self)
      end
    end
  end
  return here
end

-- [[ ... ]], in which || and brackets are of the test.
function Script:double_test(live)
  local line, words = step(self).line, {}
  self.env.relied = false
  while literal(peek(self)) ~= "]]" do
    local token = step(self)
    if not token or is_op(token, ";") then value.wrong(self.env, line, "\"]]\" is missing") end
    if live and token.kind == "word" then
      local text = value.plain(value.text(self.env, token))
      local pieces = function() return value.pieces(self.env, token) end
      words[#words + 1] = { text = text, line = token.line, pieces = pieces }
    elseif token.kind ~= "newline" then
      words[#words + 1] = { text = "", op = token.op or "?", line = token.line }
    end
  end
  step(self)
  self:redirections()
  if not live then return true end
  local function note(word) self:note_empty(word) end
  local holds, assumed = test_of.holds(words, true, self.env, note, line)
  if holds == nil then return nil, false end
  return holds, (assumed or self.env.relied) and "empty" or nil
end

-- Reads one command up to what ends it; returns its status.
function Script:simple(live)
  local tokens, here = {}, nil
  while true do
    local token = peek(self)
    if not token or token.kind == "newline" then break end
    if redirects(token) then
      here = self:redirections() or here
    elseif token.kind == "op" then
      break
    else
      tokens[#tokens + 1] = step(self)
    end
  end
  if not live or #tokens == 0 then return true end
  local taken = here and commands.take_here(self, here, tokens)
  return commands.act(self, tokens, taken)
end

-- ---- lists ----

-- Commands with | between them, and whether a ! is before them. What each of several sets stays in it.
function Script:pipeline(live)
  local invert, from = false, nil
  local word = literal(peek(self))
  while word == "!" or word == "time" do
    step(self)
    if word == "!" then invert = not invert end
    word = literal(peek(self))
  end
  from = self.at
  local known = self.tokens.piped
  local many, holds, guess = known[from], nil, nil
  while true do
    if live and many then
      holds, guess = self:subshell(function() return self:statement(true) end)
    else
      holds, guess = self:statement(live)
    end
    if not is_op(peek(self), "|") and not is_op(peek(self), "|&") then break end
    many = true
    step(self)
    skip_newlines(self)
  end
  known[from] = many or false
  if invert and holds == nil then
    guess = not guess
  elseif invert then
    holds = not holds
  end
  if live then self.status = holds end
  return holds, guess
end

local CHANGES = { export = true, declare = true, typeset = true, ["local"] = true, readonly = true, unset = true, set = true,
                  shift = true, source = true, ["."] = true, read = true, eval = true, let = true }

-- Whether a token sets something or starts a program, or, if `leaves`, leaves what it is in.
local function changes(self, token, leaves)
  local word = literal(token)
  if token.kind == "array" or token.kind == "arithmetic" then return true end
  if words_of.assignment(token) or words_of.entry(token) then return true end
  if not word then return false end
  return CHANGES[word] or self.functions[word] or string.find(word, "%.py$") or leaves and scopes.leaves[word]
end

-- Whether what stands between two tokens changes what is read behind it.
local function matters(self, from, to, leaves)
  for i = from, to - 1 do
    if changes(self, self.tokens[i], leaves) then return true end
  end
  return false
end

-- A test alone has no effect: it may be looked at where it is not known whether it is reached.
local function is_test(self)
  local word = literal(peek(self))
  return word == "[[" or word == "[" or word == "test"
end

-- The status of A && B, or of A || B, of that of A and of B; B is not run where `ran` is not set.
local function joined(op, a, a_guess, ran, b, b_guess)
  if not ran then return a, a_guess end
  local join = op == "&&" and test_of.both or test_of.either
  local holds = join(a, b)
  if holds == nil then
    local x, y = a, b
    if a == nil then x = a_guess end
    if b == nil then y = b_guess end
    return nil, join(x, y) == true
  end
  return holds, (a_guess == "empty" or b_guess == "empty") and "empty" or nil
end

-- A list of commands with && and ||; its status.
function Script:list(live)
  local unsure, undecided_before, line = self.unsure, self.undecided, peek(self) and peek(self).line or 0
  local holds, guess = self:pipeline(live)
  while true do
    local op = peek(self) and peek(self).kind == "op" and peek(self).op
    if op ~= "&&" and op ~= "||" then break end
    step(self)
    skip_newlines(self)
    local taken = holds
    if holds == nil then taken = guess end
    live = live and not self.leaving
    local run = live and taken == (op == "&&")
    local from, undecided = self.at, holds == nil
    if live and (undecided or guess == "empty") then self.unsure = self.unsure + 1 end
    if live and undecided then self.undecided = self.undecided + 1 end
    local probe = live and undecided and is_test(self)
    local b, b_guess = self:pipeline(run or probe)
    if live and undecided and matters(self, from, self.at, not run and guess == false) then
      self:note(line, guess and SUCCEEDS or control.UNDECIDED)
    end
    if live and undecided and not run then self:may_set(from, self.at) end
    if live then holds, guess = joined(op, holds, guess, run or probe, b, b_guess) end
  end
  self.unsure, self.undecided = unsure, undecided_before
  return holds, guess
end

-- A list; one that & ends runs in a shell of its own.
function Script:whole_list(live)
  local apart, from = self.tokens.apart, self.at
  if live and apart[from] == nil then
    self:list(false)
    apart[from] = is_op(peek(self), "&")
    self.at = from
  end
  if live and apart[from] then
    self:subshell(function() return self:list(true) end)
    return true
  end
  local holds, guess = self:list(live)
  apart[from] = is_op(peek(self), "&")
  return holds, guess
end

-- Commands up to one of the words `stops`, which is left; the status of the last one.
function Script:block(stops, live, open)
  self.tokens.apart = self.tokens.apart or {}
  self.tokens.piped = self.tokens.piped or {}
  local holds, guess = true, nil
  while true do
    local token = peek(self)
    if not token then
      if next(stops) then
        value.wrong(self.env, open or 1, "what begins here has no end (%s)", table.concat(keys(stops), ", "))
      end
      return holds, guess
    end
    local word = literal(token) or token.op
    if word and stops[word] then return holds, guess end
    if token.kind == "newline" or token.op == ";" or token.op == "&" then
      step(self)
    elseif token.kind == "op" and token.op ~= "(" and not redirects(token) then
      value.wrong(self.env, token.line, "%s is not where a command can begin", quote.shown(token.op))
    else
      local before, run = self.at, live and not self.leaving
      local new, new_guess = self:whole_list(run)
      if run then holds, guess = new, new_guess end
      if self.at == before then value.wrong(self.env, token.line, "is no shell script that can be read") end
    end
  end
end

local forms = { ["if"] = Script.if_, ["for"] = Script.for_, ["select"] = Script.while_,
                ["while"] = Script.while_, ["until"] = Script.while_, case = Script.case }

local function arithmetic(self, live)
  local token = step(self)
  if not live then return true end
  self.env.relied = false
  local n = value.number(self.env, token.body, token.line)
  if n == nil then return nil, false end
  return n ~= 0, self.env.relied and "empty" or nil
end

function Script:compound(live, token, word)
  local ahead, behind = self.tokens[self.at + 1], self.tokens[self.at + 2]
  if word and forms[word] then return forms[word](self, live) end
  if word == "function" then
    step(self)
    local name = literal(step(self))
    return self:function_(live, name)
  end
  if word and is_op(ahead, "(") and is_op(behind, ")") then
    step(self)
    return self:function_(live, word)
  end
  if token and token.kind == "arithmetic" then return arithmetic(self, live) end
  if word == "[[" then return self:double_test(live) end
  if word ~= "{" and not is_op(token, "(") then return self:simple(live) end
  step(self)
  local stop = word == "{" and "}" or ")"
  local function inner() return self:block({ [stop] = true }, live, token.line) end
  local holds, guess
  if live and stop == ")" then
    holds, guess = self:subshell(inner)
  else
    holds, guess = inner()
  end
  step(self)
  return holds, guess
end

function Script:statement(live)
  local token = peek(self)
  self.level = self.level + 1
  value.spend(self.env, 1, token and token.line)
  if self.level > limits.levels then value.wrong(self.env, token.line, "is nested too deeply") end
  local holds, guess = self:compound(live and not self.leaving, token, literal(token))
  self:redirections()
  self.level = self.level - 1
  return holds, guess
end

-- `given` has variables that come from outside, positional ones by their number: { name = text }. The script
-- does not change them. `load(name)` gives the text of a file that the script sources, or nil.
return function(text, file, given, load)
  given = given or {}
  local self = setmetatable({ tokens = lexer(text, file), at = 1, env = value.new(file, given), exports = {}, exported = {},
    commands = {}, names = {}, heres = {}, functions = {}, notes = {}, noted = {}, empty = {}, given = given, load = load,
    depth = 0, level = 0, loops = 0, unsure = 0, undecided = 0, base = { exit = 0 } }, Script)
  for name, one in pairs(given) do
    local n = math.tointeger(tonumber(name))
    if n then self.env.args[n] = one else self.env.at[name] = { text = one, line = 0 } end
  end
  self:block({}, true)
  return { env = self.exports, commands = self.commands, vars = self.env, names = self.names,
           notes = self.notes, heres = self.heres }
end
