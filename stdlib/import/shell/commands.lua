-- commands.lua - simple commands of a shell script: what they set, and whether they hold, as far as the script says.
-- A status is true, false, or nil with what it is taken for in lists: commands of others are taken to succeed. "empty"
-- behind a status says that it rests on variables that nobody set.
local lexer = use "import/shell/lexer"
local quote = use "import/quote"
local test_of = use "import/shell/test"
local texts_of = use "import/shell/texts"
local value = use "import/shell/value"
local words_of = use "import/shell/words"
local literal, assignment = words_of.literal, words_of.assignment
local commands = {}

local limits = { calls = 8, commands = 20000 }
local DECLARE = { export = true, declare = true, typeset = true, ["local"] = true, readonly = true }

-- ---- variables ----

function commands.assign(self, name, var)
  local old = self.env.at[name]
  if self.given[name] then return end
  if old and old.readonly then return self:note(var.line, "%s is readonly: it stays what it is", quote.shown(name)) end
  if not self.env.at[name] then self.names[#self.names + 1] = name end
  if self.unsure > 0 then var.maybe = true end
  self.env.at[name] = var
end

local function export(self, name, line)
  local var = self.env.at[name]
  if var and var.text then self.exports[#self.exports + 1] = { name = name, text = value.plain(var.text), line = line } end
end

local function array(self, token, old)
  local items = old and (old.items or { old.text }) or {}
  for _, word in ipairs(token.items) do
    for _, one in ipairs(value.words(self.env, word)) do
      items[#items + 1] = value.mark(one.line) .. one.text
    end
  end
  return { items = items, line = token.line, map = texts_of.map(items, old and old.map) }
end

-- What an assignment gives: the name and the variable.
local function given_by(self, token)
  local name, append, from = assignment(token)
  local old, var = append and self.env.at[name] or nil, nil
  self.env.relied = old ~= nil and old.maybe
  if token.kind == "array" then
    var = array(self, token, old)
  else
    -- The text begins behind "NAME=".
    local text = value.mark(token.line) .. value.text(self.env, token, from)
    if old and old.items then
      old.items[1] = (old.items[1] or "") .. text
      var = old
    else
      var = { text = old and old.text .. text or text, line = token.line }
    end
  end
  var.maybe = self.env.relied or nil
  return name, var
end

local function put(self, name, var, exported, line, only)
  if name == "IFS" and not only then self:note(line, "words are cut at blanks here, whatever IFS is") end
  commands.assign(self, name, var)
  self.exported[name] = self.exported[name] or exported or nil
  if self.exported[name] then export(self, name, line) end
end

-- `only`: of one command alone.
local function set(self, token, exported, only)
  local name, var = given_by(self, token)
  put(self, name, var, exported, token.line, only)
end

-- NAME[KEY]=text.
local function set_entry(self, token)
  local name, key, plus, text = string.match(value.plain(value.text(self.env, token)), "^([%a_][%w_]*)%[(.-)%](%+?)=(.*)$")
  local var = name and self.env.at[name]
  if self.given[name] then return end
  local n = key and not (var and var.map) and math.tointeger(tonumber(key))
  if not name or value.unresolved(key) or not n and not (var and var.map) or n and (n < 0 or n > #(var and var.items or {})) then
    self:note(token.line, "what this line sets is not followed")
    return
  end
  text = value.mark(token.line) .. text
  if not n then
    var.map[key] = plus == "+" and (var.map[key] or "") .. text or text
    return
  end
  if not var or not var.items then var = { items = { var and var.text }, line = token.line } end
  var.items[n + 1] = plus == "+" and (var.items[n + 1] or "") .. text or text
  commands.assign(self, name, var)
end

local function forget(self, name)
  if not self.given[name] then self.env.at[name] = nil end
end

-- In a function the variable is another one until the function ends.
local function make_local(self, name)
  local frame = self.frame
  if not frame or frame[name] ~= nil or self.given[name] then return end
  frame[name] = self.env.at[name] or false
  self.env.at[name] = nil
end

-- Takes back what was set only for a while.
function commands.restore(self, saved)
  for name, var in next, saved do self.env.at[name] = var or nil end
end

-- declare, local, export: assignments, and names that stay what they are.
local function declare(self, tokens, how)
  local flags, own = "", how ~= "export" and how ~= "readonly"
  local function here(name)
    if own and not string.find(flags, "g") then make_local(self, name) end
  end
  for i = 2, #tokens do
    local token = tokens[i]
    local name, word = assignment(token), literal(token)
    if word and string.find(word, "^[-+]%a+$") then
      flags = flags .. word
    elseif name then
      if select(2, assignment(token)) then here(name) end
      local _, var = given_by(self, token) -- of the outer variable, too: local A="$A x"
      here(name)
      put(self, name, var, how == "export" or string.find(flags, "^%-.*x") ~= nil, token.line)
      var.readonly = how == "readonly" or string.find(flags, "r") ~= nil
    elseif word and string.find(word, "^[%a_][%w_]*$") then
      here(word)
      local empty = string.find(flags, "A") and not self.env.at[word]
      if empty then commands.assign(self, word, { items = {}, map = {}, line = token.line }) end
      if how == "export" and not string.find(flags, "n") then
        self.exported[word] = true
        export(self, word, token.line)
      end
    end
  end
  if string.find(flags, "[ilun]") and how ~= "export" then
    self:note(tokens[1].line, "what %s makes of the values in this line is not followed", quote.shown(how .. " " .. flags))
  end
  return true
end

-- ---- commands that the shell has itself ----

-- The words from `from` on, with marks.
local function texts(words, from)
  local list = {}
  for i = from, #words do list[#list + 1] = value.mark(words[i].line) .. words[i].marked end
  return list
end

-- set -- A B, and set A B: other arguments.
local function set_arguments(self, words)
  local from
  for i = 2, #words do
    local text = words[i].text
    if text == "--" or not string.find(text, "^[-+]") and not (i > 2 and string.find(words[i - 1].text, "^[-+]%a*o$")) then
      from = text == "--" and i + 1 or i
      break
    end
  end
  if from then self.env.args, self.env.whole = texts(words, from), true end
  return true
end

local function shift(self, words)
  local env = self.env
  local n = words[2] and math.tointeger(tonumber(words[2].text)) or 1
  local most, rest = 0, {}
  for i in pairs(env.args) do most = math.max(most, i) end
  if env.whole and n > most then return false end
  for i = n + 1, most do rest[i - n] = env.args[i] end
  env.args = rest
  return true
end

local function unset(self, words)
  for i = 2, #words do
    local text = words[i].text
    if words[2].text == "-f" or not self.env.at[text] then self.functions[text] = nil end
    if words[2].text ~= "-f" and string.find(text, "^[%a_][%w_]*$") then
      forget(self, text)
      self.exported[text] = nil
    elseif words[2].text ~= "-f" and not string.find(text, "^%-[vn]$") then
      self:note(words[1].line, "what unset %s takes away is not followed", quote.shown(text))
    end
  end
  return true
end

-- read A B, mapfile A, printf -v A: what the variables hold is not in the file. `here`: text behind <<EOF is.
local function reads(self, words, here)
  if words[1].text == "printf" then
    if words[2] and words[2].text == "-v" and words[3] then forget(self, words[3].text) end
    return true
  end
  local from = words[1].text == "getopts" and 3 or 2
  for i = here and #words + 1 or from, #words do
    if string.find(words[i].text, "^[%a_][%w_]*$") then forget(self, words[i].text) end
  end
  if #words == 1 then forget(self, words[1].text == "read" and "REPLY" or "MAPFILE") end
  return nil, true
end

-- Another script that this one reads, if `load` finds it; its lines are said as those of the command.
local function source(self, words)
  local name = words[2] and words[2].text or ""
  local text = self.load and self.depth < limits.calls and self.load(name)
  if not text then
    self:note(words[1].line, "%s is not beside the script: what it sets is not known", quote.shown(name))
    return nil, true
  end
  local tokens = lexer(text, name)
  for _, token in ipairs(tokens) do texts_of.relocate(token, words[1].line) end
  return self:elsewhere(tokens, 1, "return")
end

-- eval of assignments is a piece of script. What else it starts is found where commands are looked at.
local function eval(self, words)
  local parts = {}
  for i = 2, #words do parts[#parts + 1] = words[i].text end
  local text = table.concat(parts, " ")
  local first = string.match(text, "^%s*([%w_]+)")
  local sets = string.find(text, "^%s*[%a_][%w_]*%+?=") or DECLARE[first] or first == "unset" or first == "set"
  if not sets then return nil, true end
  if value.unresolved(text) or self.depth >= limits.calls or string.find(text, "%.py%f[%s\0]") then
    self:note(words[1].line, "what eval sets in this line is not followed")
    return nil, true
  end
  local tokens = lexer(text, self.env.file)
  for _, token in ipairs(tokens) do texts_of.relocate(token, words[1].line) end
  return self:elsewhere(tokens, 1)
end

local function leave(self, words)
  local kind, n = words[1].text, words[2] and math.tointeger(tonumber(words[2].text))
  local holds = true
  if words[2] then
    holds = n and n == 0
  elseif kind == "return" or kind == "exit" then
    holds = self.status -- of the command before
  end
  return self:leave(kind, n, holds, words[1].line)
end

local function let(self, words)
  local n
  for i = 2, #words do n = value.number(self.env, words[i].text, words[i].line) end
  if n == nil then return nil, true end
  return n ~= 0
end

local function yes() return true end
local BUILTIN = {
  set = set_arguments, shift = shift, unset = unset, read = reads, mapfile = reads, readarray = reads, getopts = reads,
  printf = reads, source = source, ["."] = source, eval = eval, let = let, ["break"] = leave, continue = leave,
  ["return"] = leave, exit = leave, ["true"] = yes, [":"] = yes, echo = yes, ["false"] = function() return false end,
}

-- Of these no command is kept: nothing looks for a program in them.
local UNKEPT = { set = true, shift = true, unset = true, let = true, ["break"] = true, continue = true, ["return"] = true,
                 source = true, ["."] = true }

local function keep(self, words)
  if #self.commands >= limits.commands then
    value.wrong(self.env, words[1].line, "has more than %d commands", limits.commands)
  end
  self.commands[#self.commands + 1] = words
end

-- Whether one of the commands behind the first `before` starts a program.
function commands.starts(self, before)
  for k = before + 1, #self.commands do
    for _, word in ipairs(self.commands[k]) do
      if string.find(word.text, "%.py") then return true end
    end
  end
  return false
end

local function tested_words(self, words)
  local closing = ({ ["["] = "]", test = "" })[words[1].text]
  if closing ~= "" and words[#words].text ~= closing then return false end
  local function note(word) self:note_empty(word) end
  local holds, assumed = test_of.holds({ table.unpack(words, 2, closing == "" and #words or #words - 1) }, false, self.env,
                                       note, words[1].line)
  if holds == nil then return nil, false end
  return holds, (assumed or self.env.relied) and "empty" or nil
end

-- What a command does that is words alone.
local function run(self, words, here)
  local name = words[1].text
  local body = self.functions[name]
  if body then
    if self.depth >= limits.calls then value.wrong(self.env, words[1].line, "functions call each other too deeply") end
    return self:call(body, texts(words, 2))
  end
  if not UNKEPT[name] then keep(self, words) end
  if name == "[" or name == "test" then return tested_words(self, words) end
  if BUILTIN[name] then return BUILTIN[name](self, words, here) end
  if name == "exec" and #words > 1 then return self:leave("exit", nil, true, words[1].line) end
  return nil, true
end

-- A=1 command: the variable is of that command alone.
local function with_variables(self, tokens, words, here)
  local saved, exported, before, kept = {}, {}, #self.commands, #self.exports
  for _, token in ipairs(tokens) do
    local name = assignment(token)
    if saved[name] == nil then saved[name], exported[name] = self.env.at[name] or false, self.exported[name] or false end
    set(self, token, true, true)
  end
  local holds, guess = run(self, words, here)
  commands.restore(self, saved)
  for name, was in next, exported do self.exported[name] = was or nil end
  if not commands.starts(self, before) then commands.drop_exports(self, kept) end
  return holds, guess
end

function commands.drop_exports(self, kept)
  for i = #self.exports, kept + 1, -1 do self.exports[i] = nil end
end

-- A=$(command): as the command, which nobody knows.
local function has_command(token)
  for _, part in ipairs(token.parts or {}) do
    if part.form == "command" then return true end
  end
  return false
end

-- Does what a command says; its status.
function commands.act(self, tokens, here)
  value.spend(self.env, #tokens, tokens[1].line)
  self.env.relied = false
  local how = literal(tokens[1])
  if DECLARE[how] then return declare(self, tokens, how) end
  local n, words, unknown = 0, {}, false
  while tokens[n + 1] and (assignment(tokens[n + 1]) or words_of.entry(tokens[n + 1])) do n = n + 1 end
  for k = n + 1, #tokens do
    if tokens[k].kind == "array" then value.wrong(self.env, tokens[k].line, "an array has no meaning here") end
    local bare = tokens[k].kind == "word" and #tokens[k].parts == 1 and tokens[k].parts[1][1] == "expand"
    for _, word in ipairs(value.words(self.env, tokens[k])) do
      word.bare = bare
      words[#words + 1] = word
    end
  end
  local set_before = { table.unpack(tokens, 1, n) }
  if #words > 0 then
    if n == 0 then return run(self, words, here) end
    for _, token in ipairs(set_before) do
      if not assignment(token) then return run(self, words, here) end
    end
    return with_variables(self, set_before, words, here)
  end
  for _, token in ipairs(set_before) do
    if assignment(token) then set(self, token) else set_entry(self, token) end
    unknown = unknown or has_command(token)
  end
  if unknown then return nil, true end
  return true
end

-- Text behind a command: `read ... NAME` gives it to a variable; any other may be a script of its own. Whether a variable
-- has it.
function commands.take_here(self, here, tokens)
  local lines = {}
  for i, line in ipairs(here.body) do lines[i] = here.literal and line or texts_of.expanded(self.env, line) end
  local name = literal(tokens[1]) == "read" and literal(tokens[#tokens])
  if not name or not string.find(name, "^[%a_][%w_]*$") then
    self.heres[#self.heres + 1] = { text = string.rep("\n", here.line) .. table.concat(lines, "\n") .. "\n" }
    return false
  end
  -- Up to the end of the text with -d '', else the first line; of several names nothing is known.
  local whole, names = false, 0
  for i = 2, #tokens do
    local word = literal(tokens[i])
    whole = whole or word ~= nil and string.find(word, "^%-%a*d$") ~= nil
    names = names + (word and string.find(word, "^[%a_]") and 1 or 0)
  end
  if names ~= 1 then return false end
  local marked = {}
  for i, line in ipairs(lines) do
    if whole or i == 1 then marked[i] = value.mark(here.line + i) .. line end
  end
  commands.assign(self, name, { text = table.concat(marked, "\n"), line = here.line })
  return true
end

return commands
