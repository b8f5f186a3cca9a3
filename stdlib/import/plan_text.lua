-- plan_text.lua - fields of a plan, put one by one with where each comes from, as the text of
-- a plan: groups in the order of the language, one field a line, a comment behind it.
local quote = use "import/quote"
local tree = use "import/tree"
local plan_text = {}
plan_text.__index = plan_text

local ORDER = { "name", "model", "cluster", "mesh", "strategy", "tp_plan", "pp_plan", "schedule", "precision",
  "recompute", "loss_chunks", "cp", "moe", "mtp", "packed", "batch", "freeze", "groups", "adapter", "loss",
  "optimizer", "data", "train", "checkpoint",
  "comm", "nccl", "deterministic", "attention_backend", "cuda_graph" }

function plan_text.new() return setmetatable({ root = { list = {}, at = {} } }, plan_text) end

local function below(node, step)
  if not node.at[step] then
    local new = { name = step, list = {}, at = {} }
    node.at[step], node.list[#node.list + 1] = new, new
  end
  return node.at[step]
end

local function place(self, path)
  local node = self.root
  for step in string.gmatch(path, "[^.]+") do node = below(node, step) end
  return node
end

local function fill(node, source, from)
  if node.source then return end
  node.source = source
  if type(from) == "table" then
    node.note = string.format("%s: %s", tree.place(from), quote.shown(tree.name(from)))
  elseif from then
    node.note = quote.shown(from)
  end
end

-- The field `path` ("mesh.tp"; "strategy.#" is what a list begins with) has the Lua expression
-- `source`; `from` is the setting that says so, or a text. The first one counts.
function plan_text:put(path, source, from) fill(place(self, path), source, from) end

-- The same for an entry of a group whose name is any text: a pattern of modules.
function plan_text:entry(group, name, source, from)
  fill(below(place(self, group), name), source, from)
end

-- The group is made by a builder: "weft.adamw".
function plan_text:head(path, builder) place(self, path).head = builder end

local function find(self, path)
  local node = self.root
  for step in string.gmatch(path, "[^.]+") do
    node = node.at[step]
    if not node then return nil end
  end
  return node
end

function plan_text:has(path) return find(self, path) ~= nil end

-- The Lua expression of a field; nil: it has none.
function plan_text:source(path)
  local node = find(self, path)
  return node and node.source
end

local function name_of(node)
  return node.name == "#" and "" or quote.key(node.name) .. " = "
end

local function write(lines, node, indent)
  local note = node.note and "  -- " .. node.note or ""
  if node.source then
    lines[#lines + 1] = indent .. name_of(node) .. node.source .. "," .. note
    return
  end
  local head = node.head and node.head .. " {" or "{"
  lines[#lines + 1] = indent .. name_of(node) .. head .. note
  for _, child in ipairs(node.list) do write(lines, child, indent .. "  ") end
  lines[#lines + 1] = indent .. "},"
end

function plan_text:lines()
  local lines, rank = {}, {}
  for i, name in ipairs(ORDER) do rank[name] = i end
  table.sort(self.root.list, function(a, b) return rank[a.name] < rank[b.name] end)
  for _, node in ipairs(self.root.list) do
    if #lines > 0 and not node.source then lines[#lines + 1] = "" end
    write(lines, node, "  ")
  end
  return lines
end

return plan_text
