-- optimizers.lua - names of optimizers that axolotl knows, Transformers' and its own, and what weft has of each:
-- { builder =, lacks = what the plan is without, note = what else differs, groups = whether axolotl makes the groups,
-- own = whether axolotl makes it, not the Trainer, one_group = all parameters decay, bnb = bitsandbytes' 8 bits,
-- beta2 =, eps = of the optimizer itself }.
local optimizers = {}

local PAGED = "its states may go to the memory of the host there; here they stay on the device"
local OTHER = "%s is not in weft: the plan has AdamW with these numbers"

local known = {}
local function add(builder, text, more)
  for name in string.gmatch(text, "%S+") do
    known[name] = { builder = builder }
    for key, value in pairs(more or {}) do known[name][key] = value end
    known[name].own = known[name].own or known[name].groups
  end
end

add("adamw", "adamw_torch adamw_torch_fused adamw_hf adamw_torch_xla adamw_torch_npu_fused adamw_apex_fused")
add("adamw", "adamw_anyprecision", { note = "averages are f32 as AnyPrecision's are unless optim_args say otherwise" })
add("adamw", "paged_adamw paged_adamw_32bit", { note = PAGED })
add("adamw", "optimi_adamw", { groups = true, beta2 = 0.99, eps = 1e-6, note = "weights in bf16 are rounded to nearest; optimi adds up what is rounded away (Kahan)" })
add("adamw", "flash_adamw", { groups = true, lacks = "FlashAdamW keeps states in 8 bits, and corrections of 8 or 16 bits beside weights in bf16: the "
  .. "plan has AdamW, more memory" })
add("adam", "flash_adam", { groups = true, lacks = "FlashAdam keeps states in 8 bits: the plan has Adam, more memory" })
add("sgd", "flash_sgd flash_sgdw", { groups = true, lacks = "of flashoptim the plan has PyTorch's SGD" })
add("lion", "flash_lion", { groups = true, beta2 = 0.99, lacks = "FlashLion keeps its average in 8 bits: the plan has Lion, more memory" })
add("adamw_8bit", "adamw_bnb_8bit adamw_8bit", { bnb = true })
add("adamw_8bit", "paged_adamw_8bit", { bnb = true, note = PAGED })
add("adamw_8bit", "adamw_torch_8bit", { note = "codes of 8 bits in blocks of 256 are bitsandbytes'; torchao's have other values beside them" })
add("adamw_8bit", "ao_adamw_8bit", { groups = true, note = "codes of 8 bits in blocks of 256 are bitsandbytes'; torchao's have other values beside them" })
add("adamw_8bit", "adamw_torch_4bit", { lacks = "averages are in 8 bits, not in 4: twice the memory of states, smaller errors" })
add("adamw_8bit", "ao_adamw_4bit", { groups = true, lacks = "averages are in 8 bits, not in 4: twice the memory of states, smaller errors" })
add("adamw_8bit", "ao_adamw_fp8", { groups = true, lacks = "averages are codes of 8 bits, not fp8: the same memory, other errors" })
add("sgd", "sgd")
add("adafactor", "adafactor")
add("lion", "lion_32bit paged_lion_32bit")
add("lion", "lion_pytorch", { own = true, one_group = true, beta2 = 0.99 })
add("lion", "lion_8bit paged_lion_8bit", { lacks = "Lion's average is f32, not in 8 bits: more memory" })
add("muon", "muon", { own = true })

for name in string.gmatch([[adagrad rmsprop rmsprop_bnb rmsprop_bnb_8bit rmsprop_bnb_32bit ademamix ademamix_8bit paged_ademamix_32bit
  paged_ademamix_8bit galore_adamw galore_adamw_8bit galore_adafactor galore_adamw_layerwise galore_adamw_8bit_layerwise
  galore_adafactor_layerwise lomo adalomo grokadamw schedule_free_adamw schedule_free_radam schedule_free_sgd
  apollo_adamw apollo_adamw_layerwise stable_adamw]], "%S+") do
  known[name] = { builder = "adamw", lacks = string.format(OTHER, name) }
end
for name in string.gmatch("adopt_adamw came_pytorch dion sinkgd q_galore_adamw8bit", "%S+") do
  known[name] = { builder = "adamw", groups = true, lacks = string.format(OTHER, name) }
end

-- Of a name; nil and the nearest one: there is none.
function optimizers.find(name)
  if known[name] then return known[name] end
  return nil, suggest(name, keys(known))
end

return optimizers
