-- tree.lua - the tree of a settings file as a list of leaves, { key = "a.b", value =, line =,
-- file = }: values, lists, null and empty maps. A list is one leaf. Its name in the file, where
-- that is not the key, is `given`; `ordered`: the command line gives it.
local quote = use "import/quote"
local scalar = use "import/scalar"
local tree = {}

local value_of

local function map_value(node, json)
  local t = {}
  for _, key in ipairs(node.keys) do t[key] = value_of(node.at[key], json) end
  return t
end

function value_of(node, json)
  if node.kind == "scalar" then return scalar.value(node, json) end
  if node.kind == "map" then return map_value(node, json) end
  local list = {}
  for i, item in ipairs(node.items) do list[i] = value_of(item, json) end
  return list
end

-- The value of a node: of a map a table by its keys.
tree.value = value_of

local function line_of(node) return node.key_line or node.line end

-- YAML's "<<": what the maps named there have, and this one has not.
local function merge(node, file)
  local from = node.at["<<"]
  if not from then return node end
  local merged = { kind = "map", line = node.line, key_line = node.key_line, keys = {}, at = {} }
  local function add(key, value)
    if merged.at[key] then return end
    merged.at[key], merged.keys[#merged.keys + 1] = value, key
  end
  for _, key in ipairs(node.keys) do
    if key ~= "<<" then add(key, node.at[key]) end
  end
  for _, source in ipairs(from.kind == "list" and from.items or { from }) do
    if source.kind ~= "map" then
      fail(string.format("%s:%d: \"<<\" takes maps", quote.shown(file), line_of(from)))
    end
    source = merge(source, file)
    for _, key in ipairs(source.keys) do add(key, source.at[key]) end
  end
  return merged
end

local flatten

-- Values of keys that are given again in the same map are leaves that are told, and count for nothing.
local function add_before(leaves, before, prefix, file)
  for _, one in ipairs(before) do
    local key = prefix and prefix .. "." .. one.key or one.key
    local lost = { at = {} }
    flatten(lost, one.node, key, file, false)
    for _, leaf in ipairs(lost) do
      leaf.list, leaf.text = "no_effect", string.format("%s is given again in line %d, which counts",
                                                        quote.shown(key), one.line)
      leaves[#leaves + 1] = leaf
    end
  end
end

-- Adds the leaves of `node` to `leaves`; `prefix` is the key of the node. A name with a point is
-- as deep as it says.
function flatten(leaves, node, prefix, file, json)
  if node.kind == "map" and #node.keys > 0 then
    add_before(leaves, node.before or {}, prefix, file)
    node = merge(node, file)
    for _, key in ipairs(node.keys) do
      flatten(leaves, node.at[key], prefix and prefix .. "." .. key or key, file, json)
    end
    return
  end
  local before = leaves.at[prefix or ""]
  if before then
    fail(string.format("%s:%d: \"%s\" is given twice, here and in line %d", quote.shown(file),
                       line_of(node), quote.shown(prefix), before.line))
  end
  tree.set(leaves, prefix or "", value_of(node, json), file, line_of(node))
end

-- Removes what lies below a key, or the leaf itself.
local function clear(leaves, key)
  local below = key .. "."
  for i = #leaves, 1, -1 do
    local k = leaves[i].key
    if k == key or string.sub(k, 1, #below) == below then
      leaves.at[k] = nil
      table.remove(leaves, i)
    end
  end
end

function tree.new() return { at = {} } end

-- A leaf; the one before it with that key is not there any more.
function tree.set(leaves, key, value, file, line)
  if leaves.at[key] then clear(leaves, key) end
  local leaf = { key = key, value = value, file = file, line = line }
  leaves.at[key], leaves[#leaves + 1] = leaf, leaf
end

function tree.leaves(node, file, json)
  local leaves = tree.new()
  flatten(leaves, node, nil, file, json)
  return leaves
end

-- key=value behind the file: takes the place of what the file says there.
function tree.override(leaves, word)
  local key, text = string.match(word, "^%-*([%w_.%-]+)=(.*)$")
  if not key then
    fail(string.format("\"%s\" is no key=value; see weft import --help", quote.shown(word)))
  end
  clear(leaves, key)
  tree.set(leaves, key, scalar.of_word(text), "the command line")
  leaves.at[key].ordered = true
end

-- Where a value stands, shown: "recipe.yaml:3".
function tree.place(leaf)
  local file = quote.shown(leaf.file)
  return leaf.line and string.format("%s:%d", file, leaf.line) or file
end

-- What a setting is called in the file; older versions of a system have other names for `key`.
function tree.name(leaf) return leaf.given or leaf.key end

return tree
