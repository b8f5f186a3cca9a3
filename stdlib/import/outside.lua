-- outside.lua - what a setting takes from elsewhere. Another setting of the file, as "${model.name}" or
-- ".name" beside it, has its value. Variables of the environment, as "${NAME}", "${oc.env:NAME}" and with a
-- default "${oc.env:NAME,2}", and other files are not read: a default counts, and is said; what has none is an
-- error if the plan needs it.
local quote = use "import/quote"
local scalar = use "import/scalar"
local tree = use "import/tree"
local outside = {}

local deepest = 8 -- defaults inside of defaults

-- "oc.env:TP, 2" -> "TP", "2". What another resolver makes, as "oc.select:model.tp,4", is not known: it has no default.
local function parts(body)
  body = string.gsub(body, "^%s*oc%.env:", "")
  local name, default = string.match(body, "^%s*([^,%s:]+)%s*,%s*(.-)%s*$")
  return name or string.match(body, "^%s*(.-)%s*$"), default
end

-- What another setting of the file says: "model.name", or ".name" beside the setting that asks.
local function setting(book, asking, name)
  if string.sub(name, 1, 1) == "." then
    name = (string.match(asking.key, "^(.*%.)[^.]*$") or "") .. string.sub(name, 2)
  end
  local leaf = book.leaves.at[name]
  if not leaf or leaf == asking or leaf.value == scalar.null or type(leaf.value) == "table" then return nil end
  return tostring(leaf.value)
end

-- The text with its variables replaced; the first one that has no value, and whether one had. `known(name)`
-- is what another setting says.
local function expanded(text, given, said, known)
  local open, found = nil, false
  for _ = 1, deepest do
    local n
    text, n = string.gsub(text, "%$(%b{})", function(body)
      body = string.sub(body, 2, -2)
      if string.find(body, "${", 1, true) then -- the inner one first
        local inner, why = expanded(body, given, said, known)
        if not why then return "${" .. inner .. "}" end
      end
      local name, default = parts(body)
      local own = not given[name] and known(name)
      local value = given[name] or own or default
      if value == nil then
        open = open or "${" .. body .. "}"
        return nil
      end
      found = true
      if not given[name] and not own then said[#said + 1] = { name = name, value = default } end
      return value
    end)
    if n == 0 or open then break end
  end
  return text, open, found
end

-- The value with its variables replaced, also those in lists; the first one that has no value. `said` gets defaults.
local function settled(value, given, said, known)
  if type(value) == "table" and value ~= scalar.null then
    local out, open = {}, nil
    for key, item in next, value do
      local one, why = settled(item, given, said, known)
      out[key], open = one, open or why
    end
    return out, open
  end
  if type(value) ~= "string" or not string.find(value, "${", 1, true) then return value end
  local text, open, found = expanded(value, given, said, known)
  if open or not found then return value, open end
  return scalar.of_word(text)
end

-- Replaces variables in the leaves; `given` has those of the command line by their names.
function outside.settle(book, given)
  for _, leaf in ipairs(book.leaves) do
    local said = {}
    local function known(name) return setting(book, leaf, name) end
    local value, open = settled(leaf.value, given, said, known)
    if open then
      leaf.open = open
    else
      for _, one in ipairs(said) do
        book:assume(tree.place(leaf), string.format("%s is %s, its default: the environment is not read; %s=VALUE "
          .. "behind the file says another", quote.shown(one.name), quote.shown(one.value), quote.shown(one.name)))
      end
      leaf.value = value
    end
  end
end

local function add_names(value, names)
  if type(value) == "table" then
    for _, item in next, value do add_names(item, names) end
  end
  for body in string.gmatch(type(value) == "string" and value or "", "%${([^{}]*)}?") do names[parts(body)] = true end
end

-- Names of variables in a file, so that NAME=VALUE behind it is known to be one.
function outside.names(leaves)
  local names = {}
  for _, leaf in ipairs(leaves) do add_names(leaf.value, names) end
  return names
end

-- Settings that only say where a file lies.
local function is_place(key)
  return string.find(key, "dir$") or string.find(key, "path$") or string.find(key, "paths$") or string.find(key, "file$")
end

local OTHERS = { defaults = true, include = true, includes = true, _base_ = true, base_config = true }

-- Behind the translation: what the plan needed and has no value.
function outside.finish(book)
  for _, leaf in ipairs(book.leaves) do
    if leaf.open and (leaf.asked or leaf.list == "translated") and not is_place(leaf.key) then
      book:refuse(leaf.key, string.format("%s has no value in the file: --set %s=VALUE gives one",
                                          quote.shown(leaf.open), quote.shown(tree.name(leaf))))
    elseif OTHERS[leaf.key] and leaf.list == "not_expressible" then
      leaf.text = "it names other files, which are not read: what they set is not in the plan"
    end
  end
end

return outside
