-- unknown.lua - names that no version of axolotl has. It takes no notice of these, so that what they were meant
-- to change is not changed: here they are errors. With a plugin of somebody else's they may be that one's.
local quote = use "import/quote"
local scalar = use "import/scalar"
local unknown = {}

unknown.shown = quote.shown

-- Names of both tables: exact ones, and prefixes of groups whose names are not axolotl's ("special_tokens.*").
local function names_of(fields, left_out)
  local exact, prefixes, list = {}, {}, {}
  local function add(name)
    local prefix = string.match(name, "^(.*%.)%*$") or string.match(name, "^(.*_)%*$")
    if prefix then prefixes[#prefixes + 1] = prefix end
    if prefix or exact[name] then return end
    exact[name], list[#list + 1] = true, name
  end
  for _, row in ipairs(fields) do
    for i = 2, #row do add(row[i]) end
  end
  for _, row in ipairs(left_out) do add(row[1]) end
  table.sort(list)
  return exact, prefixes, list
end

local function is_known(key, exact, prefixes)
  if exact[key] then return true end
  for _, prefix in ipairs(prefixes) do
    if string.sub(key, 1, #prefix) == prefix then return true end
  end
  return false
end

-- Whether the names of a plugin may be among the settings.
local function has_own_plugin(book)
  local list = book:value "plugins"
  for _, name in ipairs(type(list) == "table" and list or {}) do
    if not string.find(tostring(name), "^axolotl%.integrations%.") then return true end
  end
  return false
end

-- A group such as fsdp_config that is one value, where axolotl has names below it.
local function group_of(key, list)
  for _, name in ipairs(list) do
    if string.sub(name, 1, #key + 1) == key .. "." then return true end
  end
  return false
end

function unknown.check(book, fields, left_out)
  local exact, prefixes, list = names_of(fields, left_out)
  local own = has_own_plugin(book)
  for _, leaf in ipairs(book.leaves) do
    local none = leaf.value == scalar.null or type(leaf.value) == "table" and next(leaf.value) == nil
    if not leaf.list and not none and not is_known(leaf.key, exact, prefixes) then
      local near = suggest(leaf.key, list)
      if group_of(leaf.key, list) then
        book:refuse(leaf.key, string.format("%s: expected names and values below it", quote.shown(leaf.key)))
      elseif own then
        book:cannot(leaf.key, "no setting of axolotl's own: it may be one of the plugins', which are not read")
      else
        book:refuse(leaf.key, string.format("\"%s\" is no setting of axolotl, which takes no notice of it%s", quote.shown(leaf.key),
          near and string.format(" (did you mean \"%s\"?)", quote.shown(near)) or ""))
      end
    end
  end
end

return unknown
