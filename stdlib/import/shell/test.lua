-- test.lua - what the tests of a shell script say: [ ... ], [[ ... ]] and test, of words whose variables the
-- script sets itself. Nothing is run: a file that is tested for is not looked at.
local value = use "import/shell/value"
local test_of = {}

-- "${X}" of a variable that nobody set is empty where it is tested.
test_of.unset = "^%${?([%a_][%w_]*)}?$"

local function tested(word)
  if string.find(word.text, test_of.unset) then return "" end
  return not value.unresolved(word.text) and word.text or nil
end

local compare = {
  ["="] = function(a, b) return a == b end, ["=="] = function(a, b) return a == b end,
  ["!="] = function(a, b) return a ~= b end,
}
local order = {
  ["-eq"] = function(a, b) return a == b end, ["-ne"] = function(a, b) return a ~= b end,
  ["-lt"] = function(a, b) return a < b end, ["-le"] = function(a, b) return a <= b end,
  ["-gt"] = function(a, b) return a > b end, ["-ge"] = function(a, b) return a >= b end,
}

-- Whether [ words ] holds; nil: the script does not say.
local function test(words)
  local first = words[1] and words[1].text
  if first == "!" then
    local rest = test { table.unpack(words, 2) }
    return rest ~= nil and not rest or nil
  end
  if #words == 0 then return false end
  if #words == 1 then
    local s = tested(words[1])
    return s and s ~= ""
  elseif #words == 2 and (first == "-z" or first == "-n") then
    local s = tested(words[2])
    return s and (s == "") == (first == "-z")
  elseif #words == 3 then
    local a, b, op = tested(words[1]), tested(words[3]), words[2].text
    if a and b and compare[op] and not string.find(b, "[*?]") then return compare[op](a, b) end
    a, b = tonumber(a), tonumber(b)
    if a and b and order[op] then return order[op](a, b) end
  end
end

local TESTS = { ["["] = "]", ["[["] = "]]", test = "" }

-- The status of a command: of a test whether it holds (nil: not said), of all others true.
local function status(words)
  local first = words[1] and words[1].text
  if first == "false" then return false end
  if first == "test" then return test { table.unpack(words, 2) } end
  if not TESTS[first] then return true end
  if words[#words].text ~= TESTS[first] then return nil end
  return test { table.unpack(words, 2, #words - 1) }
end

test_of.tested, test_of.brackets, test_of.status = tested, TESTS, status

return test_of
