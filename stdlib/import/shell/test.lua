-- test.lua - what the tests of a shell script say: [ ... ], [[ ... ]] and test, of words whose variables the
-- script sets itself. Nothing is run: a file that is tested for is not looked at. A test holds (true), does not
-- (false), or the script does not say (nil): a || b holds if either does, whatever the other one is.
--
-- Words are { text =, op = (it is an operator of the shell), pieces = (of [[: it as a pattern), bare = (of [: nothing of
-- it is quoted) }.
local glob = use "import/shell/glob"
local value = use "import/shell/value"
local test_of = {}

-- "${X}" of a variable that nobody set is empty where it is tested.
test_of.unset = "^%${?([%a_][%w_]*)}?$"

local ORDER = {
  ["-eq"] = function(a, b) return a == b end, ["-ne"] = function(a, b) return a ~= b end,
  ["-lt"] = function(a, b) return a < b end, ["-le"] = function(a, b) return a <= b end,
  ["-gt"] = function(a, b) return a > b end, ["-ge"] = function(a, b) return a >= b end,
}
local EQUAL = { ["="] = true, ["=="] = true, ["!="] = true }
-- Of files and of what the script does not say.
local OTHER = { ["=~"] = true, ["<"] = true, [">"] = true, ["-nt"] = true, ["-ot"] = true, ["-ef"] = true }

local function no(a)
  if a == nil then return nil end
  return not a
end

local function both(a, b)
  if a == false or b == false then return false end
  return a and b or nil
end

local function either(a, b)
  if a or b then return true end
  if a == nil or b == nil then return nil end
  return false
end

test_of.no, test_of.both, test_of.either = no, both, either

-- ---- words: t = { words =, i =, double =, env =, note =, line =, assumed =, broken =, wrong =, dead = } ----

-- The text of a word that is tested; nil: the script does not say.
local function tested(t, word)
  if not string.find(word.text, test_of.unset) then return not value.unresolved(word.text) and word.text or nil end
  if not t.dead then
    t.note(word)
    t.assumed = true
  end
  return ""
end

-- Of [[ an expression, of [ digits, else it is an error to it.
local function number(t, word)
  local text = tested(t, word)
  if not text then return nil end
  if t.double then return value.number(t.env, text == "" and "0" or text, t.line) end
  local digits = string.match(text, "^%s*([-+]?%d+)%s*$")
  t.wrong = t.wrong or not digits
  return digits and math.tointeger(tonumber((string.gsub(digits, "^%+", "")))) or nil
end

local function equal(t, a, b)
  local text, other = tested(t, a), tested(t, b)
  if not text or not other then return nil end
  if not t.double then return text == other end
  local pieces = b.pieces()
  if other == "" then pieces = {} end
  local pattern = value.pattern(t.env, pieces, text, t.line)
  return pattern and glob.matches(pattern, text)
end

local function compared(t, a, op, b)
  if op == "!=" then return no(equal(t, a, b)) end
  if EQUAL[op] then return equal(t, a, b) end
  if not ORDER[op] then return nil end
  a, b = number(t, a), number(t, b)
  return a and b and ORDER[op](a, b)
end

local function unary(t, op, word)
  if op ~= "-z" and op ~= "-n" then return nil end
  local text = tested(t, word)
  return text and (text == "") == (op == "-z")
end

local function is_unary(word) return word and not word.op and string.find(word.text, "^%-[%a]$") ~= nil end
local function is_binary(word)
  local text = word and word.text
  return text and (EQUAL[text] or ORDER[text] or OTHER[text]) and true or false
end

local function not_empty(t, word)
  local text = tested(t, word)
  return text and text ~= ""
end

-- ---- expressions ----

-- Whether the next word is this operator, which [[ has from the shell and [ as a word.
local SHELL = { ["-o"] = "||", ["-a"] = "&&" }
local function at(t, op)
  local word = t.words[t.i]
  if not word then return false end
  if t.double and op ~= "!" then return word.op == (SHELL[op] or op) end
  return not word.op and word.text == op
end

local function accept(t, op)
  if not at(t, op) then return false end
  t.i = t.i + 1
  return true
end

-- What stands behind =~ is not read.
local function skip_regular(t)
  local depth = 0
  while t.words[t.i] do
    if depth == 0 and (at(t, "-o") or at(t, "-a") or at(t, ")")) then return end
    depth = depth + (at(t, "(") and 1 or at(t, ")") and -1 or 0)
    t.i = t.i + 1
  end
end

local function primary(t)
  local word, after, behind = t.words[t.i], t.words[t.i + 1], t.words[t.i + 2]
  if not word or word.op then
    t.broken = true
    return nil
  end
  if t.double and after and after.text == "=~" then
    t.i = t.i + 2
    return skip_regular(t)
  end
  if is_binary(after) and behind and not behind.op then
    t.i = t.i + 3
    return compared(t, word, after.text, behind)
  end
  if is_unary(word) and after and not after.op then
    t.i = t.i + 2
    return unary(t, word.text, after)
  end
  t.i = t.i + 1
  return not_empty(t, word)
end

local any
local function negated(t)
  t.depth = t.depth + 1
  if t.depth > 60 then
    t.broken, t.i = true, #t.words + 1
    return nil
  end
  local holds
  if accept(t, "!") then
    holds = no(negated(t))
  elseif accept(t, "(") then
    holds = any(t)
    t.broken = t.broken or not accept(t, ")")
  else
    holds = primary(t)
  end
  t.depth = t.depth - 1
  return holds
end

-- Terms with an operator between them; what is behind a decided one is not tested, and nothing said of it.
local function chain(t, term, op, join, decided)
  local holds, dead = term(t), t.dead
  while accept(t, op) do
    t.dead = dead or holds == decided
    holds = join(holds, term(t))
    t.dead = dead
  end
  return holds
end

local function all(t) return chain(t, negated, "-a", both, false) end
function any(t) return chain(t, all, "-o", either, true) end

-- [ goes by how many words there are; one of two words that is no test is an error, which does not hold.
local function by_number(t, from, n)
  local words = t.words
  local first, second, third = words[from], words[from + 1], words[from + 2]
  if n == 0 then return false, true end
  if n == 1 then return not_empty(t, first), true end
  if n == 3 and is_binary(second) then return compared(t, first, second.text, third), true end
  if n == 3 and second.text == "-a" then return both(not_empty(t, first), not_empty(t, third)), true end
  if n == 3 and second.text == "-o" then return either(not_empty(t, first), not_empty(t, third)), true end
  if n <= 4 and first.text == "!" then
    local holds, known = by_number(t, from + 1, n - 1)
    return no(holds), known
  end
  if (n == 3 or n == 4) and first.text == "(" and words[from + n - 1].text == ")" then return by_number(t, from + 1, n - 2) end
  if n == 2 and is_unary(first) then return unary(t, first.text, second), true end
  if n <= 3 then
    t.wrong = true
    return false, true
  end
end

-- Words that nobody set and that are not quoted are no words to [.
local function there(t, words)
  local list = {}
  for _, word in ipairs(words) do
    if word.bare and string.find(word.text, test_of.unset) then
      tested(t, word)
    else
      list[#list + 1] = word
    end
  end
  return list
end

-- Whether the words between the brackets hold, and whether that rests on variables which nobody set. `note(word)` says that
-- one is taken as empty.
function test_of.holds(words, double, env, note, line)
  local t = { words = words, i = 1, double = double, env = env, note = note, line = line, depth = 0 }
  local holds, known
  if not double then
    t.words = there(t, words)
    holds, known = by_number(t, 1, #t.words)
  end
  if not known then
    holds = any(t)
    if t.broken or t.i <= #t.words then holds = nil end
  end
  if t.wrong then holds = false end
  return holds, t.assumed
end

test_of.tested = function(word, env, note)
  local t = { env = env, note = note }
  return tested(t, word), t.assumed
end

return test_of
