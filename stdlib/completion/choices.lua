-- choices.lua - the names that an option takes: of a row of options.def, "cpu cuda", or the list
-- of the library that it names, "@gpus".
local known = use "chat/known"
local lists = { gpus = use "gpus", models = keys(use "presets"), templates = keys(known.templates) }

return function(text)
  local list, name = {}, string.match(text, "^@(.*)$")
  if name then return lists[name] end
  for word in string.gmatch(text, "%S+") do list[#list + 1] = word end
  return list
end
