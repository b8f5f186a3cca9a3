-- toml.lua - TOML 1.0 as the tree of a settings file (bindings/import/settings.h): numbers and
-- booleans as values, dates as texts. What the format forbids is an error with its line.
local read_text = use "read_text"
local shown = use "shown"

local Reader = {}
Reader.__index = Reader

function Reader:bad(text, ...)
  fail(string.format("%s:%d: " .. text, self.name, self.line, ...))
end

-- A node of the tree, counted, `depth` levels below the root.
function Reader:node(kind, depth)
  self.left = self.left - 1
  if self.left < 0 then self:bad("has more than %d values", self.limits.nodes) end
  if depth > self.limits.depth then
    self:bad("is nested more than %d deep", self.limits.depth)
  end
  local node = { kind = kind, line = self.line, depth = depth }
  if kind == "map" then node.keys, node.at = {}, {} end
  if kind == "list" then node.items = {} end
  return node
end

-- What matches the pattern here, and goes past it; nil if nothing does.
function Reader:take(pattern)
  local from, to, found = string.find(self.text, "^" .. pattern, self.at)
  if not from then return nil end
  self.at = to + 1
  return found or string.sub(self.text, from, to)
end

function Reader:next() return string.sub(self.text, self.at, self.at) end
function Reader:blank() self:take "[ \t]*" end

function Reader:found()
  local c = self:next()
  if c == "" then return "the end of the file" end
  return c == "\n" and "the end of the line" or '"' .. shown(c) .. '"'
end

function Reader:comment()
  if not self:take "#" then return end
  self:take "[^\n%c\x7f]*"
  while self:take "\t[^\n%c\x7f]*" do end
  if not string.find(self.text, "^\r?\n", self.at) and self.at <= #self.text then
    self:bad("a comment has a control character")
  end
end

-- The end of a line, or of the file.
function Reader:newline()
  if self:take "\r?\n" then
    self.line = self.line + 1
    return true
  end
end

-- Blanks, comments and line ends.
function Reader:gap()
  repeat
    self:blank()
    self:comment()
  until not self:newline()
end

function Reader:end_line()
  self:blank()
  self:comment()
  if not self:newline() and self.at <= #self.text then
    self:bad("expected the end of the line, found %s", self:found())
  end
end

-- ---- texts ----

local ESCAPES = { b = "\b", t = "\t", n = "\n", f = "\f", r = "\r", ['"'] = '"', ["\\"] = "\\" }

function Reader:code_point(digits)
  local hex = self:take(string.rep("%x", digits))
  local n = hex and tonumber(hex, 16)
  if not n or n > 0x10ffff or n >= 0xd800 and n < 0xe000 then
    self:bad("\\%s takes %d hexadecimal digits of a character", digits == 4 and "u" or "U", digits)
  end
  return utf8.char(n)
end

function Reader:escape(many)
  local c = self:take "."
  if c == "u" then return self:code_point(4) end
  if c == "U" then return self:code_point(8) end
  if c and ESCAPES[c] then return ESCAPES[c] end
  self.at = self.at - (c and 1 or 0)
  if many and string.find(self.text, "^[ \t]*\r?\n", self.at) then
    repeat self:blank() until not self:newline()
    return ""
  end
  self:bad("\"\\%s\" is no escape of TOML", shown(self:next()))
end

