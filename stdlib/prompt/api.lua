-- api.lua - what scripts can call (api_doc.def), by object.
local find = string.find

-- list: all in order; of[object]: those of an object, in order.
local api = { list = (use "prompt/host").api(), of = {} }
for _, d in ipairs(api.list) do
  d.method = find(d.form, ":", 1, true) ~= nil
  api.of[d.object] = api.of[d.object] or {}
  table.insert(api.of[d.object], d)
end

function api.find(object, name)
  for _, d in ipairs(api.of[object] or {}) do if d.name == name then return d end end
end

return api
