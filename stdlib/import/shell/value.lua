-- value.lua - what the words of a shell script stand for: its own variables, as far as it sets
-- them itself. What it does not set stays as it is written, "${X}". Nothing is run.
--
-- Texts carry marks "\1 12 \2": what follows is of line 12. No file has these bytes.
local lexer = use "import/shell/lexer"
local quote = use "import/quote"
local value = {}

local limits = { bytes = 1 << 20, nesting = 16 }

function value.mark(line) return string.format("\1%d\2", line) end
function value.plain(text) return (string.gsub(text, "\1%d*\2", "")) end

function value.wrong(env, line, ...)
  fail(string.format("%s:%d: %s", quote.shown(env.file), line, string.format(...)))
end

-- Variables: { name = { text = } or { items = { text } } }. `args` are the positional ones, by number; `whole`:
-- these are all of them.
function value.new(file)
  return { file = file, at = {}, bytes = 0, nesting = 0, used = {}, args = {}, whole = false }
end

local function count(env, text, line)
  env.bytes = env.bytes + #text
  if env.bytes > limits.bytes then
    value.wrong(env, line, "its variables stand for more than %d bytes", limits.bytes)
  end
  return text
end

local function unknown(body)
  return string.find(body, "^[%w_]+$") and #body > 1 and "${" .. body .. "}"
    or string.find(body, "^[%d@*#?$!-]$") and "$" .. body or "${" .. body .. "}"
end

-- Whether a text has something in it that the script does not say.
function value.unresolved(text)
  return type(text) == "string" and (string.match(text, "%$%b{}") or string.match(text, "%$%b()")
    or string.match(text, "%$[%w_@*#?]+")) or nil
end

-- ---- arithmetic: whole numbers with + - * / % and brackets ----

local function number_of(env, name)
  local v = env.at[name]
  return v and v.text and math.tointeger(tonumber(value.plain(v.text)))
end

local sum

local function atom(env, s, at, depth)
  at = string.match(s, "^%s*()", at)
  if depth > limits.nesting then return nil end
  local c = string.sub(s, at, at)
  if c == "(" then
    local n, after = sum(env, s, at + 1, depth + 1)
    after = n and string.match(s, "^%s*%)()", after)
    return after and n, after
  end
  local digits, after = string.match(s, "^(%d+)()", at)
  if digits then return math.tointeger(tonumber(digits)), after end
  local name
  name, after = string.match(s, "^%$?{?([%a_][%w_]*)}?()", at)
  if name then return number_of(env, name), after end
end

local power
function power(env, s, at, depth)
  local n
  n, at = atom(env, s, at, depth)
  local after = n and string.match(s, "^%s*%*%*()", at)
  if not after then return n, at end
  local m
  m, at = power(env, s, after, depth + 1)
  if not m or m < 0 or m > 62 then return nil end
  return math.tointeger(n ^ m), at
end

local function product(env, s, at, depth)
  local n
  n, at = power(env, s, at, depth)
  while n do
    local op, after = string.match(s, "^%s*([*/%%])()", at)
    if not op then return n, at end
    local m
    m, at = power(env, s, after, depth)
    if not m or (op ~= "*" and (m <= 0 or n < 0)) then return nil end
    n = op == "*" and n * m or op == "/" and n // m or op == "%" and n % m
  end
end

function sum(env, s, at, depth)
  local n
  n, at = product(env, s, at, depth)
  while n do
    local op, after = string.match(s, "^%s*([+-])()", at)
    if not op then return n, at end
    local m
    m, at = product(env, s, after, depth)
    if not m then return nil end
    n = op == "+" and n + m or n - m
  end
end

-- A sum, or one that is shifted.
local function shifted(env, body)
  local n, at = sum(env, body, 1, 0)
  local op, after = string.match(body, "^%s*([<>][<>])()", at or 1)
  if not n or (op ~= "<<" and op ~= ">>") then return n, at end
  local by
  by, at = sum(env, body, after, 0)
  if not by or by < 0 or by > 62 then return nil end
  return op == "<<" and n << by or n >> by, at
end

local function arithmetic(env, body)
  local n, at = shifted(env, body)
  if n and string.find(body, "^%s*$", at) then return tostring(n) end
  return "$((" .. body .. "))"
end

local ORDER = { ["=="] = function(a, b) return a == b end, ["!="] = function(a, b) return a ~= b end,
                ["<="] = function(a, b) return a <= b end, [">="] = function(a, b) return a >= b end,
                ["<"] = function(a, b) return a < b end, [">"] = function(a, b) return a > b end }