-- A text in one line, behind its first quotation mark.
function Reader:line_text(mark)
  local parts, plain = {}, mark == '"' and "[^\"\\%c\x7f]+" or "[^'%c\x7f]+"
  while true do
    local part = self:take(plain) or self:take "\t"
    if part then
      parts[#parts + 1] = part
    elseif self:take(mark) then
      return table.concat(parts)
    elseif mark == '"' and self:take "\\" then
      parts[#parts + 1] = self:escape(false)
    elseif self.at > #self.text or string.find(self.text, "^\r?\n", self.at) then
      self:bad("a text is not closed: %s is missing", mark)
    else
      self:bad("a text has a control character: %s", self:found())
    end
  end
end

-- A text of several lines, behind its first three quotation marks.
function Reader:block_text(mark)
  local parts, plain = {}, mark == '"' and "[^\"\\%c\x7f]+" or "[^'%c\x7f]+"
  local first, three = self.line, string.rep(mark, 3)
  self:newline()
  while true do
    local part = self:take(plain) or self:take "\t"
    if part then
      parts[#parts + 1] = part
    elseif self:newline() then
      parts[#parts + 1] = "\n"
    elseif self:take(three) then
      for _ = 1, 2 do parts[#parts + 1] = self:take(mark) end
      return table.concat(parts)
    elseif self:take(mark) then
      parts[#parts + 1] = mark
    elseif mark == '"' and self:take "\\" then
      parts[#parts + 1] = self:escape(true)
    elseif self.at > #self.text then
      self.line = first
      self:bad("a text of several lines is not closed: %s is missing", three)
    else
      self:bad("a text has a control character: %s", self:found())
    end
  end
end

function Reader:string()
  for _, mark in ipairs { '"', "'" } do
    if self:take(string.rep(mark, 3)) then return self:block_text(mark) end
    if self:take(mark) then return self:line_text(mark) end
  end
end

-- ---- other values ----

local DATES = {
  "%d%d%d%d%-%d%d%-%d%d[Tt ]%d%d:%d%d:%d%d%.?%d*[Zz]",
  "%d%d%d%d%-%d%d%-%d%d[Tt ]%d%d:%d%d:%d%d%.?%d*[+-]%d%d:%d%d",
  "%d%d%d%d%-%d%d%-%d%d[Tt ]%d%d:%d%d:%d%d%.?%d*", "%d%d%d%d%-%d%d%-%d%d",
  "%d%d:%d%d:%d%d%.?%d*",
}
local BASES = { ["0x"] = { 16, "^[%x_]+$" }, ["0o"] = { 8, "^[0-7_]+$" }, ["0b"] = { 2, "^[01_]+$" } }

-- Underscores stand between digits.
local function spaced(word)
  return not string.find(word, "^_") and not string.find(word, "_$")
    and not string.find(word, "_%X") and not string.find(word, "%X_")
end

local function integer_of(word)
  local base = BASES[string.sub(word, 1, 2)]
  if base then
    local digits = string.sub(word, 3)
    if not string.find(digits, base[2]) or not spaced(digits) then return nil end
    digits = string.gsub(string.gsub(digits, "_", ""), "^0+", "")
    if #digits * (base[1] == 16 and 4 or base[1] == 8 and 3 or 1) > 63 then return math.huge end
    return digits == "" and 0 or tonumber(digits, base[1])
  end
  local digits = string.match(word, "^[+-]?(%d[%d_]*)$")
  if not digits or not spaced(digits) or string.find(digits, "^0.") then return nil end
  local plain = string.gsub(string.gsub(word, "_", ""), "^%+", "")
  return math.tointeger(tonumber(plain)) or math.huge
end

local function float_of(word)
  local sign, name = string.match(word, "^([+-]?)(%l+)$")
  if name == "inf" then return sign == "-" and -math.huge or math.huge end
  if name == "nan" then return 0 / 0 end
  local whole, rest = string.match(word, "^[+-]?(%d[%d_]*)(.*)$")
  if not whole or not spaced(whole) or string.find(whole, "^0.") then return nil end
  local part, power = string.match(rest, "^%.(%d[%d_]*)(.*)$")
  power = power or rest
  if part and not spaced(part) then return nil end
  local exponent = string.match(power, "^[eE][+-]?(%d[%d_]*)$")
  if power ~= "" and (not exponent or not spaced(exponent)) then return nil end
  return tonumber((string.gsub(string.gsub(word, "_", ""), "^%+", "")))
end

function Reader:scalar()
  for _, form in ipairs(DATES) do
    local date = self:take(form)
    if date then return date end
  end
  local word = self:take "[%w_+%-.]+"
  if not word then self:bad("expected a value, found %s", self:found()) end
  if word == "true" or word == "false" then return word == "true" end
  local n = integer_of(word)
  if n == math.huge then self:bad("%s does not fit 64 bits", shown(word)) end
  n = n or float_of(word)
  if not n then
    self:bad("%s is no value: texts stand in quotation marks", shown(string.sub(word, 1, 40)))
  end
  return n
end

function Reader:list(depth)
  local node = self:node("list", depth)
  self:gap()
  while not self:take "%]" do
    node.items[#node.items + 1] = self:value(depth + 1)
    self:gap()
    if not self:take "," and self:next() ~= "]" then
      self:bad("a list has %s, where \",\" or \"]\" stands; it begins in line %d", self:found(), node.line)
    end
    self:gap()
  end
  return node
end

function Reader:inline_table(depth)
  local node = self:node("map", depth)
  self:blank()
  if not self:take "}" then
    repeat
      self:blank()
      self:pair(node)
      self:blank()
    until not self:take ","
    if not self:take "}" then
      self:bad("a table in one line has %s, where \",\" or \"}\" stands", self:found())
    end
  end
  self:close(node)
  return node
end

-- What is written between braces is complete: nothing is added to it, or to tables in it.
function Reader:close(node)
  node.closed = true
  for _, key in ipairs(node.keys) do
    if node.at[key].kind == "map" then self:close(node.at[key]) end
  end
end

function Reader:value(depth)
  if self:take "%[" then return self:list(depth) end
  if self:take "{" then return self:inline_table(depth) end
  local node = self:node("scalar", depth)
  node.value = self:string()
  if node.value == nil then node.value = self:scalar() end
  return node
end

-- ---- keys and tables ----

function Reader:key()
  local bare = self:take "[%w_-]+"
  if bare then return bare end
  for _, mark in ipairs { '"', "'" } do
    if self:take(mark) then return self:line_text(mark) end
  end
  self:bad("expected a key, found %s", self:found())
end

-- a.b."c d" as a list.
function Reader:path()
  local path = {}
  repeat
    self:blank()
    path[#path + 1] = self:key()
    self:blank()
  until not self:take "%."
  return path
end

function Reader:put(map, key, node, line)
  local before = map.at[key]
  if before then
    self.line = line or self.line
    self:bad("\"%s\" is given twice, here and in line %d", shown(key), before.key_line or before.line)
  end
  map.at[key], map.keys[#map.keys + 1] = node, key
  node.key_line = line or self.line
  return node
end

-- The table that `key` leads to from `map`, made if it is not there. `how`: by what tables in
-- between are made, "header" or "dots"; dots do not reach into a table that has a header.
function Reader:step(map, key, how)
  local node = map.at[key]
  if not node then
    node = self:put(map, key, self:node("map", map.depth + 1))
    node.made = how
    return node
  end
  if node.kind == "list" and node.tables and how == "header" then
    return node.items[#node.items]
  end
  if node.kind ~= "map" or node.closed or how == "dots" and node.made ~= "dots" then
    self:bad("\"%s\" is given twice, here and in line %d", shown(key), node.key_line or node.line)
  end
  return node
end

-- key = value
function Reader:pair(map)
  local path = self:path()
  if not self:take "=" then self:bad("expected \"=\" behind a key, found %s", self:found()) end
  self:blank()
  for i = 1, #path - 1 do map = self:step(map, path[i], "dots") end
  local line = self.line
  self:put(map, path[#path], self:value(map.depth + 1), line)
end

-- [a.b] and [[a.b]]. Returns the table that the lines below belong to.
function Reader:header()
  local many = self:take "%["
  local path, map = self:path(), self.root
  if not self:take(many and "%]%]" or "%]") then
    self:bad("a header has %s, where \"%s\" stands", self:found(), many and "]]" or "]")
  end
  for i = 1, #path - 1 do map = self:step(map, path[i], "header") end
  local key = path[#path]
  local node = map.at[key]
  if many then
    if not node then
      node = self:put(map, key, self:node("list", map.depth + 1))
      node.tables = true
    elseif not node.tables then
      self:put(map, key, node)
    end
    local item = self:node("map", node.depth + 1)
    item.made, node.items[#node.items + 1] = "table", item
    return item
  end
  if not node then
    node = self:put(map, key, self:node("map", map.depth + 1))
  elseif node.kind ~= "map" or node.made ~= "header" then
    self:put(map, key, node)
  end
  node.made = "table"
  return node
end

local function check_bytes(r)
  local ok, bad = utf8.len(r.text)
  if ok then return end
  for _ in string.gmatch(string.sub(r.text, 1, bad), "\n") do r.line = r.line + 1 end
  r:bad("is no UTF-8")
end

-- The tree of a file.
return function(path)
  local text, name, limits = read_text(path)
  local r = setmetatable({ text = text, name = name, limits = limits, left = limits.nodes,
                           at = 1, line = 1 }, Reader)
  check_bytes(r)
  r:take "\xef\xbb\xbf"
  r.root = r:node("map", 0)
  local map = r.root
  while true do
    r:gap()
    if r.at > #r.text then return r.root end
    if r:take "%[" then map = r:header() else r:pair(map) end
    r:end_line()
  end
end
