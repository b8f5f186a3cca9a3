-- registry.lua - files with several configurations, of which a word behind the file names one:
-- torchtitan's Python registries (python.lua), and the same as JSON, { NAME = { "a.b" = value } }.
-- "base" names the configuration that one begins with; "X.class" says that X is made anew, unless
-- it is a copy with changes (replace).
local quote = use "import/quote"
local tree = use "import/tree"
local registry = {}

local TELLING = { "^[%w_]+%.model_spec%.", "^[%w_]+%.parallelism%.class$", "^[%w_]+%.training%.class$" }

function registry.is(leaves)
  for _, leaf in ipairs(leaves) do
    for _, pattern in ipairs(TELLING) do
      if string.find(leaf.key, pattern) then return true end
    end
  end
  return false
end

local function names_of(leaves)
  local names, seen = {}, {}
  for _, leaf in ipairs(leaves) do
    local name = string.match(leaf.key, "^[^.]*")
    if not seen[name] then names[#names + 1], seen[name] = name, true end
  end
  return names, seen
end

local COPIES = { replace = true, ["dataclasses.replace"] = true, ["copy.deepcopy"] = true }

-- Removes what the base says of a group that is made anew.
local function make_anew(found, group)
  for i = #found, 1, -1 do
    local key = found[i].key
    if key == group or string.sub(key, 1, #group + 1) == group .. "." then
      found.at[key] = nil
      table.remove(found, i)
    end
  end
end

local function own_leaves(leaves, name)
  local own = {}
  for _, leaf in ipairs(leaves) do
    if string.sub(leaf.key, 1, #name + 1) == name .. "." then own[#own + 1] = leaf end
  end
  return own
end

-- The leaves of a configuration behind those of its base. `chain`: names on the way here.
local function add(found, leaves, all, name, chain)
  if chain[name] then
    fail(string.format("the configuration %s begins with itself", quote.shown(name)))
  end
  chain[name] = true
  local own = own_leaves(leaves, name)
  local base = leaves.at[name .. ".base"]
  if base and all[base.value] then
    add(found, leaves, all, base.value, chain)
  elseif base then
    tree.set(found, "base", base.value, base.file, base.line)
  end
  for _, leaf in ipairs(own) do
    local key = string.sub(leaf.key, #name + 2)
    local group = string.match(key, "^(.*)%.class$")
    if group and not COPIES[leaf.value] then make_anew(found, group) end
  end
  for _, leaf in ipairs(own) do
    local key = string.sub(leaf.key, #name + 2)
    local copied = string.find(key, "%.class$") and COPIES[leaf.value]
    if key ~= "base" and not copied then tree.set(found, key, leaf.value, leaf.file, leaf.line) end
  end
end

-- The settings of the configuration that one of `words` names, the other words, and its name.
function registry.choose(leaves, words, file)
  local names, all = names_of(leaves)
  local name, rest = nil, {}
  for _, word in ipairs(words) do
    if not name and not string.find(word, "=") then name = word else rest[#rest + 1] = word end
  end
  if not name and #names == 1 then name = names[1] end
  if not name or not all[name] then
    fail(string.format("%s: %s: name one behind the file: %s", quote.shown(file),
                       name and quote.shown(name) .. " is none of its configurations"
                       or "has several configurations",
                       quote.shown(table.concat(names, " "), 4000)))
  end
  local found = tree.new()
  add(found, leaves, all, name, {})
  return found, rest, name
end

return registry
