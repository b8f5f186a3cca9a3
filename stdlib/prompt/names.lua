-- names.lua - names and objects in a state that anybody may have changed: no metamethod of
-- anybody else is called.
local gmatch, match, sub = string.gmatch, string.match, string.sub

local names = { keywords = {} }
local is_keyword = {}
for word in gmatch("and break do else elseif end false for function goto if in local nil "
    .. "not or repeat return then true until while", "%a+") do
  names.keywords[#names.keywords + 1], is_keyword[word] = word, true
end

-- True for what may stand after a dot.
function names.is_name(s)
  return type(s) == "string" and match(s, "^[%a_][%w_]*$") ~= nil and not is_keyword[s]
end

-- A field of the metatable, or nil.
function names.meta(v, field)
  local meta = debug.getmetatable(v)
  return meta and rawget(meta, field)
end

-- "plan" for one of weft's objects. That the metatable is the one in the registry tells it
-- from what somebody else named so.
function names.object(v)
  local name = type(v) == "userdata" and names.meta(v, "__name")
  local own = name and rawget(debug.getregistry(), name) == debug.getmetatable(v)
  return own and match(name, "^weft%.(.+)") or nil
end

-- The methods of a kind of objects.
function names.methods(object)
  local meta = rawget(debug.getregistry(), "weft." .. object)
  return meta and rawget(meta, "methods") or {}
end

return names
