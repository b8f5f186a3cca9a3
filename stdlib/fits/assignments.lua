-- assignments.lua - --set and -D of the command line, as weft.load takes them.
local shown = use "shown"

return function(list)
  local fields = {}
  for _, word in ipairs(list) do
    local key, value = string.match(word, "^([^=]+)=(.*)$")
    if not key then fail(string.format("\"%s\" is no field=value", shown(word))) end
    fields[key] = value
  end
  return fields
end
