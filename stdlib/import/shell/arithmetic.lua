-- arithmetic.lua - what stands between (( and )): whole numbers of 64 bits with the operators of bash, as it orders
-- them, assignments too. Takes the text behind its expansions and how variables are read and written; gives the
-- number, or nil where the script does not say it, or where bash finds an error.
local arithmetic = {}

local limits = { nesting = 32 }

-- Binary operators, and how tightly they bind; ** alone goes from right to left.
local BINDS = { ["||"] = 1, ["&&"] = 2, ["|"] = 3, ["^"] = 4, ["&"] = 5, ["=="] = 6, ["!="] = 6, ["<="] = 7, [">="] = 7,
                ["<"] = 7, [">"] = 7, ["<<"] = 8, [">>"] = 8, ["+"] = 9, ["-"] = 9, ["*"] = 10, ["/"] = 10, ["%"] = 10,
                ["**"] = 11 }

local function truth(b) return b and 1 or 0 end

-- As C divides: towards zero. Nil: by zero.
local function quotient(a, b)
  if b == 0 then return nil end
  local n = a // b
  return n < 0 and n * b ~= a and n + 1 or n
end

local function power(a, b)
  if b < 0 then return nil end
  local n = 1
  while b > 0 do
    if b & 1 == 1 then n = n * a end
    a, b = a * a, b >> 1
  end
  return n
end

local function right_shift(a, b)
  return a >= 0 and a >> b or ~(~a >> b)
end

local DO = {
  ["||"] = function(a, b) return truth(a ~= 0 or b ~= 0) end, ["&&"] = function(a, b) return truth(a ~= 0 and b ~= 0) end,
  ["|"] = function(a, b) return a | b end, ["^"] = function(a, b) return a ~ b end, ["&"] = function(a, b) return a & b end,
  ["=="] = function(a, b) return truth(a == b) end, ["!="] = function(a, b) return truth(a ~= b) end,
  ["<="] = function(a, b) return truth(a <= b) end, [">="] = function(a, b) return truth(a >= b) end,
  ["<"] = function(a, b) return truth(a < b) end, [">"] = function(a, b) return truth(a > b) end,
  ["<<"] = function(a, b) return b >= 0 and b < 64 and a << b or nil end,
  [">>"] = function(a, b) return b >= 0 and b < 64 and right_shift(a, b) or nil end,
  ["+"] = function(a, b) return a + b end, ["-"] = function(a, b) return a - b end,
  ["*"] = function(a, b) return a * b end, ["/"] = quotient,
  ["%"] = function(a, b) return b ~= 0 and math.fmod(a, b) or nil end, ["**"] = power,
}

-- ---- reading: s = { text =, at =, read =, write =, dead =, bad = } ----

-- What is behind a && that does not hold is read and not computed: nothing in it is wrong.
local function bad(s)
  s.bad = true
  return 0
end

local function unsaid(s) return s.dead > 0 and 0 or bad(s) end

local function take(s, pattern)
  local found, after = string.match(s.text, "^%s*(" .. pattern .. ")()", s.at)
  if found then s.at = after end
  return found
end

local function number(digits)
  local base, rest = string.match(digits, "^(%d+)#(%w+)$")
  if base then
    base = tonumber(base)
    return base >= 2 and base <= 36 and tonumber(rest, base) or nil
  end
  if string.find(digits, "^0[xX]%x+$") then return tonumber(digits) end
  if string.find(digits, "^0%d") then return not string.find(digits, "[89%a]") and tonumber(digits, 8) or nil end
  return string.find(digits, "^%d+$") and math.tointeger(tonumber(digits)) or nil
end

local function value_of(s, name)
  local text = s.read(name)
  if not text then return unsaid(s) end
  if string.find(text, "^%s*$") then return 0 end
  return arithmetic.compute(text, s.read, s.write, s.depth + 1) or unsaid(s)
end

local function write(s, name, n)
  if s.dead == 0 and not s.bad then s.write(name, n) end
  return n
end

local assigned, ternary

local function name_or_step(s, name)
  local step = take(s, "%+%+") or take(s, "%-%-")
  local n = value_of(s, name)
  if step then write(s, name, step == "++" and n + 1 or n - 1) end
  return n
end

