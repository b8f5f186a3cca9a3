-- value.lua - what the words of a shell script stand for: its own variables, as far as it sets
-- them itself. What it does not set stays as it is written, "${X}". Nothing is run.
--
-- Texts carry marks "\1 12 \2": what follows is of line 12. No file has these bytes.
local arithmetic = use "import/shell/arithmetic"
local braces = use "import/shell/braces"
local glob = use "import/shell/glob"
local lexer = use "import/shell/lexer"
local quote = use "import/quote"
local value = {}

-- `steps`: statements and words in all, a hundred times what real scripts have; 64 steps of a pattern are one.
local limits = { bytes = 1 << 20, nesting = 16, steps = 100000 }

function value.mark(line) return string.format("\1%d\2", line) end
function value.plain(text) return (string.gsub(text, "\1%d*\2", "")) end

function value.wrong(env, line, ...)
  fail(string.format("%s:%d: %s", quote.shown(env.file), line, string.format(...)))
end

-- Variables: { name = { text = } or { items = { text } } }, with `maybe` if what they hold rests on something that is not in
-- the file, such as that X is not set, of ${X:-2}; `relied` says that one of these was read. `args` are the positional
-- ones, by number; `whole`:
-- these are all of them.
function value.new(file, given)
  return { file = file, given = given, at = {}, bytes = 0, nesting = 0, used = {}, args = {}, whole = false, steps = 0 }
end

-- Counts work, which loops inside of loops could make endless.
function value.spend(env, steps, line)
  env.steps = env.steps + steps
  if env.steps > limits.steps then value.wrong(env, line or 1, "is too long to follow: its loops, or its patterns") end
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

-- ---- arithmetic ----

-- The text of ((...)) with what stands behind $ replaced; nil: the script does not say all of it.
local function replaced(env, body)
  if not string.find(body, "[$`\"']") then return body end
  if string.find(body, "[`']") then return nil end
  env.nesting = env.nesting + 1
  local word = env.nesting <= limits.nesting and lexer('"' .. string.gsub(body, '"', "") .. '"', env.file)[1]
  local text = word and word.kind == "word" and value.plain(value.text(env, word))
  env.nesting = env.nesting - 1
  return text and not value.unresolved(text) and text or nil
end

-- The number that an expression means; nil: the script does not say, and what it sets has no value.
function value.number(env, body, line)
  local function read(name)
    local v = env.at[name]
    env.used[name] = true
    env.relied = env.relied or v ~= nil and v.maybe
    value.spend(env, 1, line)
    local text = v and (v.text or v.items and v.items[1])
    text = text and value.plain(text)
    return text and not value.unresolved(text) and text or nil
  end
  local function write(name, n)
    if not env.given[name] then env.at[name] = { text = value.mark(line or 0) .. tostring(n), line = line } end
  end
  local text = replaced(env, body)
  local n = text and arithmetic.compute(text, read, write)
  if n then return n end
  for _, name in ipairs(arithmetic.sets(body)) do
    if not env.given[name] then env.at[name] = { text = "$((" .. body .. "))", line = line } end
  end
end

local function arithmetic_text(env, body, line)
  local n = value.number(env, body, line)
  return n and tostring(n) or "$((" .. body .. "))"
end

-- ---- words ----

