-- experts.lua - the experts of NeMo AutoModel's recipes as the field moe of a plan: how they lie on ranks, and
-- what its own models balance them by, which no recipe says.
local quote = use "import/quote"
local values = use "import/values"
local experts = {}

local DISPATCHERS = { torch = "allgather" }

-- What a model's config says, or its architecture.
local function said(config, key)
  local value = config[key]
  if value == nil and config[1] then value = use("models/" .. config[1]).defaults[key] end
  return value
end

-- Whether a model has them: a config says how many, or its architecture.
function experts.has(config)
  return (said(config, "num_experts") or said(config, "num_local_experts") or said(config, "n_routed_experts"))
    and true or false
end

function experts.put(book, plan, m)
  for _, name in ipairs { "ignore_router_for_ac", "reshard_after_forward" } do
    local key = "distributed.moe." .. name
    if m.ep > 1 then
      values.put_flag(book, plan, key, "moe." .. name)
    else
      book:no_effect(key, "experts are not cut: ep is 1")
    end
  end
  book:no_effect("distributed.moe.wrap_outer_model", "each unit is gathered by itself")
  local gate = "model.backend.gate_precision"
  if not m.experts then
    book:no_effect(gate, "the model has no experts")
  elseif book:value(gate) and values.known_type(book:value(gate)) == "f32" then
    plan:put("moe.router_dtype", quote.text "f32", book:leaf(gate))
    book:translated(gate)
  end
  local key = "model.backend.dispatcher"
  local value = book:value(key)
  if value == nil then return end
  if m.ep == 1 then return book:no_effect(key, "experts are not cut: ep is 1") end
  plan:put("moe.dispatcher", quote.text(DISPATCHERS[value] or "alltoall"), book:leaf(key))
  if DISPATCHERS[value] then return book:translated(key, "moe.dispatcher") end
  book:cannot(key, "tokens go to their experts by alltoall, which gives the same sums by other "
              .. "kernels")
end

-- ---- what balances them ----

-- Models of AutoModel's own whose routers have the loss of their config, router_aux_loss_coef, and what public
-- files have for it.
local LOSSES = { qwen3_moe = 0.001, laguna = 0.001, gpt_oss = 0.9 }
-- Those whose routers choose by a bias that moves by 0.001 after each step, whatever the recipe.
local MOVING = { deepseek_v3 = true, kimi_k2 = true, glm4_moe = true, glm4_moe_lite = true, minimax_m2 = true }

-- Each rank balances the tokens of its microbatch by themselves.
local function put_loss(book, plan, config, aside)
  local key, weight = book:first("model.router_aux_loss_coef", "model.config.router_aux_loss_coef")
  weight = key and values.positive(book, key) or aside.router_aux_loss_coef or LOSSES[config[1]]
  plan:put("moe.aux_loss_coef", quote.value(weight), key and book:leaf(key) or "router_aux_loss_coef of the model's config")
  if key then book:translated(key, "moe.aux_loss_coef") end
  if weight == 0 then return end
  plan:put("moe.aux_loss_sequences", plan:source "batch.micro", "a rank's microbatch is balanced by itself there")
  if config[1] == "laguna" then
    book:assume("moe.aux_loss_coef", "the loss counts what scores choose; AutoModel's counts what its routers choose by "
                .. "scores and a bias")
  end
  if not key then
    book:assume("moe.aux_loss_coef", string.format("%g, as in the config of the model: AutoModel's own model of this "
                                                   .. "kind has this loss of routers", weight))
  end
end

-- `aside`: what the model's config says of training.
function experts.put_balance(book, plan, m, config, aside)
  local own = m.experts and book:value "model.force_hf" ~= true
  if own and LOSSES[config[1]] then put_loss(book, plan, config, aside) end
  for _, key in ipairs { "model.router_aux_loss_coef", "model.config.router_aux_loss_coef" } do
    book:no_effect(key, not m.experts and "the model has no experts"
                   or "AutoModel's recipes train this model without a loss of routers")
  end
  if not (own and MOVING[config[1]]) or aside.bias_update_rate == 0 then return end
  local still = plan:has "adapter" and "routers stay beside an adapter" or plan:source "strategy.offload_policy" == "true"
    and "the bias of routers stays where parameters lie on the host"
  if still then return book:assume("moe", still .. "; AutoModel's own model moves it by 0.001 after each step") end
  plan:put("moe.bias_update_rate", "0.001", "AutoModel's own model of this kind moves the bias of routers so")
end

return experts