local function primary(s)
  if take(s, "%(") then
    s.nesting = s.nesting + 1
    local n = s.nesting <= limits.nesting and arithmetic.list(s) or bad(s)
    s.nesting = s.nesting - 1
    return take(s, "%)") and n or bad(s)
  end
  local digits = take(s, "%d[%w#]*")
  if digits then return number(digits) or bad(s) end
  local name = take(s, "[%a_][%w_]*")
  if name and string.find(s.text, "^%[", s.at) then return bad(s) end -- an entry of an array
  return name and name_or_step(s, name) or bad(s)
end

local function unary(s)
  s.nesting = s.nesting + 1
  local n
  local step = s.nesting <= limits.nesting and string.match(s.text, "^%s*([-+][-+])%s*[%a_]", s.at)
  if s.nesting > limits.nesting then
    n = bad(s)
  elseif step == "++" or step == "--" then
    take(s, "..")
    local name = take(s, "[%a_][%w_]*")
    n = write(s, name, value_of(s, name) + (step == "++" and 1 or -1))
  elseif take(s, "!") then
    n = truth(unary(s) == 0)
  elseif take(s, "~") then
    n = ~unary(s)
  elseif take(s, "%-") then
    n = -unary(s)
  elseif take(s, "%+") then
    n = unary(s)
  else
    n = primary(s)
  end
  s.nesting = s.nesting - 1
  return n
end

local function operator(s)
  local at = string.match(s.text, "^%s*()", s.at)
  local op = string.sub(s.text, at, at + 1)
  if not BINDS[op] then op = string.sub(s.text, at, at) end
  return BINDS[op] and op, at + #op
end

local function binary(s, least)
  local a = unary(s)
  while not s.bad do
    local op, after = operator(s)
    local binds = op and BINDS[op]
    if not binds or binds < least then return a end
    s.at = after
    local skips = op == "&&" and a == 0 or op == "||" and a ~= 0
    s.dead = s.dead + (skips and 1 or 0)
    local b = binary(s, op == "**" and binds or binds + 1)
    s.dead = s.dead - (skips and 1 or 0)
    a = DO[op](a, b) or unsaid(s)
  end
  return a
end

function ternary(s)
  local condition = binary(s, 1)
  if not take(s, "%?") then return condition end
  local first, second = condition ~= 0 and 0 or 1, condition ~= 0 and 1 or 0
  s.dead = s.dead + first
  local a = assigned(s)
  s.dead = s.dead - first
  if not take(s, ":") then return bad(s) end
  s.dead = s.dead + second
  local b = ternary(s)
  s.dead = s.dead - second
  return condition ~= 0 and a or b
end

function assigned(s)
  local name, op, after = string.match(s.text, "^%s*([%a_][%w_]*)%s*([-+*/%%&^|<>]-)=()", s.at)
  local compares = op == "<" or op == ">" or op == "**"
  local plain = name and string.sub(s.text, after, after) ~= "=" and (op == "" or DO[op] and not compares)
  if not plain then return ternary(s) end
  s.at, s.nesting = after, s.nesting + 1
  local n = s.nesting <= limits.nesting and assigned(s) or bad(s)
  s.nesting = s.nesting - 1
  if op ~= "" then n = DO[op](value_of(s, name), n) or unsaid(s) end
  return write(s, name, n)
end

-- Expressions with commas between them: the last one counts.
function arithmetic.list(s)
  local n = assigned(s)
  while not s.bad and take(s, ",") do n = assigned(s) end
  return n
end

-- The number that a text means. `read(name)` gives the text of a variable, or nil; `write(name, n)` sets it.
function arithmetic.compute(text, read, write_to, depth)
  if (depth or 0) > limits.nesting then return nil end
  local s = { text = text, at = 1, read = read, write = write_to, dead = 0, nesting = 0, depth = depth or 0 }
  local n = arithmetic.list(s)
  return not s.bad and string.find(text, "^%s*$", s.at) and n or nil
end

-- The names that a text sets, for where it cannot be computed.
function arithmetic.sets(text)
  local names = {}
  for name, op, after in string.gmatch(text, "%f[%w_]([%a_][%w_]*)%s*([-+*/%%&^|<>]-=)(.?)") do
    if after ~= "=" and op ~= "<=" and op ~= ">=" then names[#names + 1] = name end
  end
  for name in string.gmatch(text, "[-+][-+]%s*([%a_][%w_]*)") do names[#names + 1] = name end
  for name in string.gmatch(text, "([%a_][%w_]*)%s*%+%+") do names[#names + 1] = name end
  for name in string.gmatch(text, "([%a_][%w_]*)%s*%-%-") do names[#names + 1] = name end
  return names
end

return arithmetic
