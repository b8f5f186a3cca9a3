-- faults.lua - all places of a C file where one small fault can be planted, of four kinds:
--
--   operator   + - * / % < <= == & | ++ += ... by its neighbour; ! and the sign are dropped
--   constant   a number by one that is 1 greater or less
--   condition  of if and while: negated, or true or false whatever it says
--   statement  an expression, an assignment, a return, break or continue is dropped
--
-- Preprocessor lines are left alone, as are the sizes of arrays in declarations (what is
-- longer by one is not wrong) and `while (true)`, which never ends. What does not compile is
-- found by compiling it.
local tokens = dofile "tests/mutate/tokens.lua"
local tree = dofile "tests/mutate/tree.lua"

local KINDS = { "operator", "constant", "condition", "statement" }

local function words(text)
  local set = {}
  for word in text:gmatch "%S+" do set[word] = true end
  return set
end

local INSTEAD = {}
for op, list in ([[
  + = -;   - = +;   * = +;   / = *;   % = *;   < = <= >;   > = >= <;   <= = < >=;   >= = > <=;
  == = !=;   != = ==;   && = ||;   || = &&;   & = |;   | = &;   ^ = |;   << = >>;   >> = <<;
  += = -=;   -= = +=;   *= = +=;   /= = *=;   %= = +=;   |= = &=;   &= = |=;   ^= = |=;
  <<= = >>=;   >>= = <<=;   ++ = --;   -- = ++;]]):gmatch "(%S+) = ([^;]+);" do
  INSTEAD[op] = {}
  for to in list:gmatch "%S+" do table.insert(INSTEAD[op], to) end
end
local EITHER = words "+ - * &" -- one operand or two
local TYPES = words [[ static const struct union enum typedef extern inline register volatile
  void char short int long float double unsigned signed _Bool bool ]]
local CONTROL = words "if else for while do switch case default goto"
local NOT_OPERANDS = words "return case sizeof else do"

-- ---- where a token stands ----

local function ends_operand(t)
  return t and (t.kind ~= "op" and not NOT_OPERANDS[t.text] or t.text == ")" or t.text == "]")
end

-- The formatter puts a blank after an operator of two operands, and none after one of one.
local function blank_after(text, t)
  return text:find("^%s", t.b + 1) ~= nil
end

local function closing(list, i) -- of the parenthesis i
  local depth = 0
  for k = i, #list do
    local t = list[k].text
    if t == "(" then depth = depth + 1 end
    if t == ")" then depth = depth - 1 end
    if depth == 0 then return k end
  end
end

-- char text[256]; not x->text[3] or a = text[3].
local function array_size(text, list, i)
  local open, name, before = list[i - 1], list[i - 2], list[i - 3]
  if not before or open.text ~= "[" or name.kind ~= "name" then return false end
  return before.kind == "name" and not NOT_OPERANDS[before.text] or
         before.text == "*" and not blank_after(text, before)
end

-- ---- the kinds ----

local function operator(text, list, i)
  local t, before = list[i], list[i - 1]
  if t.kind ~= "op" then return end
  if t.text == "!" then return { a = t.a, b = t.b, to = { "" } } end
  if EITHER[t.text] and not (ends_operand(before) and blank_after(text, t)) then
    if t.text == "-" and not ends_operand(before) then return { a = t.a, b = t.b, to = { "" } } end
    return
  end
  if INSTEAD[t.text] then return { a = t.a, b = t.b, to = INSTEAD[t.text] } end
end

local function constant(text, list, i)
  local t = list[i]
  if t.kind ~= "number" or array_size(text, list, i) then return end
  local digits, suffix = t.text:match "^(0[xX]%x+)([uUlL]*)$"
  if not digits then digits, suffix = t.text:match "^(%d+)([uUlL]*)$" end
  if not digits then return { a = t.a, b = t.b, to = { "(" .. t.text .. " + 1)" } } end
  local form = digits:find "^0[xX]" and "0x%x" or "%d"
  local n = math.tointeger(tonumber(digits))
  if not n or n == math.maxinteger then return end
  local to = { form:format(n + 1) .. suffix }
  if n > 0 then to[2] = form:format(n - 1) .. suffix end
  return { a = t.a, b = t.b, to = to }
end

local function condition(text, list, i)
  local t, open = list[i], list[i + 1]
  if t.text ~= "if" and t.text ~= "while" or t.kind ~= "name" or open.text ~= "(" then return end
  local a, b = open.a, list[closing(list, i + 1)].b
  local said = text:sub(a, b)
  local to = { "(!" .. said .. ")", "(" .. said .. " && 0)" }
  if t.text == "if" then to[3] = "(" .. said .. " || 1)" end
  return { a = a, b = b, to = to }