-- What (( body )) does: sets a variable, or tests. Whether it holds; nil: the script does not say.
function value.compute(env, body, line)
  local name, op, rest = string.match(body, "^%s*([%a_][%w_]*)%s*([-+*/]?)=([^=].*)$")
  if name then
    local text = arithmetic(env, op == "" and rest or name .. op .. "(" .. rest .. ")")
    env.at[name] = { text = text, line = line }
    local n = tonumber(text)
    return n and n ~= 0
  end
  local a, at = shifted(env, body)
  local sign, after = string.match(body, "^%s*([=!<>]=?)()", at or 1)
  if not a or not sign then return a and string.find(body, "^%s*$", at) and a ~= 0 or nil end
  local b
  b, at = sum(env, body, after, 0)
  if not b or not ORDER[sign] or not string.find(body, "^%s*$", at) then return nil end
  return ORDER[sign](a, b)
end

-- ---- words ----

-- A pattern of the shell with * and ? as one of Lua's.
local function pattern_of(glob)
  local plain = string.gsub(glob, "[%^%$%(%)%%%.%+%-%[%]]", "%%%0")
  return (string.gsub(string.gsub(plain, "%*", ".*"), "%?", "."))
end

-- ${X#a*}, ${X##a*}, ${X%.b}, ${X%%.b}: the text without its begin or end, the shortest or the longest one.
local function trimmed(text, op, glob)
  local pattern, front = pattern_of(glob), string.sub(op, 1, 1) == "#"
  local from, to, by = 0, #text, 1
  if #op == 2 then from, to, by = to, from, -1 end
  for n = from, to, by do
    local piece = front and string.sub(text, 1, n) or string.sub(text, #text - n + 1)
    if string.find(piece, "^" .. pattern .. "$") then
      return front and string.sub(text, n + 1) or string.sub(text, 1, #text - n)
    end
  end
  return text
end

-- What ${X<rest>} makes of a text: another case, without a begin or an end, with another piece.
local function changed(text, rest)
  text = value.plain(text)
  if rest == ",," then return string.lower(text) end
  if rest == "^^" then return string.upper(text) end
  local op, glob = string.match(rest, "^(##?)(.*)$")
  if not op then op, glob = string.match(rest, "^(%%%%?)(.*)$") end
  if op and #text < 1000 and #glob < 100 and not string.find(glob, "[$`]") then return trimmed(text, op, glob) end
  local all, old, new = string.match(rest, "^/(/?)([%w_.,: -]+)/([%w_.,:/ -]*)$")
  if not old then return nil end
  old, new = string.gsub(old, "[%.%-]", "%%%0"), string.gsub(new, "%%", "%%%%")
  return (string.gsub(text, old, new, all == "" and 1 or nil))
end

-- The text behind ":-", of which quotes are taken away and variables replaced.
local function default(env, text, line)
  env.nesting = env.nesting + 1
  if env.nesting > limits.nesting then value.wrong(env, line, "is nested too deeply") end
  local words = {}
  for _, token in ipairs(lexer(text, env.file)) do
    if token.kind == "word" then
      words[#words + 1] = value.plain(value.text(env, token))
    elseif token.kind == "op" then
      words[#words + 1] = token.op
    end
  end
  env.nesting = env.nesting - 1
  return table.concat(words, " ")
end

-- "@", "*" and "#": all arguments of the script or function; nil: they are not known.
local function all_arguments(env, body)
  if not env.whole then return nil end
  if body == "#" then return tostring(#env.args) end
  local list = {}
  for i, text in ipairs(env.args) do list[i] = text end
  return list
end

-- A variable by its name or number; nil: the script does not set it.
local function lookup(env, name)
  local n = tonumber(name)
  if not n then return env.at[name] end
  local text = n > 0 and env.args[n]
  return text and { text = text } or n > 0 and env.whole and { text = "" } or nil
end

-- What ${body} stands for: a text, or a list of texts. Nil: the script does not say.
local variable
function variable(env, body, line)
  if body == "@" or body == "*" or body == "#" then return all_arguments(env, body) end
  local name, rest = string.match(body, "^([%a_][%w_]*)(.*)$")
  if not name then
    name, rest = string.match(body, "^(%d+)(.*)$")
    if not name then return nil end
  end
  local v = lookup(env, name)
  env.used[name] = true
  if string.find(rest, "^%[[@*]%]$") then return v and (v.items or { v.text }) end
  local key = v and v.map and string.match(rest, "^%[(.+)%]$")
  if key then
    key = string.match(key, "^%$") and variable(env, string.match(key, "^%${?([%a_][%w_]*)}?$") or "", line) or key
    return v.map[value.plain(string.gsub(key, "[\"']", ""))]
  end
  local index = string.match(rest, "^%[(%d+)%]$")
  if index then return v and v.items and v.items[tonumber(index) + 1] end
  local text = v and (v.text or v.items[1] or "")
  if rest == "" then return text end
  local op, word = string.match(rest, "^:?([-=+?])(.*)$")
  if not op then return text and not value.unresolved(text) and changed(text, rest) or nil end
  local empty = string.sub(rest, 1, 1) == ":" and text ~= nil and value.plain(text) == ""
  local there = text ~= nil and not empty
  if op == "?" then return text end
  if op == "+" then return there and default(env, word, line) or "" end
  if there then return text end
  text = default(env, word, line)
  if op == "=" then env.at[name] = { text = text } end
  return text
end

local function expanded(env, part)
  local body, line = part[2], part.line or 0
  if part.form == "arithmetic" then return arithmetic(env, body) end
  -- `# a comment` between continued lines is nothing.
  if part.form == "command" and string.find(body, "^%s*#[^\n]*$") then return "" end
  if part.form == "command" then return "$(" .. (string.gsub(body, "\n", " ")) .. ")", true end
  local found = variable(env, body, line)
  if found == nil then return unknown(body), true end
  return found
end

-- A word as one text, with marks: what an assignment takes.
function value.text(env, word, from)
  local out = {}
  for _, part in ipairs(word.parts) do
    if part[1] == "text" then
      out[#out + 1] = part[2]
    elseif part[1] == "expand" then
      local found = expanded(env, part)
      if type(found) == "table" then found = table.concat(found, " ") end
      out[#out + 1] = count(env, found, word.line) .. value.mark(part.line or word.line)
    end
  end
  local text = table.concat(out)
  return from and string.sub(text, from) or text
end

-- The blank-separated words of a text with marks, as { text =, line = }.
function value.split(text, line)
  local words, at = {}, 1
  local current
  while at <= #text do
    local number, after = string.match(text, "^\1(%d+)\2()", at)
    local blank = string.match(text, "^%s+()", at)
    if number then
      line, at = tonumber(number), after
    elseif blank then
      current, at = nil, blank
    else
      -- What has no value here, "$(a command)", stays one piece.
      local run, stop = string.match(text, "^(%$%b())()", at)
      if not run then run, stop = string.match(text, "^(%$?[^%s\1$]*)()", at) end
      at = stop
      if not current then
        current = { line = line }
        words[#words + 1] = current
      end
      current[#current + 1] = run
    end
  end
  for _, word in ipairs(words) do word.text = value.plain(table.concat(word)) end
  return words
end

-- The words that a word stands for, each with `text`, and `marked`, the same with marks: what is not
-- quoted is cut at blanks, and "${A[@]}" is as many as the array has.
function value.words(env, word)
  local out, current = {}, nil
  local function add(text, line)
    if not current then
      current = { line = line }
      out[#out + 1] = current
    end
    current[#current + 1] = text
  end
  local function add_many(list)
    for i, one in ipairs(list) do
      if i > 1 then current = nil end
      add(one.text, one.line)
    end
  end
  local function add_found(found, part, literal)
    local line = part.line or word.line
    if type(found) == "table" then
      local all = {}
      for _, item in ipairs(found) do
        count(env, item, line)
        local split = part[3] and { { text = item, line = tonumber(string.match(item, "^\1(%d+)\2")) or line } }
          or value.split(item, line)
        table.move(split, 1, #split, #all + 1, all)
      end
      add_many(all)
    elseif part[3] or literal then
      add(count(env, found, line), line)
    else
      local text = value.plain(found)
      if string.find(text, "^%s") then current = nil end
      add_many(value.split(count(env, found, line), line))
      if string.find(text, "%s$") then current = nil end
    end
  end
  for _, part in ipairs(word.parts) do
    if part[1] == "text" then
      add(part[2], word.line)
    elseif part[1] == "quote" then
      -- "${A[@]}" of an empty array is no word; "" is one.
      local next_part = word.parts[2]
      if not (#word.parts == 2 and next_part[1] == "expand") then add("", word.line) end
    else
      local found, literal = expanded(env, part)
      add_found(found, part, literal)
      if current then current[#current + 1] = value.mark(part.line or word.line) end
    end
  end
  for _, one in ipairs(out) do
    one.marked = table.concat(one)
    one.text = value.plain(one.marked)
  end
  return out
end

return value