-- What a word is as a pattern: pieces of glob.lua, and its text.
function value.pieces(env, word)
  local pieces, all = {}, {}
  for _, part in ipairs(word.parts) do
    local text = part[1] == "text" and part[2] or nil
    if part[1] == "expand" then text = value.text(env, { line = word.line, parts = { part } }) end
    if text then
      text = value.plain(text)
      pieces[#pieces + 1], all[#all + 1] = { text, part[3] }, text
    end
  end
  return pieces, table.concat(all)
end

-- A pattern that is small enough to try on a text; nil: it is not.
function value.pattern(env, pieces, text, line)
  local length = 0
  for _, piece in ipairs(pieces) do length = length + #piece[1] end
  if length > 1000 or #text > 10000 then return nil end
  value.spend(env, 1 + length * #text // 64, line)
  return glob.parse(pieces)
end

-- ${X#a*}, ${X##a*}, ${X%.b}, ${X%%.b}: the text without its begin or end, the shortest or the longest one.
local function trimmed(env, text, op, body, line)
  local tokens = lexer(body, env.file)
  if body == "" or #tokens ~= 2 or tokens[1].kind ~= "word" then return body == "" and text or nil end
  local pieces, whole = value.pieces(env, tokens[1])
  local pattern = not value.unresolved(whole) and value.pattern(env, pieces, text, line)
  if not pattern then return nil end
  local front = string.sub(op, 1, 1) == "#"
  if not front then pattern = glob.reversed(pattern) end
  local shortest, longest, unknown = glob.beginnings(pattern, front and text or string.reverse(text))
  if unknown then return nil end
  local n = #op == 2 and longest or #op == 1 and shortest or 0
  return front and string.sub(text, n + 1) or string.sub(text, 1, #text - n)
end

-- What ${X<rest>} makes of a text: another case, without a begin or an end, with another piece.
local function changed(env, text, rest, line)
  text = value.plain(text)
  if rest == ",," then return string.lower(text) end
  if rest == "^^" then return string.upper(text) end
  local op, body = string.match(rest, "^(##?)(.*)$")
  if not op then op, body = string.match(rest, "^(%%%%?)(.*)$") end
  if op then return trimmed(env, text, op, body, line) end
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
  local v = env.at[name]
  env.relied = env.relied or v ~= nil and v.maybe
  if not n then return v end
  local text = n > 0 and env.args[n]
  return text and { text = text } or n > 0 and env.whole and { text = "" } or nil
end

-- ${#X}, ${#A[@]}: how long. Nil: the script does not say.
local function length(env, name, all)
  local v = lookup(env, name)
  if v and all ~= "" then return tostring(#(v.items or { v.text })) end
  local text = v and value.plain(v.text or v.items[1] or "")
  return text and not value.unresolved(text) and not string.find(text, "[\x80-\xff]") and tostring(#text) or nil
end

-- What ${body} stands for: a text, or a list of texts. Nil: the script does not say.
local variable
function variable(env, body, line)
  if body == "@" or body == "*" or body == "#" then return all_arguments(env, body) end
  local long, all = string.match(body, "^#([%a_][%w_]*)(.*)$")
  if long and (all == "" or string.find(all, "^%[[@*]%]$")) then return length(env, long, all) end
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
  local index = v and v.items and string.match(rest, "^%[(.+)%]$")
  local n = index and value.number(env, index, line)
  if index then return n and v.items[n < 0 and #v.items + n + 1 or n + 1] end
  local text = v and (v.text or v.items[1] or "")
  if rest == "" then return text end
  local op, word = string.match(rest, "^:?([-=+?])(.*)$")
  if not op then return text and not value.unresolved(text) and changed(env, text, rest, line) or nil end
  local empty = string.sub(rest, 1, 1) == ":" and text ~= nil and value.plain(text) == ""
  local there = text ~= nil and not empty
  env.relied = env.relied or text == nil
  if op == "?" then return text end
  if op == "+" then return there and default(env, word, line) or "" end
  if there then return text end
  text = default(env, word, line)
  if op == "=" and not env.given[name] then env.at[name] = { text = text } end
  return text
end

local function expanded(env, part)
  local body, line = part[2], part.line or 0
  if part.form == "arithmetic" then return arithmetic_text(env, body, line) end
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

-- The words that a word without braces stands for.
local function words_of(env, word)
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

-- The words that a word stands for, each with `text`, and `marked`, the same with marks: {a,b} is two, what is not
-- quoted is cut at blanks, and "${A[@]}" is as many as the array has.
function value.words(env, word)
  local function many() value.wrong(env, word.line, "{...} stands for too many words") end
  local out, list = {}, braces.words(word, many)
  if #list > 1 then value.spend(env, #list, word.line) end
  for _, one in ipairs(list) do
    local more = words_of(env, one)
    table.move(more, 1, #more, #out + 1, out)
  end
  return out
end

return value
