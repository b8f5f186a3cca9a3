-- python_lexer.lua - the text of a Python file as its logical lines, { indent =, line =, tokens }.
-- A token is { kind = "name", "number", "text" or "op", value =, line =, from =, to = }.
local shown = use "shown"

local ESCAPES = { n = "\n", t = "\t", r = "\r", b = "\b", f = "\f", v = "\v", a = "\a",
                  ["0"] = "\0", ["\n"] = "" }
local OPENS = { ["("] = ")", ["["] = "]", ["{"] = "}" }

local Lexer = {}
Lexer.__index = Lexer

function Lexer:bad(line, text, ...)
  fail(string.format("%s:%d: " .. text, self.name, line, ...))
end

local function count_lines(text)
  local n = 0
  for _ in string.gmatch(text, "\n") do n = n + 1 end
  return n
end

local function unescaped(body)
  return (string.gsub(string.gsub(body, "\\(x%x%x)", function(hex)
    return string.char(tonumber(string.sub(hex, 2), 16))
  end), "\\(.)", function(c) return ESCAPES[c] or c == "\n" and "" or string.find(c, "[\\'\"]") and c or "\\" .. c end))
end

-- The end of a text whose first quotation marks end before `at`.
function Lexer:close_text(at, mark, long)
  while true do
    local stop = string.find(self.text, long and "[\\'\"]" or "[\\'\"\n]", at)
    if not stop then return nil end
    local c = string.sub(self.text, stop, stop)
    if c == "\\" then
      at = stop + 2
    elseif string.sub(self.text, stop, stop + #mark - 1) == mark then
      return stop
    elseif c == "\n" then
      return nil
    else
      at = stop + 1
    end
  end
end

function Lexer:take_text(prefix, at)
  local first = at + #prefix
  local quote = string.sub(self.text, first, first)
  local mark = string.sub(self.text, first, first + 2) == string.rep(quote, 3)
    and string.rep(quote, 3) or quote
  local from = first + #mark
  local stop = self:close_text(from, mark, #mark == 3)
  if not stop then self:bad(self.line, "a text is not closed: %s is missing", mark) end
  local body = string.sub(self.text, from, stop - 1)
  local plain = string.find(string.lower(prefix), "r") and body or unescaped(body)
  local made = string.find(string.lower(prefix), "f") ~= nil
  self:add(made and "code" or "text", plain, at, stop + #mark - 1)
  self.line = self.line + count_lines(body)
end

function Lexer:add(kind, value, from, to)
  self.left = self.left - 1
  if self.left < 0 then self:bad(self.line, "has more than %d words", self.most) end
  if not self.current then
    self.current = { indent = self.indent, line = self.line }
    self.lines[#self.lines + 1] = self.current
  end
  table.insert(self.current, { kind = kind, value = value, line = self.line, from = from, to = to })
  self.at = to + 1
end

-- Blanks at the begin of a line, comments, line ends. Returns whether something was there.
function Lexer:take_gap()
  local _, to = string.find(self.text, "^[ \t\r\f]+", self.at)
  if to then
    self.at = to + 1
    return true
  end
  _, to = string.find(self.text, "^#[^\n]*", self.at)
  if not to then _, to = string.find(self.text, "^\\\r?\n", self.at) end
  if to then
    if string.sub(self.text, to, to) == "\n" then self.line = self.line + 1 end
    self.at = to + 1
    return true
  end
  if string.sub(self.text, self.at, self.at) ~= "\n" then return false end
  self.at, self.line = self.at + 1, self.line + 1
  if #self.open == 0 then
    self.current = nil
    self.indent = #string.match(self.text, "^[ \t]*", self.at)
  end
  return true
end

function Lexer:take_bracket(c)
  if OPENS[c] then
    self.open[#self.open + 1] = { closes = OPENS[c], line = self.line }
  elseif c == ")" or c == "]" or c == "}" then
    local open = table.remove(self.open)
    if not open or open.closes ~= c then self:bad(self.line, "\"%s\" closes nothing", c) end
  end
end

function Lexer:take_token()
  local from, to = string.find(self.text, "^[%a_\x80-\xff][%w_\x80-\xff]*", self.at)
  if from then
    local word = string.sub(self.text, from, to)
    if #word <= 2 and string.find(word, "^[rRbBuUfF]+$") and string.find(self.text, "^['\"]", to + 1) then
      return self:take_text(word, from)
    end
    return self:add("name", word, from, to)
  end
  if string.find(self.text, "^['\"]", self.at) then return self:take_text("", self.at) end
  from, to = string.find(self.text, "^%.?%d[%w_.]*", self.at)
  if from and string.find(self.text, "^[eE][+-]%d", to) and not string.find(self.text, "^0[xX]", from) then
    to = select(2, string.find(self.text, "^[%d_]+", to + 2))
  end
  if from then return self:add("number", string.sub(self.text, from, to), from, to) end
  from, to = string.find(self.text, "^[*/<>=!-]?[*/=>]=?", self.at)
  if not from then from, to = self.at, self.at end
  local op = string.sub(self.text, from, to)
  if string.find(op, "[%c$?`\x7f]") then
    self:bad(self.line, "\"%s\" is no Python", shown(op))
  end
  self:take_bracket(op)
  self:add("op", op, from, to)
end

-- Of the text of a file, its name, and how many words it may have.
return function(text, name, most)
  local l = setmetatable({ text = text, name = name, at = 1, line = 1, indent = 0, lines = {},
                           open = {}, left = most, most = most }, Lexer)
  l.indent = #string.match(text, "^[ \t]*")
  while l.at <= #text do
    if not l:take_gap() then l:take_token() end
  end
  local open = l.open[#l.open]
  if open then l:bad(open.line, "what is opened here is not closed: \"%s\" is missing", open.closes) end
  return l.lines
end
