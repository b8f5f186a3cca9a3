-- lexer.lua - the text of a shell script as tokens: words with their quotes taken apart, and what
-- stands between them. Nothing is run. A token is { kind =, line = }: "word" with `parts`, a list
-- of { "text", s, quoted } and { "expand", s, quoted } (what stands behind a $); "array" with `items`, the
-- words between brackets behind NAME=; "op" with `op`; "newline"; or
-- "arithmetic" with `body`, what stands between (( and )).
local quote = use "import/quote"

-- Of scripts and what they make of their variables: a few thousand times what real ones have.
local limits = { nesting = 32 }

local function wrong(state, line, ...)
  fail(string.format("%s:%d: %s", quote.shown(state.file), line, string.format(...)))
end

-- Where blanks from `at` on end; a \ at the end of the text may have led beyond it.
local function blank_end(text, at) return string.match(text, "^[ \t\r]*()", math.min(at, #text + 1)) end

local function count_lines(text)
  local _, n = string.gsub(text, "\n", "")
  return n
end

-- The end of a quoted text that begins at `from`, or nil: between " a \ keeps what follows.
local function quote_end(text, from, c)
  local at = from + 1
  while true do
    at = string.find(text, c == '"' and '[\\"]' or c, at)
    if not at or string.sub(text, at, at) == c then return at end
    at = at + 2
  end
end

-- The end of what an opening bracket at `from` begins, by counting brackets outside of quotes.
local function closing(state, from, open, close)
  local depth, at, text = 0, from, state.text
  local stop = "[\\'\"%" .. open .. "%" .. close .. "]"
  while true do
    at = string.find(text, stop, at)
    if not at then wrong(state, state.line, "a %s is not closed", quote.shown("$" .. open)) end
    local c = string.sub(text, at, at)
    if c == "\\" then
      at = at + 1
    elseif c == "'" or c == '"' then
      at = quote_end(text, at, c) or at
    else
      depth = depth + (c == open and 1 or -1)
      if depth == 0 then return at end
      if depth > limits.nesting then wrong(state, state.line, "is nested too deeply") end
    end
    at = at + 1
  end
end

-- What stands behind "$" at `at`: its text without the outer braces, its form, and where it ends.
-- Nil if the $ is only a $.
local function expansion(state, at)
  local text = state.text
  local c = string.sub(text, at + 1, at + 1)
  if c == "{" then
    local stop = closing(state, at + 1, "{", "}")
    return "name", string.sub(text, at + 2, stop - 1), stop
  elseif string.sub(text, at + 1, at + 2) == "((" then
    local stop = closing(state, at + 1, "(", ")")
    return "arithmetic", string.sub(text, at + 3, stop - 2), stop
  elseif c == "(" then
    local stop = closing(state, at + 1, "(", ")")
    return "command", string.sub(text, at + 2, stop - 1), stop
  end
  local name = string.match(text, "^[%a_][%w_]*", at + 1) or string.match(text, "^[%d@*#?$!-]", at + 1)
  if name then return "name", name, at + #name end
end

local function add_text(parts, s, quoted)
  if s ~= "" then parts[#parts + 1] = { "text", s, quoted } end
end

local function add_expansion(state, parts, at, quoted)
  local form, body, stop = expansion(state, at)
  if not form then
    add_text(parts, "$")
    return at + 1
  end
  parts[#parts + 1] = { "expand", body, quoted, form = form, line = state.line }
  state.line = state.line + count_lines(string.sub(state.text, at, stop))
  return stop + 1
end

local function backticks(state, parts, at)
  local stop = string.find(state.text, "`", at + 1, true)
  if not stop then wrong(state, state.line, "a ` is not closed") end
  parts[#parts + 1] = { "expand", string.sub(state.text, at + 1, stop - 1), true, form = "command",
                        line = state.line }
  state.line = state.line + count_lines(string.sub(state.text, at, stop))
  return stop + 1
end

-- "\1 12 \2" in a text says that what follows is of line 12: a word that comes out of a long string
-- keeps its own line. No file has these bytes.
local function mark(line) return string.format("\1%d\2", line) end

local function double_quoted(state, parts, at)
  local begin, text = state.line, state.text
  parts[#parts + 1] = { "quote" }
  at = at + 1
  while true do
    local stop = string.find(text, '[\\"$`\n]', at)
    if not stop then wrong(state, begin, "a \" is not closed") end
    add_text(parts, string.sub(text, at, stop - 1), true)
    local c = string.sub(text, stop, stop)
    local after = string.sub(text, stop + 1, stop + 1)
    if c == '"' then
      return stop + 1
    elseif c == "\n" then
      state.line = state.line + 1
      add_text(parts, "\n" .. mark(state.line), true)
      at = stop + 1
    elseif c == "\\" and string.find(text, "^\r?\n", stop + 1) then
      state.line = state.line + 1
      add_text(parts, mark(state.line), true)
      at = string.find(text, "\n", stop, true) + 1
    elseif c == "\\" then
      add_text(parts, string.find(after, '[\\"$`]') and after or "\\" .. after, true)
      at = stop + 2
    elseif c == "$" then
      at = add_expansion(state, parts, stop, true)
    else
      at = backticks(state, parts, stop)
    end
  end
end

local function single_quoted(state, parts, at)
  local stop = string.find(state.text, "'", at + 1, true)
  if not stop then wrong(state, state.line, "a ' is not closed") end
  local body = string.sub(state.text, at + 1, stop - 1)
  parts[#parts + 1] = { "quote" }
  body = string.gsub(body, "\n", function()
    state.line = state.line + 1
    return "\n" .. mark(state.line)
  end)
  add_text(parts, body, true)
  return stop + 1
end

local read_word

-- The words of NAME=( ... ); `at` is behind the bracket.
local function array(state, at)
  local items, begin = {}, state.line
  while true do
    at = blank_end(state.text, at)
    local c = string.sub(state.text, at, at)
    if c == "" then wrong(state, begin, "a ( is not closed") end
    if c == ")" then return items, at + 1 end
    if c == "\n" then
      state.line, at = state.line + 1, at + 1
    elseif c == "#" then
      at = string.find(state.text, "\n", at, true) or #state.text + 1
    elseif string.find(state.text, "^\\\r?\n", at) then
      state.line, at = state.line + 1, string.find(state.text, "\n", at, true) + 1
    elseif string.find(c, "[;&|<>(]") then
      wrong(state, state.line, "%s has no meaning between ( and )", quote.shown(c))
    else
      items[#items + 1], at = read_word(state, at)
    end
  end
end

-- The word that begins at `at`, and where it ends.
function read_word(state, at)
  local parts, line, text = {}, state.line, state.text
  while true do
    local plain, stop = string.match(text, "^([^%s\\'\"$`;&|<>()]+)()", at)
    if plain then
      add_text(parts, plain)
      at = stop
    end
    local c = string.sub(text, at, at)
    if c == "'" then
      at = single_quoted(state, parts, at)
    elseif c == '"' then
      at = double_quoted(state, parts, at)
    elseif c == "`" then
      at = backticks(state, parts, at)
    elseif c == "$" and string.find(text, "^['\"]", at + 1) then
      at = at + 1 -- $'...': its escapes are not read
    elseif c == "$" then
      at = add_expansion(state, parts, at, false)
    elseif string.find(text, "^\\\r?\n", at) then
      state.line, at = state.line + 1, string.find(text, "\n", at, true) + 1
      if not string.find(text, "^[^%s;&|<>()]", at) then break end
    elseif c == "\\" then
      add_text(parts, string.sub(text, at + 1, at + 1), true)
      at = at + 2
    else
      break
    end
  end
  return { kind = "word", line = line, parts = parts }, at
end

-- NAME= or NAME+= with nothing behind it: an array may follow.
local function before_array(word)
  local part = word.parts[1]
  return #word.parts == 1 and part[1] == "text" and string.find(part[2], "^[%a_][%w_]*%+?=$") ~= nil
end

-- A place that its reader is to fill, NAME=<path of the data>, is a text.
local function angle_text(state, word, at)
  local text = before_array(word) and string.match(state.text, "^<%a[^<>\n]*>%f[%s\0]", at)
  if not text then return at end
  add_text(word.parts, text)
  return at + #text
end

local function is_number(word)
  local part = word.parts[1]
  return #word.parts == 1 and part[1] == "text" and string.find(part[2], "^%d+$") ~= nil
end

-- The text of <<EOF begins in the next line: it is data of another program, and the token's `body`, a list of lines.
local function read_here(state, token, at)
  local lines, open = {}, state.line
  while at <= #state.text do
    local line, after = string.match(state.text, "^([^\n]*)\n?()", at)
    state.line, at = state.line + 1, after
    if token.op == "<<-" then line = string.gsub(line, "^\t+", "") end
    if string.gsub(line, "\r$", "") == token.ending then
      token.body = lines
      return at
    end
    lines[#lines + 1] = line
  end
  wrong(state, open, "<<%s has no end", quote.shown(token.ending))
end

-- What ends the text of <<"EOF", and that it is quoted.
local function read_ending(state, token, at)
  at = blank_end(state.text, at)
  local _, after = read_word(state, at)
  local raw = string.sub(state.text, at, after - 1)
  token.ending = string.gsub(raw, "['\"\\]", "")
  token.literal, token.body = token.ending ~= raw, {}
  if raw == "" then wrong(state, token.line, "<< has no word behind it") end
  state.heres[#state.heres + 1] = token
  return after
end

local function operator(state, tokens, at)
  local text = state.text
  local op = string.match(text, "^;;?&?", at) or string.match(text, "^&&", at) or string.match(text, "^&>>?", at)
    or string.match(text, "^||", at) or string.match(text, "^|&", at) or string.match(text, "^<<<", at)
    or string.match(text, "^<<%-?", at) or string.match(text, "^[<>]&", at) or string.match(text, "^>[>|]", at)
    or string.sub(text, at, at)
  local token = { kind = "op", op = op, line = state.line }
  tokens[#tokens + 1] = token
  at = at + #op
  return (op == "<<" or op == "<<-") and read_ending(state, token, at) or at
end

-- Whether a command can begin behind these tokens: then (( is arithmetic.
local BEFORE = { ["if"] = true, ["elif"] = true, ["while"] = true, ["until"] = true, ["then"] = true, ["else"] = true,
                 ["do"] = true, ["!"] = true, ["for"] = true }
local function begins(tokens)
  local last = tokens[#tokens]
  if not last or last.kind == "newline" or last.kind == "op" then return true end
  local part = last.kind == "word" and #last.parts == 1 and last.parts[1]
  return part and part[1] == "text" and BEFORE[part[2]] or false
end

-- Tokens of a text, with a newline at the end.
return function(text, file)
  local state = { text = text, file = file, line = 1, heres = {} }
  local tokens, at = {}, 1
  while true do
    at = blank_end(text, at)
    local c = string.sub(text, at, at)
    if c == "" then break end
    if c == "\n" then
      tokens[#tokens + 1] = { kind = "newline", line = state.line }
      state.line, at = state.line + 1, at + 1
      for _, here in ipairs(state.heres) do at = read_here(state, here, at) end
      state.heres = {}
    elseif c == "#" then
      at = string.find(text, "\n", at, true) or #text + 1
    elseif string.find(text, "^\\\r?\n", at) then
      state.line, at = state.line + 1, string.find(text, "\n", at, true) + 1
    elseif string.find(text, "^%(%(", at) and begins(tokens) then
      local stop = closing(state, at, "(", ")")
      tokens[#tokens + 1] = { kind = "arithmetic", body = string.sub(text, at + 2, stop - 2), line = state.line }
      state.line = state.line + count_lines(string.sub(text, at, stop))
      at = stop + 1
    elseif string.find(c, "[;&|<>()]") then
      at = operator(state, tokens, at)
    else
      local word
      word, at = read_word(state, at)
      at = angle_text(state, word, at)
      if before_array(word) and string.sub(text, at, at) == "(" then
        word.kind = "array"
        word.items, at = array(state, at + 1)
      end
      -- The 2 of 2>file is no word.
      if not (is_number(word) and string.find(text, "^[<>]", at)) then
        tokens[#tokens + 1] = word
      end
    end
  end
  for _, here in ipairs(state.heres) do read_here(state, here, #text + 1) end
  tokens[#tokens + 1] = { kind = "newline", line = state.line }
  return tokens
end
