-- experts.lua - experts of models below LLaMA-Factory: Megatron's arguments as the field moe of a plan. Transformers'
-- models have no loss of routers unless moe_aux_loss_coef asks for one, which left_out.lua says.
local quote = use "import/quote"
local values = use "import/values"
local experts = {}

local KEYS = { "num_experts", "num_local_experts", "n_routed_experts" }

-- Whether a model has them: a config says how many, or its architecture.
function experts.has(config)
  for _, key in ipairs(KEYS) do
    local value = config[key]
    if value == nil then value = use("models/" .. config[1]).defaults[key] end
    if value then return true end
  end
  return false
end

local DISPATCHERS = { allgather = "allgather", alltoall = "alltoall", flex = "alltoall" }

function experts.put(book, plan, m)
  local key = "moe_token_dispatcher_type"
  local value = book:value(key)
  if value ~= nil and not DISPATCHERS[value] then
    book:refuse(key, string.format("%s = %s: expected allgather, alltoall or flex", key, quote.shown(value)))
  elseif value ~= nil and m.ep > 1 and m.experts then
    plan:put("moe.dispatcher", quote.text(DISPATCHERS[value]), book:leaf(key))
    book:translated(key, "moe.dispatcher")
  end
  book:no_effect(key, "experts are not cut: ep is 1")
  key = "moe_router_dtype"
  if not m.experts then return book:no_effect(key, "the model has no experts") end
  local kind = book:value(key)
  if kind == nil then return end
  if kind ~= "fp64" and values.type_of(book, key) ~= "f32" then
    return book:cannot(key, "scores of routers have the type of precision, or f32")
  elseif kind == "fp64" then
    book:cannot(key, "scores of routers are f32")
  end
  plan:put("moe.router_dtype", quote.text "f32", book:leaf(key))
  book:translated(key, "moe.router_dtype")
end

return experts
