-- python.lua - what a Python file says in literals, as the tree of a settings file. Nothing is run:
-- assignments to names, of modules and of classes, and functions that give an object, NAME(a, b = c),
-- whose values are literals, calls and other names of the same function. A call is a map with its
-- "class" and arguments; what is no literal is its text. A function that changes what another one
-- gives has that one as "base"; statements that are not read stand under "code".
local lex = use "import/formats/python_lexer"
local Value = use "import/formats/python_value"
local read_text = use "read_text"

local Reader = setmetatable({}, { __index = Value })
Reader.__index = Reader

local function op_at(tokens, i, value)
  return tokens[i] and tokens[i].kind == "op" and tokens[i].value == value
end

-- NAME or NAME.a.b before "=", and where the value begins; annotations are read past.
local function target_of(tokens)
  if not tokens[1] or tokens[1].kind ~= "name" then return nil end
  local path, i = { tokens[1].value }, 2
  while op_at(tokens, i, ".") and tokens[i + 1] and tokens[i + 1].kind == "name" do
    path[#path + 1] = tokens[i + 1].value
    i = i + 2
  end
  if op_at(tokens, i, ":") and #path == 1 then
    while tokens[i] and not op_at(tokens, i, "=") do i = i + 1 end
  end
  if op_at(tokens, i, "=") and tokens[i + 1] then return path, i + 1 end
end

-- The value of a statement from its token `at` on; what is behind it makes it a text.
function Reader:statement(tokens, at)
  self.tokens, self.i = tokens, at
  local node = self:value(1)
  if self.i <= #tokens then
    if self:peek "," then
      self.i = at
      local list = self:node("list", tokens[at].line)
      repeat
        local item = self:value(1)
        list.items[#list.items + 1], list.size = item, list.size + item.size
      until not self:take "," or self.i > #tokens
      return list
    end
    node = self:scalar(string.sub(self.text, tokens[at].from, tokens[#tokens].to), tokens[at].line)
    node.code = true
  end
  return node
end

-- What a function gives begins with what another one gives: NAME() alone.
local function as_base(node)
  local class = node.kind == "map" and #node.keys == 1 and node.at.class
  if not class or not string.find(class.value, "^[%l_][%w_]*$") then return node end
  return { kind = "map", line = node.line, size = 2, keys = { "base" }, at = { base = class } }
end

function Reader:unread(function_node, tokens)
  local code = function_node.at.code
  if not code then
    code = self:node("map", tokens.line)
    self:put(function_node, "code", code)
  end
  self:put(code, "line " .. tokens.line,
           self:scalar(string.sub(self.text, tokens[1].from, tokens[#tokens].to), tokens.line))
end

-- config.a.b = value, of a copy of what the name has.
function Reader:assign(map, path, from, node)
  for i = from, #path - 1 do
    local inner = map.at[path[i]]
    if not inner or inner.kind ~= "map" then
      inner = self:node("map", node.line)
      self:put(map, path[i], inner)
    end
    map = inner
  end
  node.key_line = node.key_line or node.line
  self:put(map, path[#path], node)
end

local SKIPS = { pass = true, assert = true, global = true, import = true, from = true }

-- A function: lines[i] is its head. Its result as a map, or nil, and where it ends.
function Reader:fun(lines, i)
  local head, last, result = lines[i], nil, nil
  local rest = self:node("map", head.line)
  self.names = {}
  i = i + 1
  while lines[i] and lines[i].indent > head.indent do
    local tokens = lines[i]
    last = last or tokens.indent
    local path, at = target_of(tokens)
    local word = tokens[1].kind == "name" and tokens[1].value
    if tokens.indent ~= last then
      self:unread(rest, tokens)
    elseif path and #path == 1 then
      self.names[path[1]] = as_base(self:statement(tokens, at))
    elseif path and self.names[path[1]] and self.names[path[1]].kind == "map" then
      self:assign(self.names[path[1]], path, 2, self:statement(tokens, at))
    elseif word == "return" and tokens[2] then
      result = as_base(self:statement(tokens, 2))
    elseif not SKIPS[word] and not (tokens[1].kind == "text" and #tokens == 1) then
      self:unread(rest, tokens)
    end
    i = i + 1
  end
  self.names = {}
  if not result or result.kind ~= "map" then return nil, i end
  if result.at.class then
    result.at.class = nil
    table.remove(result.keys, 1)
  end
  if rest.at.code then self:put(result, "code", rest.at.code) end
  return result, i
end

-- A class: its assignments.
function Reader:class(lines, i)
  local head, map = lines[i], self:node("map", lines[i].line)
  local inner = lines[i + 1] and lines[i + 1].indent
  i = i + 1
  while lines[i] and lines[i].indent > head.indent do
    local path, at = target_of(lines[i])
    if lines[i].indent == inner and path and #path == 1 then
      self:put(map, path[1], self:statement(lines[i], at))
    end
    i = i + 1
  end
  return map, i
end

return function(path)
  local text, name, limits = read_text(path)
  local r = setmetatable({ text = text, name = name, limits = limits, left = limits.nodes,
                           names = {} }, Reader)
  local lines, root, i = lex(text, name, 4 * limits.nodes), r:node("map", 1), 1
  while lines[i] do
    local tokens = lines[i]
    local word = tokens[1].kind == "name" and tokens[1].value
    local key = tokens[2] and tokens[2].kind == "name" and tokens[2].value
    local node
    if (word == "def" or word == "class") and key and tokens.indent == 0 then
      node, i = r[word == "def" and "fun" or "class"](r, lines, i)
    else
      local target, at = target_of(tokens)
      if target and #target == 1 and tokens.indent == 0 then
        key, node = target[1], r:statement(tokens, at)
      end
      i = i + 1
    end
    if node and node.kind ~= "scalar" then
      node.key_line = tokens.line
      r:put(root, key, node)
    end
  end
  return root
end
