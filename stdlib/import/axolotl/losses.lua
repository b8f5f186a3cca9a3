-- losses.lua - what axolotl's `rl` and reward models minimise, as the field loss. DPO is TRL's loss "sigmoid"; of
-- pairs the prompts are not learnt. Others are said: the plan then trains with the cross entropy of the next token.
local experts = use "import/automodel/experts"
local quote = use "import/quote"
local values = use "import/values"
local losses = {}

local PLAIN = "the plan trains with the cross entropy of the next token: loss = { function } takes one of your own"
local OTHERS = {
  ipo = "IPO", kto = "KTO", orpo = "ORPO", simpo = "SimPO", grpo = "GRPO, which learns from rewards of what it samples",
  gdpo = "GDPO, which learns from rewards of what it samples", ebft = "energy-based fine-tuning, which learns from what it samples",
}

local function put_number(book, plan, keys_of, field)
  local key = book:first(table.unpack(keys_of))
  local n = key and values.positive(book, key)
  if n then plan:put(field, quote.value(n), book:leaf(key)) end
  for _, one in ipairs(keys_of) do
    if one == key then book:translated(one, field) else book:no_effect(one, field .. " is said by another setting") end
  end
  return n
end

-- Kinds of DPO: "sigmoid" alone is weft's.
local function is_sigmoid(book)
  local key = "dpo_loss_type"
  local value = book:value(key)
  if value == nil then return true end
  local list = type(value) == "table" and value or { value }
  if #list == 1 and list[1] == "sigmoid" then
    book:no_effect(key, "as it is in weft")
    return true
  end
  book:cannot(key, "dpo is TRL's sigmoid: " .. PLAIN)
  return false
end

local function put_dpo(book, plan, config)
  if experts.has(config) then
    book:cannot("rl", "the reference of a model with experts is not built: " .. PLAIN)
    return false
  elseif not is_sigmoid(book) then
    book:cannot("rl", "see dpo_loss_type")
    return false
  end
  plan:put("loss.#", quote.text "dpo", book:leaf "rl")
  book:translated("rl", "loss")
  put_number(book, plan, { "trl.beta", "rl_beta", "dpo_beta", "beta" }, "loss.beta")
  put_number(book, plan, { "dpo_label_smoothing" }, "loss.label_smoothing")
  if values.switch(book, "dpo_use_weighting") then
    book:cannot("dpo_use_weighting", "pairs count alike, whatever the model thinks of them")
  end
  if values.switch(book, "precompute_ref_log_probs") then
    book:cannot("precompute_ref_log_probs", "a file of them is loss.reference_file, which weft eval --reference writes: until "
                .. "then the reference is computed in each step")
  end
  book:assume("loss", "of a pair the prompt is not learnt; a microbatch has both of its sequences, so that batch counts twice as many")
  return true
end

-- Other numbers of losses that are said once, with their loss.
local REWARDS = { reward_model = "a model of rewards has a head of one number", process_reward_model = "a model of rewards has a head of "
                  .. "two numbers for each step" }

-- "dpo", "other", or nil: the cross entropy of the next token.
function losses.put(book, plan, config)
  for _, key in ipairs(keys(REWARDS)) do
    if values.switch(book, key) then
      book:refuse(key, REWARDS[key] .. ", which weft does not train")
      return "other"
    end
  end
  local name = book:value "rl"
  if name == nil or name == false then return nil end
  if name == "dpo" and put_dpo(book, plan, config) then return "dpo" end
  if name ~= "dpo" and not OTHERS[name] then
    book:refuse("rl", string.format("%s: expected dpo, ipo, kto, orpo, simpo, grpo, gdpo or ebft", quote.shown(name)))
  elseif name ~= "dpo" then
    book:cannot("rl", OTHERS[name] .. ": " .. PLAIN)
  end
  return "other"
end

return losses
