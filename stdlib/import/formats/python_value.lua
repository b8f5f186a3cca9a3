-- python_value.lua - the values of a Python file: expressions of the tokens of a line, from self.i on, as nodes of
-- a tree. Methods of python.lua, whose reader has the tokens, the names that are known and the limits.
local scalar = use "import/scalar"

local Value = {}

function Value:bad(line, text, ...)
  fail(string.format("%s:%d: " .. text, self.name, line, ...))
end

function Value:node(kind, line)
  self.left = self.left - 1
  if self.left < 0 then self:bad(line, "has more than %d values", self.limits.nodes) end
  local node = { kind = kind, line = line, size = 1 }
  if kind == "map" then node.keys, node.at = {}, {} end
  if kind == "list" then node.items = {} end
  return node
end

function Value:scalar(value, line)
  local node = self:node("scalar", line)
  node.value = value
  return node
end

function Value:put(map, key, node)
  if not map.at[key] then map.keys[#map.keys + 1] = key end
  map.at[key] = node
  map.size = map.size + node.size
end

function Value:peek(value)
  local token = self.tokens[self.i]
  return token and token.kind == "op" and token.value == value
end

function Value:take(value)
  if not self:peek(value) then return false end
  self.i = self.i + 1
  return true
end

local CLOSES = { [")"] = true, ["]"] = true, ["}"] = true }
local OPENS = { ["("] = true, ["["] = true, ["{"] = true }

-- The text from token `first` to the next comma, or to the end of what it is in.
function Value:code(first, colon)
  local depth, i = 0, first
  while self.tokens[i] do
    local token = self.tokens[i]
    local op = token.kind == "op" and token.value
    if depth == 0 and (op == "," or CLOSES[op] or op == ":" and colon) then break end
    depth = depth + (OPENS[op] and 1 or CLOSES[op] and -1 or 0)
    i = i + 1
  end
  self.i = i
  local from, last = self.tokens[first], self.tokens[math.max(i - 1, first)]
  if i == first then
    self:bad((from or self.tokens[#self.tokens]).line, "a value is missing")
  end
  local node = self:scalar(string.sub(self.text, from.from, last.to), from.line)
  node.code = true
  return node
end

local WORDS = { True = true, False = false, None = scalar.null }

-- a.b.c as a text, and whether it is one name alone.
function Value:dotted()
  local name = self.tokens[self.i].value
  self.i = self.i + 1
  local alone = true
  while self:peek "." and self.tokens[self.i + 1] and self.tokens[self.i + 1].kind == "name" do
    name, alone = name .. "." .. self.tokens[self.i + 1].value, false
    self.i = self.i + 2
  end
  return name, alone
end

-- The arguments of a call, behind its "(".
function Value:call(name, line, depth)
  local node = self:node("map", line)
  self:put(node, "class", self:scalar(string.gsub(name, "%.Config$", ""), line))
  local n = 0
  while not self:take ")" do
    local token, after = self.tokens[self.i], self.tokens[self.i + 1]
    local key = tostring(n)
    if token and token.kind == "name" and after and after.kind == "op" and after.value == "=" then
      key, self.i = token.value, self.i + 2
    else
      n = n + 1
    end
    if node.at[key] then self:bad(token.line, "the argument %s is given twice", key) end
    local value = self:value(depth + 1)
    value.key_line = value.key_line or token.line
    self:put(node, key, value)
    if not self:take "," and not self:peek ")" then
      self:bad(line, "the arguments of %s are no Python", name)
    end
  end
  return node
end

function Value:list(close, line, depth)
  local node = self:node("list", line)
  while not self:take(close) do
    local item = self:value(depth + 1)
    node.items[#node.items + 1], node.size = item, node.size + item.size
    if not self:take "," and not self:peek(close) then self:bad(line, "a list is no Python") end
  end
  return node
end

function Value:dictionary(line, depth)
  local node = self:node("map", line)
  while not self:take "}" do
    local from = self.i
    local key = self:value(depth + 1, true)
    local name = key.kind == "scalar" and tostring(key.value) or "?"
    if self:take ":" then
      if node.at[name] and not key.code then
        self:bad(key.line, "\"%s\" is given twice, here and in line %d", name,
                 node.at[name].key_line or node.at[name].line)
      end
      local value = self:value(depth + 1)
      value.key_line = value.key_line or key.line
      self:put(node, name, value)
    else
      self:put(node, "code", self:code(from))
    end
    if not self:take "," and not self:peek "}" then self:bad(line, "a dictionary is no Python") end
  end
  return node
end

local function number_of(text)
  local plain = string.gsub(text, "_", "")
  local base = string.match(plain, "^0([xXoObB])")
  if base then
    return tonumber(string.sub(plain, 3), ({ x = 16, o = 8, b = 2 })[string.lower(base)])
  end
  return tonumber(plain)
end

function Value:texts()
  local parts, line = {}, self.tokens[self.i].line
  while self.tokens[self.i] and self.tokens[self.i].kind == "text" do
    parts[#parts + 1] = self.tokens[self.i].value
    self.i = self.i + 1
  end
  return self:scalar(table.concat(parts), line)
end

-- A name: a word of the language, what it was given, or its text.
function Value:named(depth)
  local first, line = self.i, self.tokens[self.i].line
  local name, alone = self:dotted()
  if self:take "(" then return self:call(name, line, depth) end
  if alone and WORDS[name] ~= nil then return self:scalar(WORDS[name], line) end
  local known = alone and self.names[name]
  if known then
    self.left = self.left - known.size
    if self.left < 0 then self:bad(line, "has more than %d values, names counted", self.limits.nodes) end
    return known
  end
  if self:peek "[" then return self:code(first) end
  local node = self:scalar(name, line)
  node.code = true
  return node
end

-- Nil: no literal begins here.
function Value:atom(depth)
  local token = self.tokens[self.i]
  if not token then return nil end
  if depth > self.limits.depth then
    self:bad(token.line, "is nested more than %d deep", self.limits.depth)
  end
  if token.kind == "text" then return self:texts() end
  if token.kind == "number" then
    local n = number_of(token.value)
    if not n then return nil end
    self.i = self.i + 1
    return self:scalar(n, token.line)
  end
  if token.kind == "name" then return self:named(depth) end
  if self:take "{" then return self:dictionary(token.line, depth) end
  if self:take "[" then return self:list("]", token.line, depth) end
  if not self:take "(" then return nil end
  local node = self:list(")", token.line, depth)
  -- (x) is x, (x,) a list.
  local before = self.tokens[self.i - 2]
  if #node.items == 1 and before.value ~= "," then return node.items[1] end
  return node
end

-- A number to a power, which binds tighter than the minus before it and looser than the one behind: -2 ** -2.
function Value:power(depth)
  local base = self:atom(depth)
  if not base or type(base.value) ~= "number" or not self:peek "**" then return base end
  local line = self.tokens[self.i].line
  self.i = self.i + 1
  local node = self:signed(depth + 1)
  if not node or type(node.value) ~= "number" then return nil end
  local a, b = base.value, node.value
  local n = a ^ b
  if n ~= n or math.abs(n) == math.huge then return nil end
  local whole = math.type(a) == "integer" and math.type(b) == "integer" and b >= 0
  return self:scalar(whole and math.tointeger(n) or n, line)
end

function Value:signed(depth)
  local token = self.tokens[self.i]
  if not self:peek "-" then return self:power(depth) end
  self.i = self.i + 1
  local node = self:power(depth)
  if not node or type(node.value) ~= "number" then return nil end
  return self:scalar(-node.value, token.line)
end

local ARITHMETIC = {
  ["*"] = function(a, b) return a * b end, ["+"] = function(a, b) return a + b end,
  ["-"] = function(a, b) return a - b end, ["/"] = function(a, b) return b ~= 0 and a / b end,
  ["//"] = function(a, b) return b ~= 0 and a // b end,
}

-- A value: numbers may be products and sums, of two of them at a time.
function Value:value(depth, colon)
  local first = self.i
  local node = self:signed(depth)
  while node do
    local token = self.tokens[self.i]
    local op = token and token.kind == "op" and token.value
    if not token or op == "," or CLOSES[op] or op == ":" and colon then return node end
    local apply = ARITHMETIC[op]
    self.i = self.i + 1
    local right = apply and self:signed(depth)
    local n = right and type(node.value) == "number" and type(right.value) == "number"
      and math.abs(node.value) < 2^31 and math.abs(right.value) < 2^31
      and apply(node.value, right.value)
    -- Products go before sums: more than two numbers with both are left as a text.
    local mixed = node.sum and op ~= "+" and op ~= "-"
    node = n and not mixed and self:scalar(n, token.line) or nil
    if node then node.sum = op == "+" or op == "-" end
  end
  return self:code(first, colon)
end

return Value
