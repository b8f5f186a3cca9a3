-- assignments.lua - --set and -D of the command line, as weft.load takes them.
local shown = use "shown"
local assignments = {}

-- Whether a word is field=value, and not a file, whose name may have a = behind a slash.
function assignments.is(word) return string.find(word, "^[%a_][^=/]*=") ~= nil end

return setmetatable(assignments, { __call = function(_, list)
  local fields = {}
  for _, word in ipairs(list) do
    local key, value = string.match(word, "^([^=]+)=(.*)$")
    if not key then fail(string.format("\"%s\" is no field=value", shown(word))) end
    fields[key] = value
  end
  return fields
end })
