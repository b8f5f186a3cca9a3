-- fields.lua - the fields of plans as completion and help see them: schema.def by scope.
local gmatch, gsub, match = string.gmatch, string.gsub, string.match
local host = use "prompt/host"

-- list: all in order; of[scope]: those of a scope, in order.
local fields = { list = host.schema(), of = {}, schedules = host.schedules }
local by_name = {}
for _, f in ipairs(fields.list) do
  fields.of[f.scope] = fields.of[f.scope] or {}
  table.insert(fields.of[f.scope], f)
  by_name[f.scope .. "." .. f.key] = f
end

-- The scope itself if there is such a one, else nil.
function fields.known(scope) return fields.of[scope] and scope end

-- The field `key` of a scope, behind its aliases; nil if there is none.
function fields.find(scope, key)
  local f = scope and by_name[scope .. "." .. key]
  return f and f.alias and by_name[scope .. "." .. f.alias] or f
end

-- The scope of the table that `key` takes in `scope`, or nil.
function fields.below(scope, key)
  local f = fields.find(scope, key)
  if not f then return nil end
  if f.key == "tp_plan" or f.key == "schedule" then return f.key end
  -- Of several scopes the first: the fields of "cosine" are those of every learning rate.
  return f.tables and fields.known(match(f.tables, "^%S*"))
end

-- The scope of a path: "plan" for "", "mesh" for "mesh"; a leading "plan." is allowed.
function fields.scope(path)
  local scope = "plan"
  path = path == "plan" and "" or gsub(path, "^plan%.", "")
  if path == "" then return scope end
  for key in gmatch(path, "[^.]*") do scope = fields.below(scope, key) end
  return scope
end

return fields