end

-- Whether a statement can begin at token i of a function.
local function begins(list, i)
  local before = list[i - 1]
  if not before then return false end
  if before.text == ")" then
    local depth, k = 0, i - 1
    repeat
      if list[k].text == ")" then depth = depth + 1 end
      if list[k].text == "(" then depth = depth - 1 end
      k = k - 1
    until depth == 0 or k < 1
    return k > 0 and (list[k].text == "if" or list[k].text == "for" or list[k].text == "while")
  end
  return before.text == ";" or before.text == "{" or before.text == "}" or before.text == "else" or
         before.text == ":" and list[i - 2].text == "default" or
         before.text == ":" and list[i - 3].text == "case"
end

local function statement(text, list, i)
  local t, after = list[i], list[i + 1]
  if not list.body[i] or not after or not begins(list, i) then return end
  if t.kind ~= "name" and t.text ~= "*" and t.text ~= "++" and t.text ~= "--" and t.text ~= "(" then
    return
  end
  if TYPES[t.text] or CONTROL[t.text] then return end
  local declared = t.text ~= "return" and t.kind == "name" and
                   (after.kind == "name" or after.text == "*" and not blank_after(text, after))
  if declared then return end
  local depth = 0
  for k = i, #list do
    local s = list[k].text
    if list[k].kind == "op" then
      if s == "(" or s == "[" or s == "{" then depth = depth + 1 end
      if s == ")" or s == "]" or s == "}" then depth = depth - 1 end
      if depth < 0 then return end
      if s == ";" and depth == 0 then
        return { a = t.a, b = list[k].b, to = { "{}" } }
      end
    end
  end
end

local FIND = { operator = operator, constant = constant, condition = condition, statement = statement }

-- ---- the whole file ----

-- Whether each token stands in braces and in no parentheses, as statements do.
local function bodies(list)
  local body, braces, parens = {}, 0, 0
  for i, t in ipairs(list) do
    body[i] = braces > 0 and parens == 0
    if t.text == "{" then braces = braces + 1 end
    if t.text == "}" then braces = braces - 1 end
    if t.text == "(" then parens = parens + 1 end
    if t.text == ")" then parens = parens - 1 end
  end
  return body
end

-- The lines of the statement, or the part of a table, that token i is in.
local function around(list, i)
  local function border(t) return t.text == ";" or t.text == "{" or t.text == "}" end
  local first, last = i, i
  while first > 1 and not border(list[first - 1]) do first = first - 1 end
  while last < #list and not border(list[last]) do last = last + 1 end
  return list[first].line, list[last].line
end

local M = { KINDS = KINDS }

-- { operator = { place... }, ... }. A place: a, b (bytes), to (what may stand there instead),
-- line, first and last (the lines around it).
function M.places(text)
  local list, found = tokens(text), {}
  list.body = bodies(list)
  for _, kind in ipairs(KINDS) do
    found[kind] = {}
    for i = 1, #list do
      local place = FIND[kind](text, list, i)
      if place then
        place.line = list[i].line
        place.first, place.last = around(list, i)
        table.insert(found[kind], place)
      end
    end
  end
  return found
end

-- `text` with the place's n-th fault. It has as many lines as before: the lines after it are
-- told by their numbers.
function M.planted(text, place, n)
  local said, to = text:sub(place.a, place.b), place.to[n]
  local less = select(2, said:gsub("\n", "")) - select(2, to:gsub("\n", ""))
  return text:sub(1, place.a - 1) .. to .. ("\n"):rep(less) .. text:sub(place.b + 1)
end

-- ---- drawing ----

-- Every file's places in one list per kind.
local function all_places(paths)
  local all = {}
  for _, kind in ipairs(KINDS) do all[kind] = {} end
  for _, path in ipairs(paths) do
    for kind, list in pairs(M.places(tree.read(path))) do
      for _, place in ipairs(list) do table.insert(all[kind], { path = path, place = place }) end
    end
  end
  return all
end

-- A function that gives one fault after the other, none twice, as `paths` and the seed have it.
function M.draws(paths, seed)
  local all, seen = all_places(paths), {}
  math.randomseed(seed)
  return function()
    while true do
      local kind = KINDS[math.random(#KINDS)]
      local at = all[kind][math.random(#all[kind])]
      local to = math.random(#at.place.to)
      local key = ("%s:%d:%d:%s"):format(at.path, at.place.a, at.place.b, to)
      if not seen[key] then
        seen[key] = true
        return { kind = kind, path = at.path, place = at.place, to = to }
      end
    end
  end
end

return M
