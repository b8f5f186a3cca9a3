-- scan.lua - what the text before the cursor means for completion: a small lexer of Lua
-- that forgives everything, and the brackets that are open at the cursor.
local fields = use "prompt/fields"
local find, match, sub = string.find, string.match, string.sub

local none = { kind = "", text = "" }

-- ---- tokens ----

-- The byte that ends a text whose quote stands before `at`: the quote or a newline.
local function text_end(s, at, quote)
  repeat
    local i = find(s, "[\\\n" .. quote .. "]", at)
    at = i and i + 2
  until not i or sub(s, i, i) ~= "\\"
  return at and at - 2
end

-- A list of { kind, text }: kind "a" is a name or word, "0" a number, '"' a text, "~" the
-- operator "..", any other its own character. Then what stays open at the end: "comment",
-- or "text" and what is in it.
local function tokens(s)
  local list, at = {}, 1
  local function add(kind, stop)
    list[#list + 1] = { kind = kind, text = sub(s, at, stop - 1) }
    at = stop
  end
  while true do
    at = match(s, "^%s*()", at)
    if at > #s then return list end
    local c = sub(s, at, at)
    local dashes, equals, inside = match(s, "^(%-?%-?)%[(=*)%[()", at)
    if dashes and dashes ~= "-" then
      local _, stop = find(s, "]" .. equals .. "]", inside, true)
      if not stop then return list, "comment" end -- no names are offered in a text either
      if dashes == "" then add('"', stop + 1) else at = stop + 1 end
    elseif find(s, "^%-%-", at) then
      at = find(s, "\n", at, true)
      if not at then return list, "comment" end
    elseif c == '"' or c == "'" then
      local stop = text_end(s, at + 1, c)
      if not stop then return list, "text", sub(s, at + 1) end
      add('"', stop + 1)
    elseif find(c, "%d") then
      add("0", match(s, "^[%w_.]+()", at))
    elseif find(c, "[%w_]") then
      add("a", match(s, "^[%w_]+()", at))
    elseif find(s, "^%.%.", at) then
      add("~", at + 2) -- no dot of a chain: an operator like any other
    else
      add(c, at + 1)
    end
  end
end

-- ---- brackets ----

local call_scopes =
  { plan = "plan", with = "plan", check = "plan", ["return"] = "plan", grid = "grid" }

-- The field that the value whose first token is number n is given to, and its scope.
local function assigned(list, n, around)
  local key = list[n - 2] or none
  if (list[n - 1] or none).kind ~= "=" or key.kind ~= "a" then return nil end
  return fields.find(around.scope, key.text),
    around.scope and fields.below(around.scope, key.text)
end

-- The first token of the chain a.b:c that ends before token n.
local function chain_start(list, n)
  while (list[n - 1] or none).kind == "a" do
    local dot = (list[n - 2] or none).kind
    if dot ~= "." and dot ~= ":" then return n - 1 end
    n = n - 2
  end
  return n
end

-- The bracket at token n. `scope`: whose fields the braces hold, or "tp_plan", "schedule",
-- "grid", "axis", or nil; `field`: the field that the braces are the value of; `items`:
-- commas so far.
local function opened(list, n, around)
  local b = { kind = list[n].kind, items = 0 }
  local last = list[n - 1] or none
  local name = last.kind == "(" and list[n - 2] or last
  local item = last.kind == "{" or last.kind == "," or last.kind == "("
  if last.kind == "=" then
    b.field, b.scope = assigned(list, n, around)
  elseif b.kind == "(" and name.text == "extend" then
    b.field, b.scope = assigned(list, chain_start(list, n), around)
  elseif b.kind == "{" and around.kind == "(" and item and around.scope then
    b.scope = around.scope -- of weft.extend(..., { ... })
  elseif b.kind == "{" and name.kind == "a" then
    b.scope = call_scopes[name.text] or fields.known(name.text)
  elseif b.kind == "{" and item and around.scope == "grid" then
    b.scope = "axis"
  end
  return b
end

-- The first item of { "ddp", ... } says whose options follow.
local function first_item(b, text)
  if b.kind ~= "{" or b.items > 0 or not b.field then return end
  if not b.field.named and b.field.key ~= "schedule" then return end
  b.scope = fields.known(sub(text, 2, -2)) or b.scope
end

local function innermost(list)
  local stack = {}
  for n, t in ipairs(list) do
    local top = stack[#stack] or none
    if find(t.kind, "^[({[]") then
      stack[#stack + 1] = opened(list, n, top)
    elseif find(t.kind, "^[)}%]]") then
      stack[#stack] = nil
    elseif t.kind == '"' and (list[n - 1] or none).kind == "{" then
      first_item(top, t.text)
    elseif (t.kind == "," or t.kind == ";") and top.items then
      top.items = top.items + 1
    end
  end
  return stack[#stack] or none
end

-- place: where the cursor stands, "code", "text" (in which `text` is typed) or "comment";
-- bracket: the innermost; back(n): the token n places before the end.
return function(s)
  local list, place, text = tokens(s)
  return { place = place or "code", text = text, bracket = innermost(list),
    back = function(n) return list[#list + 1 - n] or none end,
    typed = list[1] and find(s, "[%w_]$") and list[#list].kind == "a" }
end
