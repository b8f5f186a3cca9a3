-- zero.lua - what `deepspeed` of an axolotl recipe names: a file beside it, one of those that axolotl ships
-- (deepspeed_configs/), or the settings themselves. Their stage and number formats are read as those of
-- DeepSpeed's own files; batch, clipping and "auto" are the recipe's.
local deepspeed = use "import/deepspeed/deepspeed"
local deepspeed_left_out = use "import/deepspeed/left_out"
local ledger = use "import/ledger"
local quote = use "import/quote"
local read_settings = use "read_settings"
local read_text = use "read_text"
local rule = use "import/rule"
local scalar = use "import/scalar"
local tree = use "import/tree"
local zero = {}

-- ---- which settings ----

local function fact(list, key, value, file)
  list[#list + 1] = { key = key, value = value, file = file }
  list.at[key] = list[#list]
end

-- What the files that axolotl ships say, in so far as it counts: stage, offloading, type.
local SHIPPED = {
  ["zero1.json"] = { stage = 1 }, ["zero1_torch_compile.json"] = { stage = 1 },
  ["zero2.json"] = { stage = 2, optimizer = true }, ["zero2_torch_compile.json"] = { stage = 2, optimizer = true },
  ["zero3.json"] = { stage = 3 }, ["zero3_bf16.json"] = { stage = 3, bf16 = true },
  ["zero3_bf16_cpuoffload_all.json"] = { stage = 3, bf16 = true, optimizer = true, param = true },
  ["zero3_bf16_cpuoffload_params.json"] = { stage = 3, bf16 = true, param = true },
}

-- Of those that do not say bf16 alone.
local SCALES = { loss_scale = 0, initial_scale_power = 32, loss_scale_window = 1000, hysteresis = 2, min_loss_scale = 1 }

local function shipped(name)
  local one = SHIPPED[name]
  if not one then return nil end
  local list, z = { at = {} }, "zero_optimization."
  fact(list, z .. "stage", one.stage, name)
  fact(list, z .. "overlap_comm", true, name)
  if one.optimizer then fact(list, z .. "offload_optimizer.device", "cpu", name) end
  if one.param then fact(list, z .. "offload_param.device", "cpu", name) end
  if one.stage == 3 then fact(list, z .. "stage3_param_persistence_threshold", "auto", name) end
  fact(list, "bf16.enabled", one.bf16 or "auto", name)
  if not one.bf16 then
    fact(list, "fp16.enabled", "auto", name)
    for _, key in ipairs(keys(SCALES)) do fact(list, "fp16." .. key, SCALES[key], name) end
  end
  fact(list, "gradient_clipping", "auto", name)
  return list
end

-- The file where it lies from the recipe's folder, or beside the recipe.
local function beside(recipe, value)
  local folder = string.match(recipe, "^.*/") or ""
  for _, name in ipairs { value, scalar.behind_last(value, "/") } do
    local path = string.find(name, "^/") and name or folder .. name
    if name ~= "" and pcall(read_text, path) then
      local node = read_settings(path)
      if node.kind ~= "map" then fail(quote.shown(path) .. ": is no table of settings") end
      return tree.leaves(node, scalar.behind_last(path, "/"), true)
    end
  end
end

-- Settings that stand in the recipe below `deepspeed`.
local function inside(book)
  local list = { at = {} }
  for _, leaf in ipairs(book.leaves) do
    local key = string.match(leaf.key, "^deepspeed%.(.+)$")
    if key then
      list[#list + 1] = { key = key, value = leaf.value, file = leaf.file, line = leaf.line, own = leaf }
      list.at[key] = list[#list]
    end
  end
  return #list > 0 and list or nil
end

-- "auto" of number formats is filled in from the recipe; the leaf shows what the file says.
local function fill(list, kind)
  for key, on in pairs { ["bf16.enabled"] = kind.compute == "bf16", ["fp16.enabled"] = kind.compute == "f16" } do
    local leaf = list.at[key]
    if leaf and leaf.value == "auto" then leaf.value, leaf.filled = on, true end
  end
end

-- The ledger of DeepSpeed's settings; nil: the recipe names none. `kind`: see precision.kind.
function zero.open(book, recipe, kind)
  local value, list = book:value "deepspeed", inside(book)
  if type(value) == "string" then
    local name = scalar.behind_last(value, "/")
    list = beside(recipe, value) or shipped(name)
    if list then
      book:translated("deepspeed", list[1] and list[1].line and "strategy, of the file that it names"
                      or "strategy, as the file of this name that axolotl ships has it")
    else
      book:refuse("deepspeed", string.format("%s: the file is not beside the recipe, and none that axolotl ships: put it there",
                                             quote.shown(value)))
    end
  elseif value ~= nil and not list then
    book:refuse("deepspeed", "expected the name of a file, or the settings of one")
  end
  if not list then return nil end
  fill(list, kind)
  return ledger.new(list, deepspeed.absent, deepspeed.fields)
end

-- ---- what of them counts ----

local RECIPE = "the recipe says it, with which a file must agree"
-- What Transformers' Trainer says in the place of the file.
local own = {
  rule.none("train_batch_size", RECIPE), rule.none("train_micro_batch_size_per_gpu", RECIPE),
  rule.none("gradient_accumulation_steps", RECIPE), rule.none("gradient_clipping", RECIPE),
  rule.none("steps_per_print", "logging_steps says it"), rule.none("data_parallel_size", "the ranks are the launcher's"),
  rule.cannot("optimizer.*", "the optimizer of the file takes the place of the recipe's there: the plan has the recipe's"),
  rule.cannot("scheduler.*", "the learning rate of the file takes the place of the recipe's there: the plan has the recipe's"),
  rule.cannot("sequence_parallel_size", "sequences are cut as context_parallel_size says"),
  rule.none("tensor_parallel.*", "mesh.tp says it"),
}

-- Of two rows of a setting the last one counts.
local rules = table.move(own, 1, #own, #deepspeed_left_out + 1, table.move(deepspeed_left_out, 1, #deepspeed_left_out, 1, {}))

local AUTO = "\"auto\": the recipe says it"

local function say_auto(file)
  for _, leaf in ipairs(file.leaves) do
    if leaf.value == "auto" and not string.find(leaf.key, "^zero_optimization%.") then file:no_effect(leaf.key, AUTO) end
  end
end

-- Puts strategy and precision; all settings of the file are said in the recipe's report.
function zero.put(file, book, plan, config)
  say_auto(file)
  if file.leaves.at["tensor_parallel.autotp_size"] then file:translated("tensor_parallel.autotp_size", "mesh.tp") end
  deepspeed.put_beside(file, plan, config)
  file:apply(rules)
  for _, leaf in ipairs(file.leaves) do
    if leaf.filled then leaf.value = "auto" end
    if leaf.own then
      leaf.own.list, leaf.own.text = leaf.list, leaf.text
    else
      book.leaves[#book.leaves + 1] = leaf
    end
  end
  for _, one in ipairs(file.assumed) do book.assumed[#book.assumed + 1] = one end
  for _, one in ipairs(file.refused) do book.refused[#book.refused + 1] = one end
end

return zero
