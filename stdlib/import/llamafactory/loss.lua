-- loss.lua - the stage of LLaMA-Factory's arguments: what is minimised. dpo is the loss of that name; hinge, ipo and
-- simpo (train/dpo/trainer.py) are functions of the plan.
local quote = use "import/quote"
local v1 = use "import/llamafactory/v1"
local values = use "import/values"

local loss = {}

-- ---- which ----

-- orpo was a stage of its own before 0.8.
local STAGES = { pt = "pt", sft = "sft", rm = "rm", ppo = "ppo", dpo = "dpo", kto = "kto", orpo = "dpo" }
local REFUSED = {
  rm = "trains a head that scores texts, which weft has not; --set stage=dpo, or sft, makes the plan of another training",
  ppo = "is reinforcement learning, which weft has not; --set stage=dpo, or sft, makes the plan of another training",
}

-- The stage; nil: it is refused.
function loss.stage(book)
  local key, stage = "stage", book:value "stage"
  if stage == nil then return "sft" end
  if not STAGES[stage] then
    return book:refuse(key, string.format("%s = %s: expected pt, sft, dpo or kto", key, quote.shown(stage)))
  elseif REFUSED[stage] then
    return book:refuse(key, string.format("stage %s %s", stage, REFUSED[stage]))
  end
  return STAGES[stage]
end

-- ---- functions of the plan ----

local HEAD = [[
-- The logarithm of how likely each sequence is$MEAN.
local function likelihoods(g, logits, labels)
  local sums = g:scale(g:row_sums(g:token_losses(logits, labels)), { scale = -1 })
  return $GIVES
end
]]
local MEAN = { MEAN = ", a token of it", GIVES = "g:divide(sums, g:row_sums(g:label_mask(labels)))" }
local SUM = { MEAN = "", GIVES = "sums" }

local MARGIN = [[

-- How much likelier the better answers are than the others, against the reference.
local function margin(g, x)
  local own = likelihoods(g, x.logits, x.labels)
  local other = likelihoods(g, x.reference, x.labels)
  local chosen, rejected = g:split_pairs(g:add(own, g:scale(other, { scale = -1 })))
  return g:add(chosen, g:scale(rejected, { scale = -1 }))
end
]]

local BODIES = {
  hinge = { SUM, MARGIN .. [[

local function hinge(g, x, o)
  local left = g:offset(g:scale(margin(g, x), { scale = -o.beta }), { scale = 1 })
  return g:sum_all(g:relu(left))
end
]] },
  ipo = { MEAN, MARGIN .. [[

local function ipo(g, x, o)
  local left = g:offset(margin(g, x), { scale = -1 / (2 * o.beta) })
  return g:sum_all(g:mul(left, left))
end
]] },
  simpo = { MEAN, [[

local function simpo(g, x, o)
  local chosen, rejected = g:split_pairs(likelihoods(g, x.logits, x.labels))
  local margin = g:add(chosen, g:scale(rejected, { scale = -1 }))
  margin = g:offset(g:scale(margin, { scale = o.beta }), { scale = -o.gamma })
  return g:sum_all(g:scale(g:log_sigmoid(margin), { scale = -1 }))
end
]] } }

local function lines_of(name)
  local parts, body = BODIES[name][1], BODIES[name][2]
  local text = string.gsub(HEAD, "%$(%u+)", parts) .. body
  local list = {}
  for line in string.gmatch(text, "([^\n]*)\n") do list[#list + 1] = line end
  return list
end

-- ---- the field ----

-- The reference is the model without what its adapter adds, or a copy.
local function put_reference(plan, m)
  local saved = plan:has "adapter.modules_to_save"
  local base = plan:has "adapter" and not saved
  plan:put("loss.reference", quote.text(base and "base" or "copy"), base and "the model without its adapter"
           or "the model as it begins")
  m.own_loss = true
end

local function put_beta(book, plan)
  local beta = values.positive(book, "pref_beta")
  if beta == 0 then
    book:refuse("pref_beta", "pref_beta: expected a number above 0")
    beta = 0.1
  end
  plan:put("loss.beta", quote.value(beta or 0.1), beta and book:leaf "pref_beta" or "LLaMA-Factory's default")
  book:translated("pref_beta", "loss.beta")
end

local function put_dpo(book, plan, m)
  plan:put("loss.#", quote.text "dpo", book:leaf "stage")
  put_beta(book, plan)
  local key = "dpo_label_smoothing"
  local smooth = values.positive(book, key) or 0
  if smooth > 0.5 then
    book:refuse(key, key .. ": expected a number from 0 to 0.5")
  elseif smooth > 0 then
    plan:put("loss.label_smoothing", quote.value(smooth), book:leaf(key))
    book:translated(key, "loss.label_smoothing")
  end
  put_reference(plan, m)
end

local function put_function(book, plan, m, name)
  plan.before = lines_of(name)
  plan:put("loss.#", name, book:leaf "pref_loss" or book:leaf "stage")
  plan:put("loss.per", quote.text "pairs")
  put_beta(book, plan)
  if name == "simpo" then
    m.own_loss = true
    if plan:has "loss.gamma" then return end
    local gamma = values.positive(book, "simpo_gamma")
    plan:put("loss.gamma", quote.value(gamma or 0.5), gamma and book:leaf "simpo_gamma" or "LLaMA-Factory's default")
    book:translated("simpo_gamma", "loss.gamma")
  else
    put_reference(plan, m)
  end
end

local KINDS = { sigmoid = true, hinge = true, ipo = true, simpo = true, orpo = true, kto_pair = true }
local KTO = "a loss of answers that are wanted or not, which is not translated: the plan trains with the cross entropy of the "
  .. "next token"
local OTHER = "a loss that is not translated: the plan trains pairs with dpo's"
local ORPO = "a loss of odds, which is not translated: the plan trains pairs without a reference, too, by simpo's without a margin"

local function put_pairs(book, plan, m)
  local key = "pref_loss"
  local old = book:value "stage" == "orpo"
  local name = old and "orpo" or book:value(key) or "sigmoid"
  if not KINDS[name] then
    book:refuse(key, string.format("%s = %s: expected sigmoid, hinge, ipo, orpo or simpo", key, quote.shown(name)))
  elseif name == "sigmoid" then
    put_dpo(book, plan, m)
    book:translated(key, "loss")
  elseif BODIES[name] then
    put_function(book, plan, m, name)
    book:translated(key, "loss, a function of the plan")
  else
    if name == "orpo" then
      plan:put("loss.gamma", "0", "no margin")
      put_function(book, plan, m, "simpo")
    else
      put_dpo(book, plan, m)
    end
    book:cannot(old and "stage" or key, name == "orpo" and ORPO or OTHER)
  end
  book:translated("stage", "loss")
end

-- Behind the adapter, which says what the reference may be.
function loss.put(book, plan, m)
  if m.stage == "dpo" then
    put_pairs(book, plan, m)
    if m.v1 then v1.say_pairs(book) end
  elseif m.stage == "kto" then
    book:cannot("stage", KTO)
    book:cannot("pref_beta", KTO)
  else
    book:translated("stage", "loss, none: the cross entropy of the next token")
  end
  for _, key in ipairs { "pref_beta", "pref_loss", "dpo_label_smoothing", "simpo_gamma" } do
    book:no_effect(key, "it counts with stage: dpo" .. (key == "simpo_gamma" and " and pref_loss: simpo" or "") .. " alone")
  end
end

return loss
